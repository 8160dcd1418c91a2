"""An executor hands several jobs to one call of a batched type; each is still a job of its own (rules 9.4, 9.5)."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from databuild_dagster.features.operations.executor import Executor
from databuild_dagster.features.operations.job import CannotExecute
from databuild_dagster.model.operations.states import OperationState
from tests.support.catalog import dataset
from tests.support.operations import Operations, Write

DAYS = ("1", "2", "3", "4", "5")


class Batched(Write):
    """The argument names days that say that they failed, and days with which the whole call raises."""

    type_name = "batched"
    batched = True

    def __init__(self, lake, doing=None):
        super().__init__(lake, doing)
        self.calls: list[list[str]] = []

    def start_or_resume_jobs(self, arg, contexts):
        self.calls.append([context.partition for context in contexts])
        for context in contexts:
            self.lake.write(context.partition, context.token)
            if self.doing is not None:
                self.doing(context)
        said = arg or {}
        if any(said.get(context.partition) == "raise" for context in contexts):
            raise ValueError("one of these is bad")
        for context in contexts:
            if said.get(context.partition) == "say":
                context.mark_job_complete(False, {"rows": 3})


@pytest.fixture
def world(make_world):
    world = make_world(dataset("days", keys=DAYS))
    world.live(*(f"days@{day}" for day in DAYS))
    return world


@pytest.fixture
def operations(world):
    operations = Operations(world, Batched)
    yield operations
    assert operations.keys() == [], "every operation of these stories has ended, and left nothing"


def test_jobs_are_done_together_and_each_says_its_own_end(operations):
    (type_,) = operations.types
    id = operations.manager.start("batched", "days", {"4": "say"})

    operations.run_all(id, most=3)

    view = operations.manager.operation(id)
    assert [len(call) for call in type_.calls] == [3, 2]
    assert (view.state, view.done, view.failed) == (OperationState.FAILED, 4, {"4": {"rows": 3}})
    assert operations.lake.written["4"] == set(), "what failed is cleaned up"


def test_a_call_that_raises_is_halved_until_the_guilty_job_is_alone(operations):
    (type_,) = operations.types
    id = operations.manager.start("batched", "days", {"3": "raise"})

    operations.run_all(id)

    view = operations.manager.operation(id)
    assert type_.calls[-1] != type_.calls[0]
    assert ["3"] in type_.calls
    assert (view.state, view.done) == (OperationState.FAILED, 4)
    assert view.failed == {"3": {"error": "ValueError: one of these is bad"}}
    assert all(len(tokens) == 1 for day, tokens in operations.lake.written.items() if day != "3")


def test_one_whose_lease_is_lost_is_left_out_and_the_others_are_done(operations):
    executor = operations.executor()
    id = operations.manager.start("batched", "days", None)
    (type_,) = operations.types

    def lose_the_second(context):
        if context.partition == "2":
            context._lost()

    type_.doing = lose_the_second
    executor.step(id, 5)

    assert operations.manager.operation(id).done == 4
    assert operations.lake.written["2"] == set()
    type_.doing = None
    operations.run_all(id, executor)
    assert operations.manager.operation(id).state is OperationState.SUCCESS


def test_a_detail_that_is_no_json_is_the_failure_of_its_job_and_of_no_other(operations):
    (type_,) = operations.types

    def say_something_odd(context):
        if context.partition == "2":
            context.mark_job_complete(True, {"rows": object()})

    type_.doing = say_something_odd
    id = operations.manager.start("batched", "days", None)

    operations.run_all(id)

    view = operations.manager.operation(id)
    assert (view.done, list(view.failed)) == (4, ["2"])
    assert view.failed["2"]["error"].startswith("CannotKeep: a job's detail is {'rows': <object")


def test_what_is_around_a_call_may_say_that_nothing_can_run_here_and_nothing_is_lost(operations):
    """Its host gives the jobs back then."""

    @contextmanager
    def without_spark(contexts):
        raise CannotExecute("there is no Java")
        yield

    id = operations.manager.start("batched", "days", None)
    poor = Executor(operations.manager, holder="poor", around=without_spark)

    with pytest.raises(CannotExecute):
        poor.step(id, 5)
    poor.give_back()

    assert operations.coordinator().coordinate().waiting == {id: 5}
    operations.run_all(id)
    assert operations.manager.operation(id).state is OperationState.SUCCESS


def test_a_hook_of_the_host_that_raises_does_not_run_a_batch_again(world):
    """Rule 9.5: only what the jobs themselves raise befalls them."""
    operations = Operations(world, Batched)
    (type_,) = operations.types
    type_.can_fail = False
    id = operations.manager.start("batched", "days", {"4": "say"})

    def refuse(context, trouble):
        raise RuntimeError("the host's log is full")

    executor = Executor(operations.manager, on_retry=refuse)
    with pytest.raises(RuntimeError, match="log is full"):
        executor.run(*executor.take(id, 10))

    assert type_.calls == [list(DAYS)]
    operations.manager.cancel(id)
    executor.give_back()
