"""Chosen system calls of a fork fail, in the order of all its threads."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from .faulty_calls import Call, can_fail_calls, run_failing

pytestmark = pytest.mark.skipif(not can_fail_calls(), reason="the kernel passes no system calls on here")


def change_files(folder):
    """Writes from a thread too. Returns the number of calls that failed."""
    failed = []

    def attempt(call, *arguments):
        try:
            call(*arguments)
        except OSError as error:
            failed.append(error.errno)

    (folder / "made").mkdir()
    with open(folder / "made" / "file", "wb", buffering=0) as file, open(folder.parent / "beside", "wb", 0) as beside:
        beside.write(b"not counted")
        thread = threading.Thread(target=attempt, args=(os.write, file.fileno(), b"bytes"))
        thread.start()
        thread.join()
        attempt(os.fsync, file.fileno())
    os.chdir(folder)
    attempt(os.rename, "made/file", "made/renamed")
    return len(failed) * 10 + (failed == [errno.EIO])


def test_each_call_below_the_folder_is_known_by_its_place_name_and_path(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    seen: list[Call] = []

    ended = run_failing(lambda: change_files(folder), str(folder), lambda call: seen.append(call) or 0)

    assert (ended.code, ended.n_calls, ended.failed) == (0, 4, None)
    assert [(call.name, call.path) for call in seen] == [
        ("mkdir", "made"),
        ("write", "made/file"),
        ("fsync", "made/file"),
        ("rename", "made/renamed"),
    ]


@pytest.mark.parametrize("n", [2, 3, 4])
def test_the_call_that_is_chosen_fails_and_no_other(tmp_path, n):
    folder = tmp_path / "project"
    folder.mkdir()

    ended = run_failing(lambda: change_files(folder), str(folder), lambda call: errno.EIO if call.n == n else 0)

    assert (ended.code, ended.n_calls, ended.failed.n) == (11, 4, n)
    assert (folder / "made" / "renamed").exists() == (n != 4)


def test_a_fork_that_does_not_end_is_killed(tmp_path):
    ended = run_failing(lambda: threading.Event().wait(60) or 0, str(tmp_path), seconds=0)

    assert ended.code == -9
