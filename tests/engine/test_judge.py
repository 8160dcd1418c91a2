"""Launches that may be declared lost, and the judge that may do so (rule 6.9)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.holders import surely_gone
from databuild_dagster.engine.judge import (
    BREAK_SECONDS,
    HEARTBEAT_SECONDS,
    LEASE_SECONDS,
    MAX_REMEMBERED,
    OWNERSHIP_SECONDS,
    Judge,
    marks_of,
)
from databuild_dagster.engine.lookout import LOOK_SECONDS
from databuild_dagster.engine.ports import DagsterRunState, DagsterRunStatus
from databuild_dagster.store.queries.job_runs import LaunchView
from tests.support.catalog import dataset
from tests.support.clock import NOON, Clock
from tests.support.orchestrator import Orchestrator
from tests.support.world import World

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


def watched(seconds, heartbeat_at, *, judge=None, start=0.0, every=5.0):
    """The verdicts of a launch at looks every few seconds; `heartbeat_at` says its heartbeat by the judge's steady clock."""
    judge = judge or Judge(gone=lambda holder: False)
    verdicts = []
    for n in range(int(seconds / every) + 1):
        now = start + n * every
        judge.look(now)
        verdicts.append(judge.verdict(launch(), heartbeat_at(now), None, now))
    return verdicts


def test_the_heartbeat_fits_into_the_lease():
    """Rule 6.9"""
    assert (HEARTBEAT_SECONDS, LEASE_SECONDS, OWNERSHIP_SECONDS) == (10.0, 30.0, 60.0)


def test_a_launch_that_is_silent_for_longer_than_a_lease_is_lost():
    """Rule 6.9"""
    verdicts = watched(LEASE_SECONDS + 5, lambda now: START)

    assert verdicts[:-1] == [None] * 7
    assert "it has sent no heartbeat for 35 s" in verdicts[-1]


def test_a_start_counts_as_a_heartbeat():
    """Rule 6.9"""
    judge = awake_since_long(100.0)
    judge.verdict(launch(started_at=START), None, None, 100.0)
    for now in (110.0, 120.0, 130.0):
        judge.look(now)

    assert judge.verdict(launch(started_at=START + 1), None, None, 131.0) is None


@pytest.mark.parametrize("break_seconds", [BREAK_SECONDS + 1, 8 * 3600.0], ids=["stopped", "for hours"])
def test_a_judge_that_was_stopped_loses_nothing(break_seconds):
    """Rule 6.9: everybody may have been stopped with it, and the heartbeats of all look old."""
    judge = Judge(gone=lambda holder: False)
    before = watched(LEASE_SECONDS, lambda now: START, judge=judge)
    after = watched(LEASE_SECONDS + 5, lambda now: START, judge=judge, start=LEASE_SECONDS + break_seconds)

    assert set(before) == {None}
    assert set(after[:-1]) == {None}
    assert "it has sent no heartbeat" in after[-1]


def test_the_time_of_a_suspended_machine_does_not_count():
    """Rule 6.9: the steady clock stands still, so a laptop that wakes up has seen a silence of seconds."""
    clock = Clock()
    judge = Judge(gone=lambda holder: False)
    for asleep in (0, 0, 8 * 3600, 0, 0):
        clock.set(asleep)
        clock.turn(5)
        judge.look(clock.steady())
        assert judge.verdict(launch(), NOON, None, clock.steady()) is None


def noticed_after(interval, *, died_at, slow):
    """Seconds from a launch's last heartbeat to the tick that declares it lost, by ticks beside a lookout, in virtual time."""
    clock = Clock()
    judge = Judge(gone=lambda holder: False)
    last_beat = died_at - died_at % HEARTBEAT_SECONDS
    second = 0
    next_tick = 0.0
    while second <= died_at + 400:
        heartbeats = {"launch": NOON + min(second, died_at) // HEARTBEAT_SECONDS * HEARTBEAT_SECONDS}
        if second % LOOK_SECONDS == 0:
            judge.look(clock.steady(), heartbeats)
        if second >= next_tick:
            judge.look(clock.steady())
            if judge.verdict(launch(), heartbeats["launch"], None, clock.steady()):
                return second - last_beat
            next_tick = second + interval + slow
        clock.turn(1)
        second += 1
    return None


@pytest.mark.parametrize("slow", [0, 16], ids=["alone", "beside a slow sensor"])
@pytest.mark.parametrize("interval", range(1, 61))
def test_a_dead_host_is_noticed_a_lease_and_a_tick_after_its_last_beat(interval, slow):
    """Rule 6.9: however long the ticks are apart, the first one after a lease of silence finds it."""
    for died_at in range(100, 100 + interval + slow, 3):
        after = noticed_after(interval, died_at=died_at, slow=slow)

        assert LEASE_SECONDS < after <= LEASE_SECONDS + LOOK_SECONDS + interval + slow


CLOCKS = [-600.0, 0.0, 600.0]


@pytest.mark.parametrize("log", CLOCKS)
@pytest.mark.parametrize("orchestrator", CLOCKS)
@pytest.mark.parametrize("worker", CLOCKS)
def test_wrong_clocks_end_no_lease_and_keep_no_dead(worker, orchestrator, log):
    """Rule 6.9: a process that beats is never lost, and a dead one is within a lease and a look."""
    world = World([dataset("a")])
    world.clock.set(log)
    world.want("a")
    world.clock.set(orchestrator - log)
    here = Orchestrator(world)
    here.tick_for(60)
    (launch_id,) = [launch.launch_id for launch in world.queries.launches.open()]
    world.clock.set(worker - orchestrator)
    here.start(launch_id)

    def beat_and_tick(second, *, beats):
        world.clock.set(worker - orchestrator)
        if beats and second % HEARTBEAT_SECONDS == 0:
            world.engine.beat([launch_id])
        world.clock.set(orchestrator - worker)
        world.clock.turn(5)
        return launch_id in here.tick().lost

    world.clock.set(orchestrator - worker)
    assert not any(beat_and_tick(second, beats=True) for second in range(0, 300, 5))
    assert [beat_and_tick(second, beats=False) for second in range(0, 40, 5)].index(True) * 5 <= LEASE_SECONDS + 5


def test_a_heartbeat_that_changes_is_a_sign_whatever_it_says():
    """Rule 6.9: a clock that is set back writes earlier times."""
    assert set(watched(300, lambda now: START - now // 10 * 10)) == {None}


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
    """Rule 6.9: no heartbeat will ever lapse, and no process is known that could be gone. The judge's own observation counts."""
    judge = Judge(gone=lambda holder: False)
    starting = DagsterRunState("run", DagsterRunStatus.QUEUED, begin_within=60.0)
    verdicts = []
    for now in range(0, 70, 5):
        judge.look(float(now))
        verdicts.append(judge.verdict(launch(holder=None), None, starting, float(now)))

    assert set(verdicts[:-1]) == {None}
    assert "no process has begun" in verdicts[-1]


def test_a_worker_that_waits_for_its_turn_is_not_lost_until_it_is_gone():
    """Rule 6.9: a step may wait in one of Dagster's pools for hours, and does not beat meanwhile."""
    now = START + 100_000
    waiting = DagsterRunState("run", DagsterRunStatus.RUNNING, worker="its process", begin_within=0.0)

    assert awake_since_long(now).verdict(launch(holder=None), None, waiting, now) is None
    assert (
        awake_since_long(now, gone=lambda holder: holder == "its process").verdict(
            launch(holder=None), None, waiting, now
        )
        == "its process is gone"
    )


def test_a_judge_is_unsure_of_a_launch_until_it_has_seen_a_sign():
    """Rule 6.9: `admin tick --until-idle` waits for that."""
    judge = Judge(gone=lambda holder: False)
    judge.look(0.0)
    judge.verdict(launch(), START, None, 0.0)
    assert judge.is_unsure("launch", 0.0)

    judge.look(5.0, {"launch": START + 10})

    assert not judge.is_unsure("launch", 5.0)


def test_a_judge_is_unsure_of_a_run_that_was_marked_as_failed_too():
    """Rule 6.9: its process may have died, and monitoring marked it meanwhile."""
    judge = Judge(gone=lambda holder: False)
    one = launch(buffered_at=START - 5)
    judge.look(0.0)
    believed = judge.believed("launch", disowned(), marks_of(one, START), 0.0)
    judge.verdict(one, START, believed, 0.0)

    assert judge.is_unsure("launch", 0.0)


def test_a_look_of_another_thread_that_comes_late_is_no_break():
    """Rule 6.9"""
    judge = Judge(gone=lambda holder: False)
    judge.look(5.0)
    judge.verdict(launch(), START, None, 5.0)

    judge.look(4.9)

    assert judge.names() == ["launch"]


def disowned():
    return DagsterRunState("run", DagsterRunStatus.FAILED, holder="somewhere", is_disowned=True)


def test_a_run_that_is_marked_as_failed_beside_its_process_runs_while_that_beats():
    """Rule 6.9: no run launcher knows a run that a command executes itself."""
    judge = Judge(gone=lambda holder: False)
    believed = []
    for now in range(0, 40, 5):
        judge.look(float(now))
        believed.append(judge.believed("launch", disowned(), (START, START), float(now)).status)

    assert believed[0] is DagsterRunStatus.RUNNING
    assert believed[-1] is DagsterRunStatus.FAILED
    of_itself = disowned()._replace(is_disowned=False)
    assert judge.believed("another", of_itself, (START, START), 40.0) == of_itself


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
