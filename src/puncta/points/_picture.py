"""Pictures on disk."""

import io
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from puncta.errors import MissingError, OverwriteError, QueryError
from puncta.store import write_file


def write_png(path: str | os.PathLike[str], image: NDArray[np.uint8], *, overwrite: bool = False) -> None:
    """Write an image as a PNG file, whole or not at all; the same image gives the same bytes.

    Args:
        path: The file; its folder is there.
        image: Shape (height, width, 4) or (height, width, 3), uint8, sRGB, with or without opacity.
        overwrite: Replace what is there.

    Raises:
        QueryError: If the array is no such image.
        OverwriteError: If something is there that was not to be replaced.
        MissingError: If the folder is not there.
        SpaceError: If the disk is full.
        StoreError: If the system refuses.

    """
    target = Path(path)
    data = _encoded(image)
    if os.path.lexists(target) and not overwrite:
        raise OverwriteError(f"{target} exists; give another name, or --overwrite to replace it")
    if not target.parent.is_dir():
        raise MissingError(f"there is no folder {target.parent} to write {target.name} to; make it first")
    write_file(target, data)


def _encoded(image: NDArray[np.uint8]) -> bytes:
    dimensions, depths = 3, (3, 4)
    if image.dtype != np.uint8 or image.ndim != dimensions or image.shape[-1] not in depths or not image.size:
        raise QueryError(
            f"an array of shape {image.shape} and type {image.dtype} is no picture; it needs (height, width, 4) or "
            "(height, width, 3) of uint8, and at least one pixel"
        )
    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(stream, format="PNG")
    return stream.getvalue()
