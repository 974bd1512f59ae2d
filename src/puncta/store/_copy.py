"""Whole folders, copied or linked."""

import errno
import os
import shutil
from pathlib import Path

from puncta.errors import MissingError, OverwriteError
from puncta.store._atomic import is_private_name, says_refused
from puncta.store._disk import walk
from puncta.store._locate import is_there

# What a file system answers that cannot give this file one more name; EPERM also where the file is another user's.
_CANNOT_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder with all that is below it, but for the workspaces of puncta.

    Links stay links, so that a store whose images lie elsewhere does not suddenly hold them; a relative one that leads
    out of the folder is made absolute, so that it leads to the same place. Stops at the first error and leaves what is
    there then; so copy into a workspace.

    Raises:
        MissingError: If there is no source.
        OverwriteError: If something is at the target.
        SpaceError: If the disk becomes full.
        StoreError: If anything cannot be read or written.

    """
    if not is_there(source):
        raise MissingError(f"nothing at {source}, so it cannot be copied")
    if os.path.lexists(target):
        raise OverwriteError(f"{target} exists; give another name, or remove it first")
    with says_refused(target):
        # shutil.copytree goes on after a full disk, to the last file, and loses the number of the error
        for folder, _, names in walk(source):
            inner = folder.relative_to(source)
            if not any(map(is_private_name, inner.parts)):
                _copy_names(folder, names, target / inner, source)


def link_tree(source: Path, target: Path) -> None:
    """Give a file, or all files of a folder, a second name, so that they take no room; where that cannot be, copy them.

    Links stay as they are: what is linked is to take the place of its source.

    Raises:
        SpaceError: If the disk becomes full.
        StoreError: If anything cannot be read or written.

    """
    with says_refused(target):
        if source.is_symlink() or not source.is_dir():
            _link_file(source, target)
            return
        for folder, _, names in walk(source):
            copy = target / folder.relative_to(source)
            copy.mkdir(parents=True, exist_ok=True)
            for name in names:
                _link_file(folder / name, copy / name)


def _link_file(file: Path, name: Path) -> None:
    if file.is_symlink():
        name.symlink_to(file.readlink())
        return
    try:
        name.hardlink_to(file)
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        shutil.copy2(file, name)


def _copy_names(folder: Path, names: list[str], copy: Path, source: Path) -> None:
    copy.mkdir(parents=True, exist_ok=True)
    for name in names:
        if (folder / name).is_symlink():
            _copy_link(folder / name, copy / name, source)
        elif not is_private_name(name):
            shutil.copy2(folder / name, copy / name)


def _copy_link(link: Path, copy: Path, source: Path) -> None:
    leads_to = link.readlink()
    destination = link.parent / leads_to
    stays = leads_to.is_absolute() or destination.resolve().is_relative_to(source.resolve())
    copy.symlink_to(leads_to if stays else destination.resolve())
