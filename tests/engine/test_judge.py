"""Launches that may be declared lost, and the judge that may do so (rule 6.9)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.holders import surely_gone
from databuild_dagster.engine.judge import HEARTBEAT_SECONDS, LEASE_SECONDS, MAX_REMEMBERED, OWNERSHIP_SECONDS, Judge
from databuild_dagster.engine.ports import DagsterRunState, DagsterRunStatus
from databuild_dagster.store.queries.job_runs import LaunchView

DATABASES = ("sqlite",)

START = 1_000_000.0


def launch(*, holder="somewhere", started_at=START, buffered_at=START, owner="orchestrator"):
    return LaunchView(
        launch_id="launch",
        job="a",
        location="here",
        owner=owner,
        holder=holder,
        dagster_run_id="run" if holder else None,
        buffered_at=buffered_at,
        started_at=started_at if holder else None,
    )


def awake_since_long(now, gone=lambda holder: False):
    """A judge that looked every few seconds for more than a lease."""
    judge = Judge(gone=gone)
    for seconds in range(int(LEASE_SECONDS), -1, -5):
        judge.look(now - seconds)
    return judge


def test_the_heartbeat_fits_into_the_lease():
    """Rule 6.9"""
    assert (HEARTBEAT_SECONDS, LEASE_SECONDS, OWNERSHIP_SECONDS) == (10.0, 30.0, 60.0)


def test_a_launch_of_which_nothing_is_heard_for_a_lease_is_lost():
    """Rule 6.9"""
    now = START + 1000

    assert awake_since_long(now).verdict(launch(), now - LEASE_SECONDS, None, now) is None
    lost = awake_since_long(now).verdict(launch(), now - LEASE_SECONDS - 1, None, now)
    assert "it has sent no heartbeat for 31 s" in lost


def test_a_judge_that_looks_once_a_minute_finds_the_dead_too_only_later():
    """Rule 6.9: on another host nothing but silence tells of a death."""
    now = START + 1000

    def verdict(heartbeat):
        judge = Judge(gone=lambda holder: False)
        for look in (now - 120, now - 60, now):
            judge.look(look, interval_seconds=60)
        return judge.verdict(launch(), heartbeat, None, now)

    assert verdict(now - LEASE_SECONDS - 70) is None
    assert "it has sent no heartbeat for 106 s" in verdict(now - LEASE_SECONDS - 76)


def test_a_laptop_that_was_suspended_loses_nothing():
    """Rule 6.9: after waking up everybody's heartbeat looks old."""
    before = START + 1000
    judge = awake_since_long(before)
    after = before + 8 * 3600

    judge.look(after)
    assert judge.verdict(launch(), before, None, after) is None
    for seconds in range(5, int(LEASE_SECONDS), 5):
        judge.look(after + seconds)
        assert judge.verdict(launch(), before, None, after + seconds) is None
    judge.look(after + LEASE_SECONDS)

    assert judge.verdict(launch(), before, None, after + LEASE_SECONDS) is not None


def test_a_clock_that_goes_back_resets_the_judge():
    """Rule 6.9"""
    now = START + 1000
    judge = awake_since_long(now)
    judge.look(now - 60)

    assert not judge.undisturbed(now - 60)


def looking(judge, now, seconds, heartbeat_at):
    """Its verdicts, every five seconds, of a launch whose heartbeat then is what `heartbeat_at` says."""
    verdicts = []
    for second in range(0, int(seconds) + 1, 5):
        judge.look(now + second)
        verdicts.append(judge.verdict(launch(), heartbeat_at(now + second), None, now + second))
    return verdicts


@pytest.mark.parametrize("last_beat", [START + 3600.0, START + 40], ids=["ahead of the clock", "by the clock"])
def test_a_launch_that_died_while_the_clock_ran_ahead_is_lost_after_a_lease(last_beat):
    """Rule 6.9: it is not kept until the clock has come to what its last heartbeat said."""
    judge = Judge(gone=lambda holder: False)

    verdicts = looking(judge, START + 50, LEASE_SECONDS + 5, lambda now: last_beat)

    assert verdicts[0] is None
    assert "it has sent no heartbeat" in verdicts[-1]


def test_a_start_by_a_log_that_is_hours_ahead_does_not_keep_a_dead_launch():
    """Rules 3.1, 6.9"""
    judge = Judge(gone=lambda holder: False)
    now = START - 3600

    verdicts = looking(judge, now, LEASE_SECONDS + 5, lambda at: now)

    assert verdicts[0] is None
    assert "it has sent no heartbeat" in verdicts[-1]


def test_a_dead_holder_of_several_leases_is_gone_after_a_lease():
    """Rule 9.5: the other lease of a coordinator of two datasets is not a sign of life."""
    judge = Judge(gone=lambda holder: False)
    heartbeat, verdicts = START + 5, []

    for second in range(10, 60, 5):
        judge.look(START + second)
        for leased in (START, START + 3):
            verdicts.append(judge.why_gone("coordinator", "elsewhere", (leased, heartbeat), START + second))

    assert verdicts[0] is None
    assert all("it has sent no heartbeat" in str(verdict) for verdict in verdicts[-2:])


def test_a_judge_remembers_only_so_many():
    """A process may tick for months."""
    judge = Judge(gone=lambda holder: False)
    for second in range(3 * MAX_REMEMBERED):
        judge.look(START + second)
        judge.why_gone(f"launch {second}", "somewhere", (START + second, 0.0), START + second)

    assert len(judge._signs) <= MAX_REMEMBERED + 1


@pytest.mark.parametrize("status", [status for status in DagsterRunStatus if status.ended])
@pytest.mark.parametrize("holder", ["somewhere", None])
def test_a_launch_whose_dagster_run_has_ended_by_any_status_is_lost_at_once(status, holder):
    """Rule 6.9: Queued job runs included."""
    judge = Judge(gone=lambda name: False)
    judge.look(START)

    why = judge.verdict(launch(holder=holder), START, DagsterRunState("run", status), START)

    assert status.value in why


@pytest.mark.parametrize("status", [DagsterRunStatus.QUEUED, DagsterRunStatus.RUNNING])
def test_a_launch_whose_dagster_run_goes_on_is_not_lost(status):
    """Rule 6.9"""
    now = START + 1000
    judge = awake_since_long(now)

    assert judge.verdict(launch(), now, DagsterRunState("run", status), now) is None
    assert judge.verdict(launch(holder=None), None, DagsterRunState("run", status), now) is None


def test_a_launch_whose_process_is_gone_is_lost_without_waiting():
    """Rule 6.9"""
    judge = Judge(gone=lambda holder: holder == "somewhere")
    judge.look(START)

    assert judge.verdict(launch(), START, None, START) == "its process is gone"


def test_a_launch_that_died_before_our_start_is_lost_when_dagsters_patience_ends():
    """Rule 6.9: no heartbeat will ever lapse, and no process is known that could be gone."""
    now = START + 1000
    judge = awake_since_long(now)
    starting = DagsterRunState("run", DagsterRunStatus.QUEUED, begin_by=now)

    assert judge.verdict(launch(holder=None), None, starting, now) is None
    assert "no process has begun" in judge.verdict(launch(holder=None), None, starting, now + 1)


def test_a_new_judge_gives_a_launch_that_is_about_to_start_a_lease():
    """Rule 6.9: all may have been suspended together."""
    judge = Judge(gone=lambda holder: False)
    judge.look(START)
    starting = DagsterRunState("run", DagsterRunStatus.QUEUED, begin_by=START - 500)

    assert judge.verdict(launch(holder=None), None, starting, START) is None


def test_a_worker_that_waits_for_its_turn_is_not_lost_until_it_is_gone():
    """Rule 6.9: a step may wait in one of Dagster's pools for hours, and does not beat meanwhile."""
    now = START + 100_000
    waiting = DagsterRunState("run", DagsterRunStatus.RUNNING, worker="its process", begin_by=START)

    assert awake_since_long(now).verdict(launch(holder=None), None, waiting, now) is None
    assert (
        awake_since_long(now, gone=lambda holder: holder == "its process").verdict(
            launch(holder=None), None, waiting, now
        )
        == "its process is gone"
    )


def test_a_buffered_launch_is_its_orchestrators_for_a_minute_or_until_that_is_gone():
    """Rule 6.9"""
    judge = Judge(gone=lambda holder: holder == "a dead one")

    assert not judge.abandoned(launch(holder=None), START + OWNERSHIP_SECONDS)
    assert judge.abandoned(launch(holder=None), START + OWNERSHIP_SECONDS + 1)
    assert judge.abandoned(launch(holder=None, owner="a dead one"), START)


@pytest.mark.parametrize("name", ["", "somewhere", "dagster run 12", "host/boot/ns/1", "otherhost/boot/ns/999999/1"])
def test_nothing_is_sure_of_a_process_elsewhere(name):
    """Rule 6.9: there the lease decides."""
    assert not surely_gone(name)
