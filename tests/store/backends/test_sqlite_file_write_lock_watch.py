"""A writer that waits long for the lock says which process has it; rule 3.5."""

from __future__ import annotations

import fcntl
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from databuild_dagster.store.backends import sqlite_file
from databuild_dagster.store.store import open_store
from tests.support.log_lines import at_warnings

#: A server has locks of its own, and bounds for the waits.
DATABASES = ("sqlite",)

PATIENCE_SECONDS = 60.0
#: A process in the middle of a transaction.
IN_A_TRANSACTION = """
import sys
from databuild_dagster.store.store import open_store
database = open_store(sys.argv[1]).database
database.begin(database.connection())
print("begun", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def warnings() -> Iterator[queue.Queue[str]]:
    found: queue.Queue[str] = queue.Queue()
    with at_warnings(sqlite_file.__name__, found.put):
        yield found


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/build.db"
    open_store(url).close()
    return url


@contextmanager
def a_process_in_a_transaction(url: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", IN_A_TRANSACTION, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


@contextmanager
def a_writer_that_waits(url: str) -> Iterator[None]:
    """Begins and ends a transaction as soon as the lock is free."""

    def write() -> None:
        with closing(open_store(url)) as store:
            database = store.database
            database.begin(database.connection())
            database.end(database.connection())

    thread = threading.Thread(target=write)
    thread.start()
    yield
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive(), "the writer still waits"


@pytest.mark.long("a process holds the lock of writers")
def test_a_writer_that_waits_long_names_the_process_that_has_the_lock(store_url, warnings, monkeypatch):
    monkeypatch.setattr("databuild_dagster.store.backends.sqlite_file.SILENT_SECONDS", 0.0)

    with a_process_in_a_transaction(store_url) as holder, a_writer_that_waits(store_url):
        said = warnings.get(timeout=PATIENCE_SECONDS)
        holder.kill()

    path = store_url.removeprefix("sqlite:///")
    assert said.startswith(
        f"databuild: still waiting for the lock of writers, {path}.lock: process {holder.pid} ({sys.executable} -c "
    )
    assert said.endswith(") has it.")
    assert warnings.empty(), "once for each wait"


@pytest.mark.long("a process holds the lock of writers")
def test_a_suspended_process_that_has_the_lock_is_named_with_the_remedy(store_url, warnings, monkeypatch):
    monkeypatch.setattr("databuild_dagster.store.backends.sqlite_file.SILENT_SECONDS", 0.0)

    with a_process_in_a_transaction(store_url) as holder:
        holder.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED)
        with a_writer_that_waits(store_url):
            said = warnings.get(timeout=PATIENCE_SECONDS)
            holder.kill()

    advice = f"`kill -CONT {holder.pid}` lets it continue, and `kill -KILL {holder.pid}` ends it."
    assert said.endswith(f"has it, and is suspended; {advice}")


def test_a_thread_of_the_same_process_and_a_process_out_of_sight_are_distinguished(tmp_path):
    locked, free = tmp_path / "locked", tmp_path / "free"
    free.touch()

    with locked.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        assert sqlite_file.holder_in_words(str(locked)) == "another thread of this process has it"

    for path in (free, tmp_path / "absent"):
        assert sqlite_file.holder_in_words(str(path)) == "another process has it"
