"""Temporary folders of a process, and of processes that were killed."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from pathlib import Path

import pytest

from databuild_dagster.spark.temporary import folder_of_process


def folder_of(place: Path, name: str) -> Path:
    """As a process leaves it that is killed: no lock is held."""
    folder = place / name
    folder.mkdir(mode=0o700)
    (folder / "owner.lock").touch()
    return folder


def test_the_folder_of_a_killed_process_is_removed_and_one_of_a_living_process_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed, living = folder_of(tmp_path, "databuild-test-1"), folder_of(tmp_path, "databuild-test-2")
    without_owner, ended = tmp_path / "databuild-test-3", list[str]()
    without_owner.mkdir()

    with open(living / "owner.lock") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        mine = folder_of_process("databuild-test-", ended.append)

    assert ended == [str(killed)]
    assert {path.name for path in tmp_path.iterdir()} == {living.name, without_owner.name, os.path.basename(mine)}
    assert folder_of_process("databuild-test-", ended.append) == mine
    with open(Path(mine) / "owner.lock") as held, pytest.raises(BlockingIOError):
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_that_another_user_prepared_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record could name any process as the server to stop."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    theirs = folder_of(tmp_path, "databuild-other-1")
    os.chown(theirs, 65534, 65534)
    (tmp_path / "databuild-other-2").symlink_to(theirs)
    ended: list[str] = []

    folder_of_process("databuild-other-", ended.append)

    assert (ended, theirs.is_dir()) == ([], True)


def test_a_folder_goes_although_another_process_makes_a_file_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the process beside a server does, which looks at its lock until the folder is gone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = folder_of(tmp_path, "databuild-lock-1")

    def make_lock(event: str, _: object) -> None:
        if event == "os.rmdir" and killed.exists():
            (killed / "clients.lock").touch()

    sys.addaudithook(make_lock)
    mine = folder_of_process("databuild-lock-", lambda folder: None)

    assert [path.name for path in tmp_path.iterdir()] == [os.path.basename(mine)]
