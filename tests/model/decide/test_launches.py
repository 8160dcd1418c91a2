"""Leases: who may build a ref, and who came too late (rules 2.2, 4.2-4.5, 6.1, 6.9)."""

from __future__ import annotations

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import AlreadyStarted, DuplicateRef, InstanceExists, InvalidRequest, NotFound
from databuild_dagster.model.events import BufferedRun
from databuild_dagster.model.refs import derive_partition_uuid
from databuild_dagster.model.states import InstanceState, JobRunState
from tests.support.catalog import HERE


def test_a_buffered_ref_has_an_instance_that_is_canonical_and_building_at_once(world):
    """Rule 4.2"""
    world.buffer("a")

    canonical = world.canonical("a")

    assert canonical.state is InstanceState.BUILDING
    assert canonical.uuid == derive_partition_uuid(canonical.job_run, "a")


@pytest.mark.parametrize("by_the_same_run", [True, False])
def test_a_launch_starts_once(world, by_the_same_run):
    """Rule 6.9: a second starter is refused, also when Dagster executes one run twice."""
    launch_id = world.buffer("a")
    starter = f"run-of-{launch_id}" if by_the_same_run else "another"
    world.start_launch(launch_id)
    before = world.seq

    with pytest.raises(AlreadyStarted, match="started already"):
        world.handle(c.StartLaunch(launch_id=launch_id, dagster_run_id=starter, holder="elsewhere"))

    assert world.seq == before
    assert world.queries.launches.get(launch_id).dagster_run_id == f"run-of-{launch_id}"


def test_what_was_canceled_before_the_start_is_not_started(world):
    """Rules 6.9, 6.10"""
    want = world.want("a")
    launch_id = world.buffer("a", "b")
    world.cancel_want(want)

    world.start_launch(launch_id)

    states = {run.refs: run.state for run in world.queries.job_runs.of_launch(launch_id)}
    assert states == {("a",): JobRunState.CANCELED, ("b",): JobRunState.RUNNING}


def test_an_unknown_launch_is_not_found(world):
    with pytest.raises(NotFound, match="no-such-launch"):
        world.handle(c.StartLaunch(launch_id="no-such-launch", dagster_run_id="run", holder="here"))
    with pytest.raises(NotFound, match="no-such-launch"):
        world.handle(c.LoseLaunches(launch_ids=("no-such-launch",), reason="gone"))


def launch(world, *runs, launch_id=None):
    return c.BufferLaunch(launch_id=launch_id or world.ids(), job="a", location=HERE, owner="me", runs=runs)


@pytest.mark.parametrize(
    ("case", "error"), [("no UUIDv7", InvalidRequest), ("used before", InstanceExists), ("used twice", InstanceExists)]
)
def test_a_job_run_id_that_cannot_be_one_is_refused(world, case, error):
    """Rule 2.2: an instance that exists is never overwritten."""
    used = world.job_run("a")
    world.fail("a")
    world.taint("a")
    world.want("a", "b")
    job_run_ids = {"no UUIDv7": ["job-run-1"], "used before": [used], "used twice": [world.ids()] * 2}
    runs = [BufferedRun(id, (ref,)) for id, ref in zip(job_run_ids[case], "ab", strict=False)]
    before = world.seq

    with pytest.raises(error):
        world.handle(launch(world, *runs))

    assert world.seq == before


@pytest.mark.parametrize("how", ["buffer", "claim"])
def test_a_launch_id_that_was_used_before_is_refused(world, how):
    """Rule 3.5: a launch is born once."""
    launch_id = world.buffer("a")
    world.want("b")
    runs = (BufferedRun(world.ids(), ("b",)),)
    before = world.seq

    with pytest.raises(InvalidRequest, match=launch_id):
        if how == "buffer":
            world.handle(launch(world, *runs, launch_id=launch_id))
        else:
            world.handle(
                c.ClaimRefs(launch_id=launch_id, job="b", location=HERE, dagster_run_id="r", holder="h", runs=runs)
            )

    assert world.seq == before


@pytest.mark.parametrize(
    ("refs", "error"),
    [([("a", "a")], DuplicateRef), ([("a",), ("a",)], DuplicateRef), ([], InvalidRequest), ([()], InvalidRequest)],
    ids=str,
)
def test_a_launch_without_a_ref_or_with_one_twice_is_refused(world, refs, error):
    """The seed: a job run cannot build the same partition multiple times."""
    world.want("a")
    before = world.seq

    with pytest.raises(error):
        world.handle(launch(world, *(BufferedRun(world.ids(), outputs) for outputs in refs)))

    assert world.seq == before
