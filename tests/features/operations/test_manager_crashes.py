"""kill -9 between any two statements of any step of an operation, then others go on: the same end (rules 9.3-9.7).

Each step is killed at its first statement, at its second, and so on until it survives; every time in an operation of its
own, which another process then finishes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest

from databuild_dagster.model.operations.states import OperationState
from tests.support.catalog import dataset
from tests.support.crashes import AT_STATEMENTS, MOST_STATEMENTS, fewest, killed_at
from tests.support.operations import DiskLake, Operations, Sure, Write, stale_marks
from tests.support.world import World

pytestmark = pytest.mark.long("a process is killed at each statement")

DAYS = ("1", "2", "10")


class Step(NamedTuple):
    """Something that a process does, and is killed while it does it."""

    act: Callable
    #: What has happened before; the operation is started by then, unless there is none.
    before: Callable | None = None
    type: str = "write"
    arg: dict = {}
    end: OperationState = OperationState.SUCCESS
    #: Operations that follow it.
    follow: tuple = ()


def start(operations, id):
    operations.manager.start("write", "days", {}, command_id=id)


def take(operations, id):
    operations.executor("victim").take(id, 2)


def run(most):
    return lambda operations, id: operations.executor("victim").step(id, most)


def coordinate(operations, id):
    operations.coordinator("victim").coordinate()


def cancel(operations, id):
    operations.manager.cancel(id)


def all_run(operations, id):
    executor = operations.executor("another")
    while executor.step(id, 10):
        pass


def begun(operations, id):
    """Another executor has all jobs, has written, and is dead."""
    dead = operations.executor("before")
    for job in dead.take(id, 10):
        dead.run(job)
    operations.dead.add("before")


def begun_and_canceled(operations, id):
    begun(operations, id)
    operations.manager.cancel(id)


def saves(context):
    """Of a resumable job."""
    if context.progress is None:
        context.save_progress(b"half")


def all_run_and_completed(operations, id):
    """The intent of the follow-up on another dataset is left."""
    all_run(operations, id)
    coordinator = operations.coordinator("before")
    coordinator.tracker.look()
    coordinator.complete(id)


FAILED, CANCELED = OperationState.FAILED, OperationState.CANCELED
SAME, OTHER = {"then": [("write", "days")]}, {"then": [("write", "weeks")]}
STEPS = {
    "start": Step(start),
    "take": Step(take),
    "run and mark": Step(run(2)),
    "run, save and mark": Step(run(2), type="sure"),
    "fail, clean and mark": Step(run(10), arg={"2": "raise"}, end=FAILED),
    "adopt": Step(run(10), begun),
    "adopt and resume": Step(run(10), begun, type="sure"),
    "complete": Step(coordinate, all_run),
    "complete a failure": Step(coordinate, all_run, arg={"2": "say"}, end=FAILED),
    "complete, and start on the same dataset": Step(coordinate, all_run, arg=SAME, follow=("days.write",)),
    "complete, and start on another dataset": Step(coordinate, all_run, arg=OTHER, follow=("weeks.write",)),
    "turn an intent into a start": Step(coordinate, all_run_and_completed, arg=OTHER, follow=("weeks.write",)),
    "cancel": Step(cancel, begun, end=CANCELED),
    "clean": Step(coordinate, begun_and_canceled, end=CANCELED),
}


@pytest.mark.parametrize("counter", AT_STATEMENTS)
@pytest.mark.parametrize("name", STEPS)
def test_a_process_killed_at_any_point_leaves_the_same_end(shared_url, tmp_path, name, counter):
    """Rule 9.6: losing any process at any line leaves a state from which the rest goes on."""
    step = STEPS[name]
    world = World([dataset("days", keys=DAYS), dataset("weeks")], url=shared_url)
    world.live(*(f"days@{day}" for day in DAYS), "weeks")

    for statement in range(1, MOST_STATEMENTS):
        folder = tmp_path / str(statement)
        folder.mkdir()
        operations = Operations(world, Write, Sure, doing=saves if step.type == "sure" else None, lake=DiskLake(folder))
        id = f"start {statement}" if name == "start" else operations.manager.start(step.type, "days", step.arg)
        if step.before is not None:
            step.before(operations, id)
        world.ids.following += 1000

        act = partial(lambda operations, id, _world: step.act(operations, id), operations, id)
        was_killed = killed_at(world, statement, act, counter)

        world.ids.following += 1000
        operations.dead |= {"victim", "before", "another"}
        go_on(operations, id, step, is_start=name == "start")
        if not was_killed:
            break
    else:
        raise AssertionError(f"not done after {MOST_STATEMENTS} statements")

    assert statement > fewest(counter)
    assert world.check() == []
    world.store.close()


def go_on(operations, id, step, *, is_start):
    """Others bring it to its end."""
    manager = operations.manager
    if is_start:
        id = manager.start("write", "days", {}, command_id=id)
        assert manager.running() == [id], "it was started once"
    heir, coordinator = operations.executor("heir"), operations.coordinator("heir")
    if step.end is CANCELED:
        manager.cancel(id)
    else:
        operations.run_all(id, heir)
    coordinator.coordinate()
    coordinator.coordinate()

    view = manager.operation(id)
    assert (view.state, set(view.failed)) == (step.end, set(step.arg) - {"then"})
    started = manager.running()
    assert [str(next_id).rpartition(".")[0] for next_id in started] == list(step.follow)
    assert [follow_up.operation for follow_up in view.follow_ups] == [str(next_id) for next_id in started]
    for next_id in started:
        manager.cancel(next_id)
    assert operations.keys() == []
    assert stale_marks(operations.world.queries.events.after(0, 1_000_000)) == []
    assert operations.world.broken() == []
    left = operations.lake.left()
    if step.end is OperationState.SUCCESS:
        # Of each job one attempt's work is there; a resumable one's all of them, which went on from each other.
        assert set(left) == set(DAYS)
        assert step.type == "sure" or all(len(tokens) == 1 for tokens in left.values())
    else:
        assert "2" not in left
    completed = [file.name for file in operations.lake.folder.glob("completed *")]
    assert completed == ([] if step.end is CANCELED else [f"completed {step.end is OperationState.SUCCESS}"])
