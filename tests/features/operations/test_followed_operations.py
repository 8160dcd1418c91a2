"""Operations as one process follows them while others run and end them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from databuild_dagster.engine.wording import json_of, when
from databuild_dagster.features.operations import followed_operations
from databuild_dagster.features.operations.followed_operations import FollowedOperations
from databuild_dagster.features.operations.shapes import ShownReport
from tests.support.catalog import dataset
from tests.support.operations import Many, Operations, Sure, Write
from tests.support.world import World

DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    world = make_world(dataset("days", keys=DAYS), dataset("whole"))
    world.live(*(f"days@{day}" for day in DAYS), "whole")
    return world


@pytest.fixture
def operations(world: World) -> Operations:
    return Operations(world)


@pytest.fixture
def followed(world: World) -> FollowedOperations:
    return FollowedOperations(world.engine)


def test_a_running_operation_counts_its_jobs_by_state(followed: FollowedOperations, operations: Operations) -> None:
    id = operations.manager.start("write", "days", None)
    before = followed.operation(id, "", 0)

    operations.executor().step(id, 1)
    after = followed.operation(id, "", 0)

    assert [(found.state, found.done, found.free) for found in (before, after)] == [
        ("running", 0, 3),
        ("running", 1, 2),
    ]
    grid = after.grid
    assert grid is not None
    assert grid["counts"] == {"live": 1, "missing": 2}
    assert (after.started_by, after.seq) == ("databuild", None)


def test_an_executor_is_named_with_its_jobs(followed: FollowedOperations, world: World) -> None:
    seen = []
    operations = Operations(world, Write, doing=lambda context: seen.append(followed.operation(id, "", 0)))
    id = operations.manager.start("write", "days", None)

    operations.executor("host/boot/1/4711/9").step(id, 1)

    (executor,) = seen[0].executors
    assert (executor.process, executor.n_jobs) == ("process 4711 on host", 1)
    assert (seen[0].running, len(executor.partitions)) == (1, 1)


def test_a_retried_job_has_its_error_and_its_next_attempt(followed: FollowedOperations, world: World) -> None:
    operations = Operations(world, Sure)
    id = operations.manager.start("sure", "days", {DAYS[0]: "raise"})
    operations.executor().step(id, 3)

    found = followed.operation(id, "", 0)

    (retry,) = found.retries
    assert (retry.ref, retry.attempts, found.retrying) == (f"days@{DAYS[0]}", 1, 1)
    assert "bad 2024-01-01" in retry.error
    assert json_of(retry)["next_at"] == when(retry.next_at)
    assert found.done + found.failed + found.running + found.retrying + found.free == found.total


def test_an_ended_operation_has_its_failures_and_its_report(
    followed: FollowedOperations, operations: Operations
) -> None:
    id = operations.manager.start("write", "days", {DAYS[1]: "raise"})
    followed.operation(id, "", 0)

    operations.run_all(id)
    found = followed.operation(id, "", 0)

    assert (found.state, found.failed, found.grid) == ("failed", 1, None)
    assert [(job.ref, job.error) for job in found.failures] == [(f"days@{DAYS[1]}", "ValueError: bad 2024-01-02")]
    assert found.report == ShownReport(None, [], {"succeeded": 2})


def test_failed_jobs_of_a_running_operation_have_their_errors(
    followed: FollowedOperations, operations: Operations
) -> None:
    id = operations.manager.start("write", "days", {DAYS[0]: "raise"})

    operations.executor().step(id, 3)
    found = followed.operation(id, "", 0)

    assert (found.state, found.failed) == ("running", 1)
    assert [job.error for job in found.failures] == ["ValueError: bad 2024-01-01"]


def test_the_last_ended_operation_is_first_and_earlier_ones_follow_a_seq(
    followed: FollowedOperations, operations: Operations
) -> None:
    for dataset_name in ("whole", "days", "whole"):
        operations.run_all(operations.manager.start("write", dataset_name, None))

    first = followed.operations(None, None, 2)
    second = followed.operations(None, first.earlier, 2)

    assert [found.id for found in first.ended] == ["whole.write.2", "days.write.1"]
    assert [found.id for found in second.ended] == ["whole.write.1"]
    assert second.earlier is None
    assert [found.id for found in followed.operations("days", None, 9).ended] == ["days.write.1"]


def test_others_of_the_type_are_named_with_any_object(followed: FollowedOperations, operations: Operations) -> None:
    ids = [operations.manager.start("many", "days", {"about": about}) for about in "ab"]
    for id in ids:
        operations.run_all(id)

    found = followed.operation(ids[0], "", 0)

    assert [other.id for other in found.others] == [str(ids[1])]


def test_an_ended_operation_is_read_once(
    followed: FollowedOperations, operations: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations.run_all(operations.manager.start("write", "days", None))
    first = followed.operations(None, None, 5)

    monkeypatch.setattr(followed_operations, "_ended_shape", lambda *_: pytest.fail("it was read before"))

    assert followed.operations(None, None, 5) == first


def test_a_canceled_operation_has_its_reason(followed: FollowedOperations, world: World) -> None:
    operations = Operations(world, Many)
    id = operations.manager.start("many", "days", {"about": "x"})

    operations.manager.cancel(id, "not today")

    found = followed.operation(id, "", 0)
    assert (found.state, found.reason) == ("canceled", "not today")
