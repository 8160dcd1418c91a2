"""Dagster runs that wait for each other's refs, as threads over one store: neither Dagster nor Spark is needed for that (rules 8.2, 8.3)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from databuild_dagster.bindings.claims.claims import Asking, Hosting, claim
from databuild_dagster.bindings.claims.wait_for_builds import Waiting
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.commands import SucceedJobRuns
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.events import ManifestFact, OutputFact, RunSuccess
from databuild_dagster.model.states import InstanceState
from tests.support.catalog import dataset
from tests.support.fixtures import database, make_world, pytest_generate_tests, shared_url

__all__ = ["database", "make_world", "pytest_generate_tests", "shared_url"]

DATABASES = ("sqlite",)

#: Two runs that wait for each other would wait until then.
MAX_SECONDS = 240.0
RUNS = ("one", "other")
A, B = "numbers@a", "numbers@b"


class Run:
    """What a step does with the refs of its Dagster run: claim, build what it was given, only then wait."""

    def __init__(self, world: Any, name: str) -> None:
        # As in a process of its own.
        self.engine = Engine(world.store, world.catalog)
        spec: DatasetSpec = world.specs[0]
        self.datasets = {spec.asset: spec}
        self.asking = Asking(name, by_person=True)

    def claim(self, *refs: str) -> Hosting:
        return claim(self.engine, self.datasets, refs, asking=self.asking)

    def build(self, *given: Hosting) -> None:
        for job_run in (job_run for hosting in given for job_run in hosting.job_runs):
            outputs = tuple(OutputFact(ref=ref, manifest=ManifestFact(state="empty", uri="x")) for ref in job_run.refs)
            self.engine.handle(SucceedJobRuns(runs=(RunSuccess(job_run.id, outputs),)))

    def wait(self, *given: Hosting) -> None:
        join = {ref: job_run for hosting in given for ref, job_run in hosting.join.items()}
        with Waiting(
            self.engine,
            self.datasets,
            self.asking,
            join,
            since=self.engine.clock(),
            timeout_seconds=MAX_SECONDS,
            claim=lambda refs: self.claim(*refs),
            in_the_way_of=lambda refs, seconds: (),
        ) as others:
            while others.waiting:
                others.look()
                others.pause()


@pytest.fixture
def world(make_world: Any, shared_url: str) -> Any:
    return make_world(dataset("numbers", keys=["a", "b"]), url=shared_url)


@pytest.fixture
def at_once() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=len(RUNS)) as threads:
        yield threads


def built_once(world: Any) -> bool:
    histories = [world.queries.instances.history(ref) for ref in (A, B)]
    return [[instance.state for instance in history] for history in histories] == [[InstanceState.LIVE]] * 2


def ledger(world: Any, run: str) -> dict[str, str]:
    return {row.ref: f"{row.kind.value}, {row.outcome.value}" for row in world.engine.ledger.of_requester(run)}


def test_two_ranges_claimed_crosswise_one_after_another_end(world: Any, at_once: ThreadPoolExecutor) -> None:
    """One has A and asks for B, the other has B and asks for A: what each has it builds before it waits."""
    both = Barrier(len(RUNS), timeout=MAX_SECONDS)

    def go(name: str, first: str, second: str) -> None:
        run = Run(world, name)
        mine = run.claim(first)
        both.wait()
        others = run.claim(second)
        assert set(others.join) == {second}
        both.wait()
        run.build(mine, others)
        run.wait(mine, others)

    ends = [at_once.submit(go, *arguments) for arguments in (("one", A, B), ("other", B, A))]

    assert [end.result(MAX_SECONDS) for end in ends] == [None, None]
    assert built_once(world)
    assert ledger(world, "one") == {A: "built, live", B: "joined, live"}
    assert ledger(world, "other") == {A: "joined, live", B: "built, live"}
    assert world.check() == []


@pytest.mark.databases("sqlite", "postgres")
def test_two_ranges_claimed_at_once_in_opposite_orders_end(world: Any, at_once: ThreadPoolExecutor) -> None:
    """A claim is one transaction, in any order of the refs: the database never waits in a circle either (rule 8.4)."""
    both = Barrier(len(RUNS), timeout=MAX_SECONDS)

    def go(name: str, *refs: str) -> None:
        run = Run(world, name)
        both.wait()
        given = run.claim(*refs)
        run.build(given)
        run.wait(given)

    ends = [at_once.submit(go, *arguments) for arguments in (("one", A, B), ("other", B, A))]

    assert [end.result(MAX_SECONDS) for end in ends] == [None, None]
    assert built_once(world)
    assert {ref: outcome.partition(", ")[2] for run in RUNS for ref, outcome in ledger(world, run).items()} == {
        A: "live",
        B: "live",
    }
    assert world.check() == []
