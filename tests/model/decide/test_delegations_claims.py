"""Dagster runs that are no launches ask for refs: build, join, reuse or refused (rules 8.1, 8.2, 8.4)."""

from __future__ import annotations

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import InvalidRequest, UnknownAsset
from databuild_dagster.model.states import InstanceState, JobRunState, WantState

_I = InstanceState


def test_a_missing_ref_is_built_by_who_asks_first(world):
    """Rule 8.1"""
    claim = world.claim("a").claim

    job_run = world.canonical("a").job_run
    assert claim.build == {"a": job_run}
    assert world.queries.job_runs.get(job_run).state is JobRunState.RUNNING
    assert world.queries.job_runs.get(job_run).dagster_run_id == "run-by-hand"


def test_what_is_live_is_reused_and_a_skipped_job_run_says_so(world):
    """Rules 8.1, 8.2: historical delegation, and the seed's message in the record."""
    uuid = world.succeed("a")

    outcome = world.claim("a")

    assert outcome.claim.reuse == {"a": uuid}
    assert world.log()[-1] == "JobRunSkipped"
    assert world.queries.events.after()[-1].fact.message == "Job skipped - all target partitions already available"
    skipped = world.queries.job_runs.newest(most=1)[0]
    assert (skipped.state, skipped.refs, skipped.dagster_run_id) == (JobRunState.SKIPPED, ("a",), "run-by-hand")
    assert world.uuid("a") == uuid


def test_a_claim_sorts_every_ref_for_itself(world):
    """Rule 8.1: exactly one of the four."""
    live = world.succeed("a")
    building = world.job_run("b")
    world.fail("c")

    claim = world.claim("a", "b", "c", "d", by_person=False).claim

    assert claim.reuse == {"a": live}
    assert claim.join == {"b": building}
    assert list(claim.refused) == ["c"]
    assert list(claim.build) == ["d"]


def test_a_claim_leaves_wants_of_a_day_for_what_is_not_live(world):
    """Rule 8.1: so that what it could not build is followed up after it has ended."""
    world.live("a")
    world.start("b")

    world.claim("a", "b", "d", dagster_run_id="run-9")

    wants = {want.refs: want for want in world.queries.wants.named("run-9")}
    assert set(wants) == {("b",), ("d",)}
    for want in wants.values():
        assert (want.source, want.source_id, want.state) == ("dagster run", "run-9", WantState.BUILDING)
        assert want.expires_at == world.clock.now + 24 * 3600


def test_a_ref_that_nothing_can_build_cannot_be_claimed(world):
    """Rules 3.5, 5.7"""
    before = world.seq

    with pytest.raises(UnknownAsset):
        world.claim("a", "nowhere")
    with pytest.raises(InvalidRequest):
        world.handle(c.ClaimRefs(launch_id="l", job="a", location="here", dagster_run_id="r", holder="h", runs=()))

    assert world.seq == before
