"""A server that nothing uses ends by itself; the lock of its clients decides who uses it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from databuild_dagster.spark import idle, server
from databuild_dagster.store.processes import PROCESSES
from tests.support.cluster import wait_until

#: Says that it was asked to end, and does not end.
STAYS = "trap 'touch asked' TERM; touch started; while :; do sleep 0.1; done"
LONG_AGO = 1_000_000_000.0


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sh", "-c", STAYS], cwd=tmp_path)
    wait_until((tmp_path / "started").exists, "the process has set its trap")
    yield process
    process.kill()
    process.wait()


def record(folder: Path, process: subprocess.Popen[bytes], idle_seconds: float) -> None:
    """As if `process` were the server of a folder that was last used long ago."""
    began = PROCESSES.start_of(process.pid)
    assert began is not None
    found = server.ServerRecord(
        pid=process.pid,
        began=began,
        port=1,
        token="",
        fingerprint="abc",
        spark_version="4.3.0",
        started_at=LONG_AGO,
        idle_seconds=idle_seconds,
    )
    (folder / "server.json").write_bytes(msgspec.json.encode(found))
    (folder / "clients.lock").touch()


def watching(folder: Path) -> threading.Thread:
    thread = threading.Thread(target=idle.watch, args=(folder,), daemon=True)
    thread.start()
    return thread


def test_a_server_that_nothing_uses_ends_while_no_process_can_attach(tmp_path, process, monkeypatch):
    """A process that attaches now waits for the lock, and then finds no server."""
    monkeypatch.setattr(server, "STOP_SECONDS", 250.0)
    record(tmp_path, process, idle_seconds=0.1)

    thread = watching(tmp_path)
    wait_until((tmp_path / "asked").exists, "the server is asked to end")
    with open(tmp_path / "clients.lock") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    process.kill()
    thread.join(250)

    assert server.load(tmp_path) is None


def test_a_server_whose_client_works_for_long_goes_on_until_the_client_ends(tmp_path, process):
    record(tmp_path, process, idle_seconds=1.0)
    with open(tmp_path / "clients.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        thread = watching(tmp_path)
        for _ in range(3):
            os.utime(tmp_path / "clients.lock", (LONG_AGO, LONG_AGO))
            wait_until(lambda: server.seconds_without_use(tmp_path) < 1.0, "the client's use is noted")
        assert process.poll() is None

    wait_until((tmp_path / "asked").exists, "the unused server is asked to end")
    process.kill()
    process.wait()
    thread.join(250)
    assert not thread.is_alive()


def test_a_server_without_a_limit_is_watched_and_not_ended(tmp_path, process, monkeypatch):
    monkeypatch.setattr(idle, "POLL_SECONDS", 0.05)
    record(tmp_path, process, idle_seconds=0.0)

    thread = watching(tmp_path)
    wait_until(lambda: server.seconds_without_use(tmp_path) < 60.0, "the watch has begun")
    os.utime(tmp_path / "clients.lock", (LONG_AGO, LONG_AGO))
    began = time.monotonic()
    thread.join(0.5)

    assert time.monotonic() - began >= 0.5
    assert process.poll() is None
    process.kill()
    process.wait()
    thread.join(250)
    assert not thread.is_alive()


def test_a_server_whose_folder_was_removed_ends(tmp_path, process, monkeypatch):
    monkeypatch.setattr(idle, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(server, "STOP_SECONDS", 2.0)
    folder = tmp_path / "home"
    folder.mkdir()
    record(folder, process, idle_seconds=0.0)
    os.utime(folder / "clients.lock", (LONG_AGO, LONG_AGO))

    thread = watching(folder)
    wait_until(lambda: server.seconds_without_use(folder) < 60.0, "the watch has begun")
    # The watch takes a lock in the folder meanwhile, so only a move removes the whole folder at once.
    folder.rename(tmp_path / "removed")
    thread.join(250)

    assert process.wait(250) == -signal.SIGKILL
