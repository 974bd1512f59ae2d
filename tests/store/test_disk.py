import errno
from pathlib import Path

import pytest

from puncta.errors import MissingError, OverwriteError, SpaceError
from puncta.store import copy_tree, free_bytes, require_space, says_disk_full, tree_bytes
from puncta.store._atomic import private_name
from puncta.store._disk import in_units


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree" / "a" / "empty").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "ten").write_bytes(bytes(10))
    (tmp_path / "tree" / "five").write_bytes(bytes(5))
    return tmp_path / "tree"


def test_tree_bytes_counts_files_and_follows_no_link(tree: Path) -> None:
    (tree / "link").symlink_to(tree)
    assert (tree_bytes(tree), tree_bytes(tree / "five")) == (15, 5)


def test_space_is_asked_of_a_path_that_is_not_there_yet(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "no" / "such") > 0
    require_space(tmp_path / "no" / "such", 1, "the index")


def test_too_little_space_names_both_numbers_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match=r"the index needs 1000000\.0 TB at .* [kMGT]?B(ytes)? are free; .*-o .*--tmp"):
        require_space(tmp_path, 10**18, "the index")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        OSError("1000000 requested and 131072 written"),
        RuntimeError("parquet: underlying IO error: No space left on device (os error 28)"),
    ],
)
def test_every_way_to_report_a_full_disk_is_a_space_error(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(SpaceError, match="became full") as caught, says_disk_full(tmp_path):
        raise error
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), ValueError("no"), SpaceError("said")])
def test_other_errors_go_on_as_they_are(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)) as caught, says_disk_full(tmp_path):
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (999_960, "1.0 MB"), (1_234_567_890, "1.2 GB")],
)
def test_sizes_are_said_as_people_read_them(number: int, text: str) -> None:
    assert in_units(number) == text


def test_a_copied_tree_has_the_same_files_and_folders(tree: Path, tmp_path: Path) -> None:
    copy_tree(tree, tmp_path / "copy")
    assert (tmp_path / "copy" / "a" / "empty").is_dir()
    assert (tmp_path / "copy" / "a" / "ten").read_bytes() == bytes(10)
    assert tree_bytes(tmp_path / "copy") == 15


def test_links_are_copied_as_links_that_lead_to_the_same(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tree / "a" / "in").symlink_to("../five")
    (tree / "out").symlink_to("../outside")
    (tmp_path / "deeper").mkdir()
    copy = tmp_path / "deeper" / "copy"
    copy_tree(tree, copy)
    assert (copy / "a" / "in").readlink() == Path("../five")
    assert (copy / "out").readlink() == tmp_path / "outside"


def test_workspaces_are_not_copied(tree: Path, tmp_path: Path) -> None:
    (tree / private_name("tree") / "build").mkdir(parents=True)
    copy_tree(tree, tmp_path / "copy")
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["a", "five"]


def test_copying_onto_something_or_from_nothing_is_refused(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(OverwriteError):
        copy_tree(tree, tree / "a")
    with pytest.raises(MissingError):
        copy_tree(tmp_path / "none", tmp_path / "copy")
