"""`puncta demo`: a small tissue, and everything tried on it."""

import json
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from puncta.cli._index import print_report
from puncta.cli._levels import print_levels
from puncta.cli._options import LocalPath
from puncta.cli._print import plural, print_facts, print_swatches, print_words, words_for_seconds
from puncta.cli._progress import showing_progress
from puncta.cli._verb import Verb
from puncta.errors import OverwriteError

if TYPE_CHECKING:
    from puncta.indexing import IndexReport
    from puncta.points import Level, Points

type Ranges = dict[str, tuple[int, int]]
"""A box by axis, in whole micrometres."""

# What the root of a demo's store says, so that the next demo knows it as one that it may replace.
_MARK = "puncta_demo"

# Markers of layers and nuclei: together they show how a section is built.
_DRAWN = ("Fezf2", "Syt6", "Dsp", "Prkcd", "Ccdc153")
_ASKED = "Opalin"

# Side of the region that is asked for, in micrometres, and what its corner is rounded to, so that it is short to type.
_SIDE = 500
_ROUND = 100


@click.command(cls=Verb, examples=["puncta demo", "puncta demo --dir /tmp/demo --points 100000"])
@click.option("--dir", "folder", type=LocalPath(), default=".", metavar="DIR", help="Where demo.zarr and demo.png go.")
@click.option(
    "--points", type=click.IntRange(min=1_000), default=500_000, show_default=True, metavar="N", help="Molecules."
)
@click.option("--no-browser", is_flag=True, expose_value=False, help="Open no page; there is none to open yet.")
def demo(folder: Path, *, points: int) -> None:
    """Make a small tissue, index it, and try it out.

    Writes demo.zarr and demo.png; those of an earlier demo are replaced.
    """
    store, picture = folder / "demo.zarr", folder / "demo.png"
    _check_own(store, picture)
    folder.mkdir(parents=True, exist_ok=True)
    # they load zarr and pyarrow, and `--help` is for people who wait
    from puncta.points import open_points  # noqa: PLC0415

    report = _index_tissue(store, points)
    opened = open_points(store)
    print_report(report)
    print_words()
    print_levels(_level(level) for level in opened.levels)
    print_words()
    box = _middle(opened)
    print_facts([*_answers(opened, box), _drawn(opened, picture)])
    print_swatches(_legend())
    _say_next(store, box)


def _check_own(store: Path, picture: Path) -> None:
    """Refuse to replace what no demo has made."""
    if store.exists():
        root = store / "zarr.json"
        if not root.is_file() or _MARK not in json.loads(root.read_bytes()).get("attributes", {}):
            raise OverwriteError(f"{store} exists and is not from a demo; give another folder with --dir")
    elif picture.exists():
        raise OverwriteError(f"{picture} exists, and no demo beside it; give another folder with --dir")


def _index_tissue(store: Path, points: int) -> "IndexReport":
    # as above
    from puncta.example import make_tissue  # noqa: PLC0415
    from puncta.indexing import index_points  # noqa: PLC0415

    with showing_progress() as progress:
        if progress is not None:
            progress("making a tissue", 0, 0)
        molecules = make_tissue(points=points).molecules
        report = index_points(molecules, store, overwrite=True, progress=progress)
    _mark(store / "zarr.json")
    return report


def _mark(root: Path) -> None:
    # as above
    from puncta.store import write_file  # noqa: PLC0415

    document = json.loads(root.read_bytes())
    document["attributes"] = {**document.get("attributes", {}), _MARK: True}
    write_file(root, json.dumps(document, indent=2).encode())


def _level(level: "Level") -> dict[str, Any]:
    return {
        "level": level.number,
        "tile_size": level.grid.tile_size,
        "grid_shape": level.grid.shape,
        "n_rows": level.n_rows,
        "P": level.fraction,
        "densest_tile": level.densest_tile,
        "bytes": level.bytes,
    }


def _middle(points: "Points") -> Ranges:
    """Return a region in the middle of the section."""
    grid = points.levels[0].grid
    box: Ranges = {}
    for axis in ("x", "y"):
        at = grid.axes.index(axis)
        middle = grid.origin[at] + grid.tile_size[at] * grid.shape[at] / 2
        low = round((middle - _SIDE / 2) / _ROUND) * _ROUND
        box[axis] = (low, low + _SIDE)
    return box


def _answers(points: "Points", box: Ranges) -> list[tuple[str, str]]:
    """Ask for the region, and for the gene; return how many points there are, and how long each took."""
    questions: list[tuple[str, str, dict[str, Any]]] = [
        ("region", f"x and y from {box['x'][0]:,}, {box['y'][0]:,} to {box['x'][1]:,}, {box['y'][1]:,}", {"box": box}),
        ("gene", f"{_ASKED}, in the whole section", {"features": [_ASKED]}),
    ]
    facts = []
    for name, words, asked in questions:
        start = time.perf_counter()
        found = points.query(**asked).num_rows
        seconds = words_for_seconds(time.perf_counter() - start)
        facts.append((name, f"{words}: {plural(found, 'point')} in {seconds}"))
    return facts


def _drawn(points: "Points", picture: Path) -> tuple[str, str]:
    """Draw the picture; return where it is, and how long it took."""
    # as above
    from puncta.points._picture import write_png  # noqa: PLC0415

    start = time.perf_counter()
    image = points.render(features=_DRAWN)
    write_png(picture, image, overwrite=True)
    return "picture", f"{picture}, drawn in {words_for_seconds(time.perf_counter() - start)}"


def _legend() -> list[tuple[str, tuple[int, int, int]]]:
    # as above
    from puncta.points._render import legend  # noqa: PLC0415

    return legend(_DRAWN)


def _say_next(store: Path, box: Ranges) -> None:
    corners = ",".join(str(box[axis][end]) for end in (0, 1) for axis in ("x", "y"))
    place = shlex.quote(str(store))
    print_words()
    print_words("try next")
    for command in (
        f"puncta info {place}",
        f"puncta query {place} --box {corners} --feature {_ASKED}",
        f"puncta plot {place} -o {shlex.quote(str(store.with_name('region.png')))} --box {corners}",
    ):
        click.echo(f"  {command}")
