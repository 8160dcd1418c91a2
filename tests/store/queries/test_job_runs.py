"""Job runs name their instances, and instances the ones before them (rule 2.3)."""

from __future__ import annotations

from databuild_dagster.model.states import JobRunState
from tests.support.catalog import dataset
from tests.support.world import World


def test_each_job_run_of_a_launch_names_its_own_instances():
    world = World([dataset(name) for name in "abcd"])
    world.start("a", "b")
    world.start("c", "d", together=True)

    named = {job_run.refs: job_run.instances for job_run in world.queries.job_runs()}

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

    history = world.queries.history("a")

    assert [instance.previous_uuid for instance in history] == [None, history[0].uuid, history[1].uuid]


def test_a_skipped_job_run_has_no_instances():
    world = World([dataset("a")])
    world.live("a")
    world.claim("a", by_person=False)

    (skipped, _) = world.queries.job_runs()

    assert (skipped.state, skipped.instances) == (JobRunState.SKIPPED, ())
