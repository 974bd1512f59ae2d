"""Where the rows of features lie, read in blocks, against a list of all pairs."""

from pathlib import Path

import numpy as np
import pytest
import zarr

from puncta.errors import StoreError
from puncta.points import _feature_rows
from puncta.points._element import Element
from puncta.points._feature_rows import FeatureRows, Pairs
from puncta.store._directory import Directory

type Pair = tuple[int, int]

N_FEATURES, N_TILES = 9, 40


def rows_of_features(folder: Path, seed: int) -> tuple[FeatureRows, list[Pair]]:
    """Return the index of random rows, and the feature and tile of each row in their order."""
    rng = np.random.default_rng(seed)
    drawn = zip(rng.integers(0, N_FEATURES, 300).tolist(), rng.integers(0, N_TILES, 300).tolist(), strict=True)
    rows = sorted((feature, tile) for feature, tile in drawn if feature != 4)
    pairs = sorted(set(rows))
    group = zarr.open_group(folder, mode="w", zarr_format=3)
    group.create_array("tiles", data=np.asarray([tile for _, tile in pairs], dtype=np.uint32), chunks=(7,))
    group.create_array("starts", data=np.asarray([rows.index(pair) for pair in pairs], dtype=np.int64), chunks=(7,))
    offsets = np.searchsorted([feature for feature, _ in rows], range(N_FEATURES + 1)).astype(np.int64)
    indptr = np.searchsorted([feature for feature, _ in pairs], range(N_FEATURES + 1)).astype(np.int64)
    element = Element(Directory(folder.parent), "", document={"attributes": {}})
    return FeatureRows(offsets, indptr, Pairs(element, folder.name, count=len(pairs))), rows


@pytest.mark.parametrize("block", [3, 16, 1_000])
@pytest.mark.parametrize("seed", range(5))
def test_the_rows_of_features_in_some_tiles_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, seed: int
) -> None:
    # a small block and a small store of blocks, so that a feature lies in many, and blocks are dropped and read again
    monkeypatch.setattr(_feature_rows, "_BLOCK", block)
    monkeypatch.setattr(_feature_rows, "_KEPT", 4)
    index, rows = rows_of_features(tmp_path / "pairs", seed)
    asked = np.sort(np.random.default_rng(seed).permutation(N_TILES)[:11])
    codes = [0, 2, 3, 4, 8]
    for code, (tiles, ranges) in zip(codes, index.rows_in(codes, asked), strict=True):
        expected = {tile: [at for at, row in enumerate(rows) if row == (code, tile)] for tile in asked.tolist()}
        assert tiles.tolist() == [tile for tile, own in expected.items() if own]
        assert [list(range(*pair)) for pair in ranges.tolist()] == [own for own in expected.values() if own]


def test_what_is_not_asked_for_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_feature_rows, "_BLOCK", 7)
    index, rows = rows_of_features(tmp_path / "pairs", 0)
    needed = -(-int(index.indptr[1]) // 7)
    for file in (tmp_path / "pairs" / "tiles" / "c").iterdir():
        if int(file.name) >= needed:
            file.write_bytes(b"not what a chunk is")
    ((tiles, _),) = index.rows_in([0], np.arange(N_TILES))
    assert tiles.tolist() == sorted({tile for feature, tile in rows if feature == 0})
    with pytest.raises(StoreError, match="damaged"):
        index.all_pairs()
