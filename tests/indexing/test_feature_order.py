"""A feature that stands alone is written from disk, block by block, and comes out like one among others."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puncta.indexing._columns import SAMPLE, TILE, ColumnPlan
from puncta.indexing._feature_groups import GroupDone
from puncta.indexing._feature_index import PairFiles
from puncta.indexing._feature_order import CopyHome, Group, WriteGroups
from puncta.indexing._levels import ancestors_of, blocks_of
from puncta.indexing._runs import Runs
from puncta.indexing._write_parquet import CodedColumn, FileLayout
from puncta.points._grid import Grid

FEATURE = 1


def layout() -> FileLayout:
    values = pa.array(["a", "b", "c"])
    coded = CodedColumn(order=np.arange(3), values=values, as_dictionary=True, is_categorical=True)
    return FileLayout(
        columns=(
            ColumnPlan(name="row", source="row", role="plain"),
            ColumnPlan(name="gene", source="gene", role="feature"),
        ),
        coded={"gene": coded},
        codes_columns=(),
        schema=pa.schema([("row", pa.int64()), ("gene", pa.dictionary(pa.int8(), pa.string()))]),
        encodings={},
    )


def runs_of(folder: Path, grid: Grid, n_rows: int, rng: np.random.Generator) -> Runs:
    """Lay down rows of one feature in tile order, in several runs."""
    runs = Runs(folder, 4)
    tiles = np.sort((rng.beta(0.5, 0.5, n_rows) * grid.n_tiles).astype(np.uint32))
    for number, rows in enumerate(np.array_split(np.arange(n_rows), 3)):
        table = pa.table(
            {
                "row": rows,
                "gene": np.full(len(rows), FEATURE, dtype=np.uint16),
                TILE: tiles[rows],
                SAMPLE: rng.integers(0, 2**32, len(rows), dtype=np.uint32),
            }
        )
        runs.add(number, runs.files.write(number, table, np.full(len(rows), FEATURE, dtype=np.uint16)))
    return runs


def written(runs: Runs, grids: list[Grid], folder: Path, end: int, *, limit: int, shared: bool) -> GroupDone:
    """Write the group of features from `FEATURE` to an end."""
    homes = []
    for level in range(len(grids)):
        (folder / f"{level}" / "pairs").mkdir(parents=True)
        pairs = PairFiles(folder=folder / f"{level}" / "pairs")
        homes.append(CopyHome(parquet=folder / f"{level}", rows=None, pairs=pairs))
    task = WriteGroups(
        runs=runs.files,
        name="gene",
        ancestors=tuple(ancestors_of(grids)),
        row_tiles=tuple(grid.n_tiles // grid.shape[0] for grid in grids),
        limit=limit,
        shared=shared,
        layout=layout(),
        homes=tuple(homes),
    )
    spans = runs.spans(FEATURE, end)
    return task(Group(number=0, first=FEATURE, end=end, spans=spans, rows=int(runs.counts[FEATURE:end].sum())))


@settings(max_examples=10)
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    n_rows=st.integers(1, 400),
    limit=st.integers(1, 60),
    shared=st.booleans(),
    seed=st.integers(0, 99),
)
def test_alone_or_among_others_a_feature_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, shape: tuple[int, int], n_rows: int, limit: int, shared: bool, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("feature")
    grids = list(Grid(axes=("x", "y"), origin=(0, 0), tile_size=(1, 1), shape=shape).pyramid())
    runs = runs_of(folder / "runs", grids[0], n_rows, np.random.default_rng(seed))
    alone = written(runs, grids, folder / "alone", FEATURE + 1, limit=limit, shared=shared)
    among = written(runs, grids, folder / "among", FEATURE + 2, limit=limit, shared=shared)

    np.testing.assert_array_equal(alone.fractions[:, 0], among.fractions[:, 0])
    for level, (one, other) in enumerate(zip(alone.levels, among.levels, strict=True)):
        assert one.feature_rows[0] == other.feature_rows[0]
        np.testing.assert_array_equal(one.cuts, other.cuts)
        names = sorted(path.name for path in (folder / "alone" / f"{level}").glob("*.parquet"))
        assert names == sorted(path.name for path in (folder / "among" / f"{level}").glob("*.parquet"))
        for name in names:
            found = [pq.read_table(folder / kind / f"{level}" / name)["row"].to_pylist() for kind in ("alone", "among")]
            assert found[0] == found[1]
        pairs = [PairFiles(folder=folder / kind / f"{level}" / "pairs").read(0) for kind in ("alone", "among")]
        np.testing.assert_array_equal(pairs[0][0], pairs[1][0])
        np.testing.assert_array_equal(pairs[0][1], pairs[1][1])


@settings(max_examples=40)
@given(
    shape=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    n_rows=st.integers(0, 200),
    target=st.integers(1, 60),
)
def test_tiles_of_a_block_come_after_those_of_the_block_before(
    shape: tuple[int, int], sizes: tuple[int, int], n_rows: int, target: int
) -> None:
    grids = list(Grid(axes=("x", "y"), origin=(0, 0), tile_size=sizes, shape=shape).pyramid())
    tiles = np.sort(np.random.default_rng(n_rows).integers(0, grids[0].n_tiles, n_rows).astype(np.uint32))
    for grid, to_level in zip(grids, ancestors_of(grids), strict=True):
        blocks = list(blocks_of(tiles, to_level, grid.n_tiles // grid.shape[0], target_rows=target))
        assert [row for start, end in blocks for row in range(start, end)] == list(range(n_rows))
        for (_, end), (start, stop) in pairwise(blocks):
            assert to_level[tiles[:end]].max() < to_level[tiles[start:stop]].min()
