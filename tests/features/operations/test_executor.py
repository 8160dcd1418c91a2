"""An executor whose workers are threads: its jobs run beside each other, and each is leased and fenced by itself (rules 9.4, 9.5)."""

from __future__ import annotations

import threading

import pytest

from databuild_dagster.features.operations.job import CannotExecute
from databuild_dagster.model.operations.states import OperationState
from databuild_dagster.warehouse.threads import DaemonThreads
from tests.support.catalog import dataset
from tests.support.operations import Operations, Sure, Write

from .test_manager_batches import Batched

DAYS = ("1", "2", "3", "4")
PATIENCE_SECONDS = 60.0


class Story:
    """An operation whose jobs do as `doing` says, and two threads for them."""

    def __init__(self, world, kind=Write):
        self.operations = Operations(world, kind, doing=lambda context: self.doing(context))
        self.threads = DaemonThreads[None](2, "test")
        self.id = self.operations.manager.start(kind.type_name, "days", None)
        self.executor = self.operations.executor("first")

    def doing(self, context):
        """Replaced by each story."""

    def run(self, most=10):
        while self.executor.step(self.id, most, self.threads) or self.executor.jobs:
            pass

    def end(self):
        """Another executor and the coordinator bring the operation to its end."""
        self.doing = lambda context: None
        self.operations.dead.add("first")
        self.operations.run_all(self.id, self.operations.executor("heir"))
        view = self.operations.manager.operation(self.id)
        assert self.operations.keys() == []
        return view


@pytest.fixture
def world(make_world, shared_url):
    world = make_world(dataset("days", keys=DAYS), url=shared_url)
    world.live(*(f"days@{day}" for day in DAYS))
    return world


@pytest.mark.parametrize("most", [2, 10])
def test_jobs_run_beside_each_other_as_many_as_there_are_threads(world, most):
    """Rule 9.4"""
    story, two = Story(world), threading.Barrier(2)
    story.doing = lambda context: two.wait(PATIENCE_SECONDS)

    story.run(most)

    assert sorted(story.operations.lake.runs) == sorted(DAYS)
    assert story.end().state is OperationState.SUCCESS


def test_a_batch_is_divided_among_the_threads(world):
    """Rule 9.4"""
    story, two = Story(world, Batched), threading.Barrier(2)
    (kind,) = story.operations.types
    story.doing = lambda context: two.wait(PATIENCE_SECONDS) if context.partition in ("1", "3") else None

    story.run()

    assert sorted(kind.calls) == [["1", "2"], ["3", "4"]]
    assert story.end().done == 4


def test_a_job_that_fails_ends_no_other(world):
    story, two = Story(world), threading.Barrier(2)

    def fail_one(context):
        two.wait(PATIENCE_SECONDS)
        if context.partition == "1":
            raise ValueError("bad")

    story.doing = fail_one
    story.run()

    view = story.end()
    assert (view.state, view.done, list(view.failed)) == (OperationState.FAILED, 3, ["1"])
    assert story.operations.lake.written["1"] == set()


def test_a_job_whose_lease_is_gone_is_dropped_and_the_others_are_marked(world):
    """Rule 9.5: dropped, cleaned up, and taken again under another token."""
    story, lost = Story(world), []

    def lose_one(context):
        if context.partition == "1" and not lost:
            lost.append(context.token)
            context._lost()

    story.doing = lose_one
    story.run(2)

    lake = story.operations.lake
    assert lake.cleaned[0] == ("1", lost[0])
    assert sorted(lake.runs) == ["1", *DAYS]
    assert story.end().state is OperationState.SUCCESS


def check_without_end(context):
    while True:
        context.check()


def save_without_end(context):
    while True:
        context.save_progress(b"half")


def fail_when_interrupted(context):
    """As Spark work that is canceled."""
    canceled = threading.Event()
    context.on_stop.append(canceled.set)
    canceled.wait(PATIENCE_SECONDS)
    raise ValueError("canceled")


@pytest.mark.parametrize(
    ("kind", "work"),
    [
        (Write, check_without_end),
        (Sure, save_without_end),
        (Write, fail_when_interrupted),
        (Batched, fail_when_interrupted),
    ],
)
def test_an_interrupted_executor_gives_back_all_jobs_that_ran(world, kind, work):
    """Rule 9.4: each is cleaned up and free for others at once, and none is marked."""
    story, both_run = Story(world, kind), threading.Barrier(2)
    running = set()

    def run(context):
        if threading.get_ident() not in running:
            running.add(threading.get_ident())
            both_run.wait(PATIENCE_SECONDS)
        work(context)

    story.doing = run
    story.executor.step(story.id, 2, story.threads)

    story.threads.close()
    story.executor.interrupt()
    story.threads.stop(lambda: "jobs", PATIENCE_SECONDS)
    story.executor.give_back()

    view = story.operations.manager.operation(story.id)
    assert (view.executors, view.done, view.failed) == ({}, 0, {})
    assert story.end().state is OperationState.SUCCESS


def test_a_job_that_does_not_end_keeps_its_lease_for_the_next_executor(world):
    """What it writes afterwards is under a token that the next executor cleans up."""
    story, goes_on = Story(world, Sure), threading.Event()
    story.doing = lambda context: goes_on.wait(PATIENCE_SECONDS) if context.partition == "1" else None
    story.executor.step(story.id, 2, story.threads)

    story.executor.give_back()

    assert list(story.operations.manager.operation(story.id).executors) == ["1"]
    goes_on.set()
    assert story.end().state is OperationState.SUCCESS


def test_a_call_that_says_that_nothing_can_run_here_ends_the_step(world):
    story = Story(world)

    def cannot(context):
        raise CannotExecute("no Spark")

    story.doing = cannot
    with pytest.raises(CannotExecute, match="no Spark"):
        story.executor.step(story.id, 2, story.threads)

    story.threads.stop(lambda: "jobs", PATIENCE_SECONDS)
    story.executor.give_back()
    assert story.operations.manager.operation(story.id).executors == {}
    assert story.end().state is OperationState.SUCCESS
