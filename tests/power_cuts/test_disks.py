"""Which disks a power cut may leave: what was synced is there, the rest may be there, lost or torn."""

from __future__ import annotations

import random

import pytest

from .calls import Change
from .disks import SECTOR, Machine

NEW = Change("create", "new")
OLD = [Change("create", "file"), Change("write", "file", data=b"old"), Change("sync", "file")]


def disks_after(changes, folder, n=200):
    """What is on the disks: the bytes by path, each once."""
    machine = Machine()
    for change in changes:
        machine.make(change)
    found = []
    for number in range(n):
        disk = folder / str(number)
        disk.mkdir()
        machine.cut(random.Random(number), disk)
        files = {path.relative_to(disk).as_posix(): path.read_bytes() for path in disk.rglob("*") if path.is_file()}
        if files not in found:
            found.append(files)
    return found


def test_a_synced_file_is_on_each_disk_with_its_name(tmp_path):
    assert disks_after(OLD, tmp_path) == [{"file": b"old"}]


def test_a_file_that_was_not_synced_is_absent_empty_or_there(tmp_path):
    found = disks_after([NEW, Change("write", "new", data=b"some")], tmp_path)

    assert sorted(found, key=str) == [{"new": b""}, {"new": b"some"}, {}]


def test_a_rename_keeps_the_old_file_or_has_the_new_one_whole_if_that_was_synced(tmp_path):
    rename = Change("rename", "new", "file")
    content = Change("write", "new", data=b"next")

    safe = disks_after([*OLD, NEW, content, Change("sync", "new"), rename], tmp_path)

    assert sorted(safe, key=str) == [{"file": b"next"}, {"file": b"old", "new": b"next"}]


def test_a_rename_of_a_file_that_was_not_synced_may_leave_it_empty(tmp_path):
    found = disks_after([*OLD, NEW, Change("write", "new", data=b"next"), Change("rename", "new", "file")], tmp_path)

    assert {"file": b""} in found
    assert {"file": b"next"} in found


def test_names_are_lost_from_the_last_one_on(tmp_path):
    found = disks_after([Change("create", name) for name in "abc"], tmp_path)

    assert sorted(sorted(files) for files in found) == [[], ["a"], ["a", "b"], ["a", "b", "c"]]


def test_a_sync_of_a_folder_keeps_the_names_in_it(tmp_path):
    within = [Change("mkdir", "folder"), Change("create", "folder/file"), Change("sync", "folder"), NEW]

    assert sorted(disks_after(within, tmp_path), key=len) == [{"folder/file": b""}, {"folder/file": b"", "new": b""}]


def test_a_long_write_may_be_torn_between_two_sectors(tmp_path):
    blocks = b"a" * SECTOR + b"b" * SECTOR

    found = disks_after([*OLD, Change("write", "file", offset=SECTOR, data=blocks)], tmp_path)

    lengths = {len(files["file"]) for files in found}
    assert lengths == {3, 2 * SECTOR, 3 * SECTOR}


def test_of_two_writes_the_later_one_may_be_there_alone(tmp_path):
    found = disks_after([*OLD, Change("append", "file", data=b"1"), Change("append", "file", data=b"2")], tmp_path)

    assert sorted(files["file"] for files in found) == [b"old", b"old\x002", b"old1", b"old12"]


@pytest.mark.parametrize("change", [Change("unlink", "file"), Change("truncate", "file")])
def test_what_was_removed_may_be_back(tmp_path, change):
    found = disks_after([*OLD, change], tmp_path)

    assert {"file": b"old"} in found
    assert len(found) == 2
