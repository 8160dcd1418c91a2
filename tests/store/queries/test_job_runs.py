"""Job runs name their instances, and instances the ones before them (rule 2.3)."""

from __future__ import annotations

import pytest

from databuild_dagster.model.errors import NotFound
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import JobRunState
from databuild_dagster.store.queries.job_runs import JobRunFilter
from tests.support.catalog import dataset
from tests.support.world import World


def test_each_job_run_of_a_launch_names_its_own_instances():
    world = World([dataset(name) for name in "abcd"])
    world.start("a", "b")
    world.start("c", "d", together=True)

    named = {job_run.refs: job_run.instances for job_run in world.queries.job_runs.newest()}

    assert named == {
        ("a",): (world.uuid("a"),),
        ("b",): (world.uuid("b"),),
        ("c", "d"): (world.uuid("c"), world.uuid("d")),
    }


def test_an_instance_names_the_one_created_before_it_in_any_state_of_both():
    world = World([dataset("a")])
    world.fail("a")
    world.taint("a", reason="to be tried again")
    world.live("a")
    world.taint("a", reason="wrong")
    world.start("a")

    history = world.queries.instances.history("a")

    assert [instance.previous_uuid for instance in history] == [None, history[0].uuid, history[1].uuid]


def test_a_skipped_job_run_has_no_instances():
    world = World([dataset("a")])
    world.live("a")
    world.claim("a", by_person=False)

    (skipped, _) = world.queries.job_runs.newest()

    assert (skipped.state, skipped.instances) == (JobRunState.SKIPPED, ())


def test_job_runs_are_found_by_state_job_ref_and_time():
    """Seed 001 asks for the runs of a job by their state; the time is the end, or the beginning of an open one (rule 8.5)."""
    world = World([dataset(name) for name in "ab"])
    world.fail("a")
    world.clock.turn(10.0)
    began = world.clock.now
    world.taint("a")
    world.live("a")
    world.start("b")

    def found(**which):
        return [(run.refs, run.state.value) for run in world.queries.job_runs.newest(JobRunFilter(**which))]

    failed, live, running = (("a",), "Failed"), (("a",), "Succeeded"), (("b",), "Running")
    assert found() == [running, live, failed]
    assert found(states=(JobRunState.FAILED, JobRunState.RUNNING)) == [running, failed]
    assert found(job="b") == [running]
    assert found(ref=Ref("a")) == [live, failed]
    assert found(ref=Ref("a"), since=began) == [live]
    assert found(since=began) == found(of_newest=2) == [running, live]
    assert found(of_newest=3) == found()
    with pytest.raises(NotFound, match="job with a job run"):
        world.queries.job_runs.check_job("c")
