import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from puncta.errors import MissingError, OverwriteError, SpaceError, StoreError, UnsupportedError
from puncta.store import Workspace, exchange, recover, write_file
from puncta.store._atomic import private_name
from puncta.store._disk import measure
from puncta.store._journal import Journal, write_journal

GROUP = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}})


def make_group(folder: Path, content: str = "") -> Path:
    folder.mkdir(parents=True)
    (folder / "zarr.json").write_text(GROUP)
    (folder / "data").write_text(content)
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def build_and_fail(store: Path, error: type[BaseException]) -> None:
    with Workspace(store) as workspace:
        make_group(workspace.path / "t")
        raise error


def publish_large(store: Path, target: Path, size: int) -> None:
    with Workspace(store) as workspace:
        built = make_group(workspace.path / "t")
        write_file(built / "data", bytes(size))
        workspace.publish_directory(built, target, replace=True)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_group(tmp_path / "study.zarr")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if mount is None or os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small disk is not permitted here")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_exchange_swaps_two_directories(tmp_path: Path) -> None:
    a, b = make_group(tmp_path / "a", "a"), make_group(tmp_path / "b", "b")
    if not exchange(a, b):
        pytest.skip("this file system cannot exchange")
    assert ((a / "data").read_text(), (b / "data").read_text()) == ("b", "a")


def test_exchange_with_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        exchange(make_group(tmp_path / "a"), tmp_path / "b")


@pytest.mark.parametrize("use_exchange", [True, False])
def test_a_replaced_element_is_the_new_one_and_nothing_is_left(store: Path, *, use_exchange: bool) -> None:
    target = make_group(store / "points" / "t", "old")
    with Workspace(store, use_exchange=use_exchange) as workspace:
        workspace.publish_directory(make_group(workspace.path / "t", "new"), target, replace=True)
    assert (target / "data").read_text() == "new"
    assert names_in(store.parent) == ["study.zarr"]


def test_missing_groups_appear_with_the_element(store: Path) -> None:
    with Workspace(store) as workspace:
        workspace.publish_directory(make_group(workspace.path / "t"), store / "points" / "t", replace=False)
    assert json.loads((store / "points" / "zarr.json").read_text()) == json.loads(GROUP)
    assert (store / "points" / "t" / "zarr.json").exists()


def test_a_whole_store_is_published_from_the_workspace_itself(tmp_path: Path) -> None:
    target = tmp_path / "new.zarr"
    with Workspace(target) as workspace:
        (workspace.path / "zarr.json").write_text(GROUP)
        workspace.publish_directory(workspace.path, target, replace=False)
    assert [path.name for path in target.iterdir()] == ["zarr.json"]
    assert names_in(tmp_path) == ["new.zarr"]


def test_several_elements_can_be_published_from_one_workspace(store: Path) -> None:
    with Workspace(store) as workspace:
        for name in ("a", "b"):
            workspace.publish_directory(make_group(workspace.path / name, name), store / name, replace=False)
    assert [(store / name / "data").read_text() for name in ("a", "b")] == ["a", "b"]


def test_nothing_is_overwritten_unasked(store: Path) -> None:
    target = make_group(store / "t", "old")
    with pytest.raises(OverwriteError, match="--overwrite"), Workspace(store) as workspace:
        workspace.publish_directory(make_group(workspace.path / "t", "new"), target, replace=False)
    assert (target / "data").read_text() == "old"


def test_a_folder_that_is_no_store_is_never_replaced(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis").write_text("years")
    with pytest.raises(OverwriteError, match="no Zarr store"), Workspace(home) as workspace:
        workspace.publish_directory(make_group(workspace.path / "t"), home, replace=True)
    assert (home / "thesis").read_text() == "years"


def test_a_store_of_format_2_is_not_changed_in_place(tmp_path: Path) -> None:
    store = tmp_path / "old.zarr"
    store.mkdir()
    (store / ".zgroup").write_text('{"zarr_format": 2}')
    with pytest.raises(UnsupportedError, match="-o NEW"), Workspace(store) as workspace:
        workspace.publish_directory(make_group(workspace.path / "t"), store / "points" / "t", replace=False)


def test_a_target_outside_of_the_store_is_refused(store: Path) -> None:
    with pytest.raises(StoreError, match="outside"), Workspace(store) as workspace:
        workspace.publish_directory(make_group(workspace.path / "t"), store.parent / "other.zarr", replace=False)


def test_a_store_behind_a_link_is_replaced_where_it_lies(store: Path, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere" / "link.zarr"
    link.parent.mkdir()
    link.symlink_to(store)
    with Workspace(link) as workspace:
        workspace.publish_directory(make_group(workspace.path / "t", "new"), link, replace=True)
    assert link.is_symlink()
    assert (store / "data").read_text() == "new"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_leaves_nothing_behind(store: Path, error: type[BaseException]) -> None:
    with pytest.raises(error):
        build_and_fail(store, error)
    assert names_in(store.parent) == ["study.zarr"]


def test_a_missing_parent_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="no folder"), Workspace(tmp_path / "no" / "new.zarr"):
        pass


def test_beside_a_closed_folder_the_workspace_is_inside_the_store(store: Path) -> None:
    script = (
        "import sys, pathlib, puncta.store as s; root = pathlib.Path(sys.argv[1]);"
        "w = s.Workspace(root).__enter__(); print(w.path.relative_to(root)); w.__exit__(None, None, None)"
    )
    command = [sys.executable, "-c", script, str(store)]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may write anywhere, and setpriv is not there to make it less")
        command = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override", *command]
    store.parent.chmod(0o555)
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    finally:
        store.parent.chmod(0o755)
    assert done.stdout.startswith(".study.zarr.puncta-")
    assert names_in(store) == ["data", "zarr.json"]


def test_a_full_disk_leaves_the_target_as_it_was(small_disk: Path) -> None:
    target = make_group(small_disk / "study.zarr" / "points" / "t", "old")
    store = small_disk / "study.zarr"
    (store / "zarr.json").write_text(GROUP)
    with pytest.raises(SpaceError, match="--tmp"):
        publish_large(store, target, 2_000_000)
    assert (target / "data").read_text() == "old"
    assert names_in(small_disk) == ["study.zarr"]


def test_a_store_on_a_disk_of_its_own_is_served_from_inside(small_disk: Path) -> None:
    (small_disk / "zarr.json").write_text(GROUP)
    with Workspace(small_disk) as workspace:
        assert workspace.path.is_relative_to(small_disk)
        workspace.publish_directory(make_group(workspace.path / "t"), small_disk / "points" / "t", replace=False)
    assert names_in(small_disk) == ["points", "zarr.json"]


def test_a_file_too_large_for_the_disk_leaves_the_old_one(small_disk: Path) -> None:
    path = small_disk / "zarr.json"
    path.write_text("old")
    with pytest.raises(SpaceError, match="full"):
        write_file(path, bytes(2_000_000))
    assert (names_in(small_disk), path.read_text()) == (["zarr.json"], "old")


def test_a_rewritten_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "zarr.json"
    path.write_text("old")
    path.chmod(0o664)
    write_file(path, b"new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o664)


def interrupt(store: Path, place: Path, *, new: str | None, old: str | None) -> Path:
    """Leave what a process killed between two renames leaves; a copy that is None is incomplete."""
    folder = store.parent / private_name(store.name)
    copies = {"build": new, "old": old}
    sizes = {}
    for name, content in copies.items():
        sizes[name] = measure(make_group(folder / name, content or "lost"))
        if content is None:
            (folder / name / "data").unlink()
    inner = place.relative_to(store).as_posix()
    journal = Journal(target=inner, built="build", old="old", built_size=sizes["build"], old_size=sizes["old"])
    write_journal(folder, journal)
    return folder


@pytest.mark.parametrize(("new", "expected"), [("new", "new"), (None, "old")])
def test_an_incomplete_new_one_gives_way_to_the_old(store: Path, new: str | None, expected: str) -> None:
    interrupt(store, store / "t", new=new, old="old")
    assert len(recover(store)) == 2
    assert (store / "t" / "data").read_text() == expected
    assert names_in(store.parent) == ["study.zarr"]


def test_a_missing_store_is_found_again_from_a_place_inside_it(tmp_path: Path) -> None:
    store = tmp_path / "study.zarr"
    interrupt(store, store, new="new", old="old")
    assert "finished" in recover(store / "points" / "t")[0]
    assert (store / "data").read_text() == "new"


def test_incomplete_copies_are_never_removed(store: Path) -> None:
    folder = interrupt(store, store / "t", new=None, old=None)
    with pytest.raises(StoreError, match="incomplete"):
        recover(store)
    assert (folder / "old").exists()


def test_a_journal_that_leads_out_of_the_store_is_refused(store: Path) -> None:
    folder = interrupt(store, store / "t", new="new", old="old")
    document = json.loads((folder / "journal.json").read_text())
    (folder / "journal.json").write_text(json.dumps(document | {"target": "../victim"}))
    with pytest.raises(StoreError, match="leads outside"):
        recover(store)


def test_a_link_with_the_name_of_a_workspace_is_not_followed(store: Path, tmp_path: Path) -> None:
    victim = make_group(tmp_path / "victim", "kept")
    (tmp_path / private_name(store.name)).symlink_to(victim)
    assert recover(store) == []
    assert (victim / "data").read_text() == "kept"
