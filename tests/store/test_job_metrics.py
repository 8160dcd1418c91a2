"""The totals of jobs, of which each launch is read once, are the metrics of all job runs (rule 8.5)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from databuild_dagster.store import job_metrics
from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.errors import StoreUnusable
from databuild_dagster.store.job_metrics import JobMetrics, JobTotals, metrics_of_jobs
from tests.support import fixtures  # noqa: F401  (the profiles)
from tests.support.catalog import dataset
from tests.support.walk import Walk
from tests.support.world import World


def about(metrics: list[JobMetrics]) -> list[JobMetrics]:
    """With the median to a thousandth of a second, as the totals have it."""
    return [
        found
        if found.median_seconds is None
        else found._replace(median_seconds=pytest.approx(found.median_seconds, abs=0.001))
        for found in metrics
    ]


@pytest.mark.databases("sqlite")
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 1_000_000))
def test_the_totals_of_jobs_are_the_metrics_of_all_job_runs(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_metrics, "LAUNCHES_AT_ONCE", 3)
        world = World([dataset("a"), dataset("b", "a"), dataset("left", job="both"), dataset("right", job="both")])
        world.want("a", "b", "left", "right")
        walk, totals = Walk(world, seed), JobTotals(world.store)
        for _ in range(4):
            walk.take(15)

            found = totals.metrics()

            assert found == about(metrics_of_jobs(world.store))
        assert totals.metrics() == found
        world.close()


def test_a_launch_that_ends_later_is_counted_when_it_has_ended(world):
    totals = JobTotals(world.store)
    world.start("a")
    world.live("b")

    (before, _) = totals.metrics()
    world.clock.turn(10)
    world.succeed("a")
    (after, _) = totals.metrics()

    assert (before.counts, before.median_seconds) == ({"Running": 1}, None)
    assert (after.counts, after.median_seconds) == ({"Succeeded": 1}, 10.0)


class FailingReads:
    """A connection whose reads fail after some good ones, as those of a disk or a server that goes away."""

    def __init__(self, connection: Connection, n_good: int) -> None:
        self._connection = connection
        self._n_left = n_good

    def execute(self, sql: str, *parameters: Any) -> Any:
        if self._n_left == 0:
            raise sqlite3.OperationalError("disk I/O error")
        self._n_left -= 1
        return self._connection.execute(sql, *parameters)


def fails_after(totals: JobTotals, world: World, n_good: int) -> bool:
    """Ask while reads fail after some good ones; whether the question failed."""
    reading = world.store.reading

    @contextmanager
    def failing() -> Iterator[Any]:
        with reading() as connection:
            yield FailingReads(connection, n_good)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.store, "reading", failing)
        try:
            totals.metrics()
        except StoreUnusable:
            return True
    return False


@pytest.mark.databases("sqlite")
def test_launches_are_counted_once_after_reads_that_failed(world, monkeypatch):
    monkeypatch.setattr(job_metrics, "LAUNCHES_AT_ONCE", 1)
    n_failed = []
    for n_good in count():
        totals = JobTotals(world.store)
        world.start("a")
        totals.metrics()
        world.succeed("a")
        world.live("b")
        world.start("c")

        has_failed = fails_after(totals, world, n_good)

        assert totals.metrics() == about(metrics_of_jobs(world.store))
        world.succeed("c")
        assert totals.metrics() == about(metrics_of_jobs(world.store))
        world.taint("a", "b", "c")
        if not has_failed:
            break
        n_failed.append(n_good)
    assert len(n_failed) > 4


@pytest.mark.databases("sqlite")
def test_each_launch_costs_as_many_steps_of_the_database_as_any_other(world):
    few = steps_of_metrics(world, 20)

    many = steps_of_metrics(world, 80)

    assert many < 6 * few


def steps_of_metrics(world: World, n_launches: int) -> int:
    """SQLite's steps to read every launch for the first time, after further launches of one ref each."""
    for _ in range(n_launches):
        world.live("a")
        world.taint("a")
    n_steps = 0

    def step() -> None:
        nonlocal n_steps
        n_steps += 1

    with world.store.reading() as connection:
        connection.set_progress_handler(step, 1)
        try:
            first, last = 0, job_metrics._last_of_next(connection, 0)
            among = {"after": first, "last": last}
            job_metrics._launches(connection, "l.id > :after AND l.id <= :last", among, first, last)
        finally:
            connection.set_progress_handler(None, 0)
    return n_steps
