"""`puncta plot`: a picture of a region, of features."""

from pathlib import Path

import click

from puncta.cli._options import (
    LocalPath,
    box_of,
    path_argument,
    region_options,
    require_url,
    url_option,
)
from puncta.cli._print import print_swatches, print_words, words_for_shape
from puncta.cli._verb import Verb, section


@click.command(
    cls=Verb,
    examples=[
        "puncta plot study.zarr/points/transcripts -o section.png",
        "puncta plot study.zarr/points/transcripts -o genes.png --box 0,0,500,500 --feature Plp1 --feature Gad1",
    ],
)
@path_argument
@section(
    "Picture",
    (("-o", "--output"), {"type": LocalPath(), "required": True, "metavar": "PICTURE.png", "help": "File to write."}),
    (("--overwrite",), {"is_flag": True, "help": "Replace the file where it exists."}),
    (("--width",), {"type": click.IntRange(min=1), "default": 1600, "metavar": "N", "help": "Pixels across."}),
    (
        ("--feature", "features"),
        {"multiple": True, "metavar": "NAME", "help": "Draw this one in a colour of its own; may be repeated."},
    ),
)
@region_options
@url_option
def plot(
    path: str,
    *,
    output: Path,
    box: tuple[float, ...] | None,
    z: tuple[float, ...] | None,
    coordinate_system: str | None,
    features: tuple[str, ...],
    width: int,
    overwrite: bool,
    storage_options: dict[str, str],
) -> None:
    """Draw how densely points lie, or where genes lie."""
    if output.suffix.lower() != ".png":
        raise click.UsageError(f"cannot write {output.name!r}; the name must end in .png")
    require_url(path, storage_options)
    # they load zarr and pyarrow, and `--help` is for people who wait
    from puncta.cli._save import check_target  # noqa: PLC0415
    from puncta.points import open_points  # noqa: PLC0415
    from puncta.points._picture import write_png  # noqa: PLC0415
    from puncta.points._render import legend  # noqa: PLC0415

    check_target(output, overwrite=overwrite)
    image = open_points(path, storage_options=storage_options).render(
        box=box_of(box, z), coordinate_system=coordinate_system, features=features or None, width=width
    )
    write_png(output, image, overwrite=overwrite)
    print_words(f"{output}: {words_for_shape([image.shape[1], image.shape[0]])} pixels")
    if features:
        print_swatches(legend(list(dict.fromkeys(features))))
