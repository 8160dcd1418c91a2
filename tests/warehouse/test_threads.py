"""Threads that make calls of a user's code, and the number of cores for them."""

from __future__ import annotations

import os
import threading
from concurrent.futures import wait
from pathlib import Path

import pytest

from databuild_dagster.warehouse import threads
from databuild_dagster.warehouse.threads import DaemonThreads, n_cores

PATIENCE_SECONDS = 60.0


def test_an_interrupt_ends_running_calls_and_begins_no_other() -> None:
    two = DaemonThreads[None](2, "test")
    both_run = threading.Barrier(3)

    def run_until_interrupted() -> None:
        both_run.wait(PATIENCE_SECONDS)
        while True:
            threading.Event().wait(0.01)

    running = [two.submit(run_until_interrupted) for _ in range(2)]
    queued = two.submit(run_until_interrupted)
    both_run.wait(PATIENCE_SECONDS)

    two.interrupt(PATIENCE_SECONDS)

    assert [type(call.exception()) for call in running] == [KeyboardInterrupt] * 2
    assert queued.cancelled()


def test_an_interrupt_does_not_wait_without_end_for_a_call_outside_of_python() -> None:
    one = DaemonThreads[None](1, "test")
    reader, writer = os.pipe()
    is_reading = threading.Event()

    def read() -> None:
        is_reading.set()
        os.read(reader, 1)

    call = one.submit(read)
    is_reading.wait(PATIENCE_SECONDS)

    one.interrupt(0.05)

    assert not call.done()
    os.write(writer, b"x")
    wait([call], PATIENCE_SECONDS)
    assert isinstance(call.exception(), KeyboardInterrupt)
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("150000 100000", 2), ("50000 100000", 1), ("max 100000", 8), ("800000 100000", 8), (None, 8)],
)
def test_the_cores_are_those_that_the_process_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str | None, expected: int
) -> None:
    """Rule 9.4"""
    monkeypatch.setattr(threads, "CPU_LIMIT", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    if limit is not None:
        (tmp_path / "cpu.max").write_text(f"{limit}\n")

    assert n_cores() == expected
