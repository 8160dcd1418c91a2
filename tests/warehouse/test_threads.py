"""Threads that make calls of a user's code, and the number of cores for them."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, wait
from pathlib import Path

import pytest

from databuild_dagster.warehouse import threads
from databuild_dagster.warehouse.threads import DaemonThreads, n_cores

PATIENCE_SECONDS = 60.0


def test_a_stop_waits_for_running_calls_and_begins_no_other() -> None:
    two = DaemonThreads[str](2, "test")
    both_run, stopping = threading.Barrier(3), threading.Event()

    def run_until_stopped() -> str:
        both_run.wait(PATIENCE_SECONDS)
        stopping.wait(PATIENCE_SECONDS)
        return "whole"

    running = [two.submit(run_until_stopped) for _ in range(2)]
    queued = two.submit(run_until_stopped)
    both_run.wait(PATIENCE_SECONDS)
    stopping.set()

    two.stop(lambda: "both", PATIENCE_SECONDS)

    assert [call.result(0) for call in running] == ["whole"] * 2
    assert queued.cancelled()


def test_a_stop_raises_nothing_in_a_call_that_has_taken_a_lock(caplog: pytest.LogCaptureFixture) -> None:
    """Spark's channel takes its lock so; an interrupt between the two lines left it taken for the rest of the process."""
    one = DaemonThreads[None](1, "test")
    lock, is_taken, goes_on = threading.Lock(), threading.Event(), threading.Event()

    def take() -> None:
        lock.acquire()
        is_taken.set()
        goes_on.wait(PATIENCE_SECONDS)
        lock.release()

    call = one.submit(take)
    is_taken.wait(PATIENCE_SECONDS)

    one.stop(lambda: "orders@mon", 0.05)

    assert not call.done(), "the stop is bounded"
    assert "Stopping orders@mon, for at most 0 s" in caplog.text
    goes_on.set()
    call.result(PATIENCE_SECONDS)
    assert lock.acquire(timeout=0)


def test_a_stop_while_a_result_is_delivered_keeps_the_result() -> None:
    """An interrupt in `set_result` ended the thread with InvalidStateError, and its waiters waited without end."""
    one = DaemonThreads[str](1, "test")
    begins, is_delivering, goes_on = threading.Event(), threading.Event(), threading.Event()
    delivered: list[str] = []
    threads: list[threading.Thread] = []

    def run() -> str:
        begins.wait(PATIENCE_SECONDS)
        return "whole"

    def deliver(call: Future[str]) -> None:
        threads.append(threading.current_thread())
        is_delivering.set()
        goes_on.wait(PATIENCE_SECONDS)
        delivered.append(call.result())

    call = one.submit(run)
    call.add_done_callback(deliver)
    begins.set()
    is_delivering.wait(PATIENCE_SECONDS)

    one.stop(lambda: "it", 0.05)
    goes_on.set()
    threads[0].join(PATIENCE_SECONDS)

    assert delivered == ["whole"]


def test_after_a_call_that_raises_none_begins() -> None:
    """Until its owner closes the threads, the next call took what the failure concerned: Spark that is gone."""
    one = DaemonThreads[None](1, "test")
    both_queued = threading.Event()

    def fail() -> None:
        both_queued.wait(PATIENCE_SECONDS)
        raise ValueError("no Spark")

    failing, queued = one.submit(fail), one.submit(lambda: None)
    both_queued.set()

    assert isinstance(failing.exception(PATIENCE_SECONDS), ValueError)
    assert not wait([queued], 0.05).done
    one.close()
    assert queued.cancelled()
    assert wait([queued], 0).done, "its waiters go on"


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
