"""One pass of the orchestrator: what is out is looked after, what is due is launched (rules 6.3, 6.9, 6.11, 11)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.judge import LEASE_SECONDS
from databuild_dagster.engine.ports import DagsterRunStatus
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.states import InstanceState, JobRunState, WantState
from tests.support.catalog import dataset
from tests.support.orchestrator import Orchestrator
from tests.support.ports import HandForeign, HandLauncher

_I = InstanceState
DAYS = ["1", "2", "3", "4", "5"]


@pytest.fixture
def graph(make_world):
    """`report` needs all days of `daily`, each of which needs that day of `raw` and the unpartitioned `names`."""
    return make_world(
        dataset("raw", keys=DAYS),
        dataset("names"),
        dataset("daily", "raw", "names", keys=DAYS),
        dataset("report", ("daily", "all")),
    )


# Planning


def test_the_orchestrator_records_declared_misses_itself_all_levels_down_in_one_tick(graph):
    """Rules 6.3, 11.1: no process is started for what cannot be built yet."""
    here = Orchestrator(graph)
    graph.want("report")

    report = here.tick()

    assert sorted(report.missed) == sorted(["report", *(f"daily@{day}" for day in DAYS)])
    assert sorted((order.job, order.partition_keys) for order in here.launcher.orders) == [
        ("names", (None,)),
        ("raw", tuple(DAYS)),
    ]
    assert graph.state("report") is graph.state("daily@1") is _I.UPSTREAM_BUILDING


def test_outputs_of_a_job_for_one_key_share_a_job_run_unless_one_misses_something(make_world):
    """Rule 6.2: the output whose inputs are missing is split off, the rest starts."""
    world = make_world(
        dataset("base"), dataset("left", "base", job="pair"), dataset("right", job="pair"), dataset("third", job="pair")
    )
    here = Orchestrator(world)
    world.want("left", "right", "third")

    here.tick()

    assert world.states("left", "right", "third") == [_I.UPSTREAM_BUILDING, _I.BUILDING, _I.BUILDING]
    pair = next(order for order in here.launcher.orders if order.job == "pair")
    assert sorted(pair.assets) == ["right", "third"]
    assert [sorted(run.refs) for run in world.queries.job_runs.of_launch(pair.launch_id)] == [["right", "third"]]


def test_the_urgent_key_of_a_large_job_goes_before_its_other_keys_and_before_other_jobs(make_world):
    """Rule 11.1: urgency is the ref's; that its job has other keys to build does not change it."""
    world = make_world(dataset("raw", keys=DAYS, most=1), dataset("names"))
    here = Orchestrator(world)
    for day in DAYS:
        world.want(f"raw@{day}")
    world.want("names", priority=5)
    world.want("raw@4", priority=9)

    here.tick(launches=2)

    assert [(order.job, order.partition_keys, order.priority) for order in here.launcher.orders] == [
        ("raw", ("4",), 9),
        ("names", (None,), 5),
    ]


def test_a_job_runs_only_as_many_launches_at_once_as_it_allows(make_world):
    """Rule 11.1: per asset concurrency."""
    world = make_world(dataset("raw", keys=DAYS, most=1, concurrency=2), dataset("names"))
    here = Orchestrator(world)
    for day in DAYS:
        world.want(f"raw@{day}")
    world.want("names")

    here.tick()
    assert sorted(order.job for order in here.launcher.orders) == ["names", "raw", "raw"]
    assert here.tick().idle
    here.start(next(order.launch_id for order in here.launcher.orders if order.job == "raw"))
    world.succeed("raw@1")

    assert len(here.tick().launched) == 1


@pytest.mark.parametrize(("concurrency", "launches", "n_launched"), [(None, 20, 5), (None, 3, 3), (3, 20, 3)])
def test_a_tick_also_launches_the_refs_behind_the_limit_of_one_look(make_world, concurrency, launches, n_launched):
    """Rule 11.1: each level looks at a bounded number of refs, and counts what the levels before it have launched."""
    world = make_world(dataset("raw", keys=DAYS, most=1, concurrency=concurrency))
    here = Orchestrator(world)
    for day in DAYS:
        world.want(f"raw@{day}")

    here.tick(due_refs=2, launches=launches)

    assert [order.partition_keys for order in here.launcher.orders] == [(day,) for day in DAYS[:n_launched]]


def test_an_idle_tick_records_nothing(graph):
    """Rule 11.3"""
    here = Orchestrator(graph)
    graph.want("report")
    here.tick()
    before = graph.seq

    reports = here.tick_for(25)

    assert reports.idle
    assert graph.seq == before


# Launches that are out


def test_a_launch_that_dagster_never_saw_is_ordered_again_with_the_same_id(graph):
    """Rule 11.1: a crash between the two, or a lost run request."""
    here = Orchestrator(graph, launcher=HandLauncher(swallows_orders=True))
    for day in ("2", "1"):
        graph.want(f"raw@{day}")
    here.tick()

    here.tick()

    first, second = here.launcher.orders
    assert second == first
    assert len(graph.queries.instances.history("raw@1")) == 1


def test_a_launch_that_was_canceled_in_part_is_ordered_again_for_the_rest(graph):
    """Rules 6.10, 11.1"""
    here = Orchestrator(graph, launcher=HandLauncher(swallows_orders=True))
    wants = {day: graph.want(f"raw@{day}") for day in DAYS}
    here.tick()
    graph.cancel_want(wants["1"])
    graph.cancel_want(wants["3"])

    here.tick()

    assert here.launcher.last.partition_keys == ("2", "4", "5")


def test_a_launch_that_falls_silent_is_lost_and_built_again(graph):
    """Rule 6.9: and Dagster gets the event."""
    here = Orchestrator(graph)
    graph.want("names")
    here.tick()
    launch_id = here.launcher.last.launch_id
    here.start(launch_id)
    graph.engine.beat([launch_id])

    assert here.tick_for(LEASE_SECONDS).idle
    reports = here.tick_for(10)

    assert list(reports.lost) == [launch_id]
    assert list(here.launcher.failed) == [f"run-of-{launch_id}"]
    assert len(reports.launched) == 1
    assert [run.state for run in graph.queries.job_runs.of_launch(launch_id)] == [JobRunState.LOST]


class SlowDisk:
    """The data of a lost job run takes longer than a lease to look at."""

    def __init__(self, clock):
        self.clock = clock

    def finished(self, job_runs):
        self.clock.turn(2 * LEASE_SECONDS)
        return []


def test_the_data_of_a_lost_launch_takes_no_time_of_the_next_one(graph):
    """Rule 6.9: the heartbeats were read before."""
    here = Orchestrator(graph, gone=lambda holder: holder == "dead", remains=SlowDisk(graph.clock))
    graph.want("names")
    (dead,) = here.tick().launched
    graph.want("raw@1")
    (alive,) = here.tick().launched
    here.start(alive)
    here.tick()
    graph.start_launch(dead, holder="dead")

    assert list(here.tick().lost) == [dead]


@pytest.mark.parametrize("started", [True, False])
def test_a_dagster_run_that_ended_without_reporting_loses_its_job_runs(graph, started):
    """Rule 6.9: Queued job runs included."""
    here = Orchestrator(graph)
    graph.want("names")
    here.tick()
    launch_id = here.launcher.last.launch_id
    if started:
        here.start(launch_id)
    here.launcher.set_status(launch_id, DagsterRunStatus.FAILED)

    report = here.tick()

    assert list(report.lost) == [launch_id]
    assert graph.queries.job_runs.of_launch(launch_id)[0].state is JobRunState.LOST
    assert len(report.launched) == 1


def test_the_log_of_a_canceled_run_names_what_is_built_again_and_what_prevents_it(graph):
    """Rule 6.10: run monitoring cancels a run whose process cannot report."""
    here = Orchestrator(graph)
    want = graph.want("names")
    here.tick()
    launch_id = here.launcher.last.launch_id
    here.start(launch_id)
    here.launcher.set_status(launch_id, DagsterRunStatus.CANCELED)

    here.tick()

    (message,) = here.launcher.failed.values()
    assert message.endswith(
        f". names is built again, because it is wanted; `databuild want cancel {want[-8:]}` prevents that."
    )


# Assets that are not ours (rule 6.11)


@pytest.fixture
def mixed(make_world):
    """`ours` needs `plain`, which needs `source`."""
    return make_world(
        dataset("source", kind=DatasetKind.SOURCE),
        dataset("plain", "source", kind=DatasetKind.PLAIN),
        dataset("ours", "plain"),
    )


def test_a_materialization_followed_by_a_failure_is_not_live(mixed):
    """Rule 6.11: the latest materialization must be newer than the latest failure."""
    here = Orchestrator(mixed)
    here.foreign.materialize("plain", "dagster event 1")
    mixed.want("plain")
    here.tick()
    assert mixed.state("plain") is _I.LIVE
    here.foreign.fail("plain", "its run 7 failed")
    mixed.want("ours")

    here.tick()

    (taint,) = mixed.queries.instances.taints_of(mixed.queries.instances.history("plain")[0].uuid)
    assert taint.reason == "its run 7 failed"
    assert mixed.states("ours", "plain", "source") == [_I.UPSTREAM_BUILDING, _I.UPSTREAM_BUILDING, None]


def plain_launch(mixed, here):
    """A launch of `plain` whose Dagster run runs."""
    here.foreign.materialize("source", "dagster event 1")
    mixed.want("ours")
    here.tick()
    assert here.launcher.last.kind is DatasetKind.PLAIN
    launch_id = here.launcher.last.launch_id
    here.launcher.set_status(launch_id, DagsterRunStatus.RUNNING)
    here.tick()
    assert mixed.queries.job_runs.of_launch(launch_id)[0].state is JobRunState.RUNNING
    return launch_id


@pytest.mark.parametrize("status", [DagsterRunStatus.SUCCEEDED, DagsterRunStatus.FAILED])
def test_a_plain_run_that_materialized_its_ref_has_built_it_however_it_ended(mixed, status):
    """Rule 6.11: live when the latest materialization is newer than the latest failure; a later step, or a check, failed."""
    here = Orchestrator(mixed)
    launch_id = plain_launch(mixed, here)

    here.foreign.materialize("plain", "dagster event 2")
    here.launcher.set_status(launch_id, status)
    here.tick()

    assert mixed.canonical("plain").origin == "dagster event 2"
    assert mixed.state("plain") is _I.LIVE
    assert here.launcher.last.job == "ours"


@pytest.mark.parametrize("status", [DagsterRunStatus.SUCCEEDED, DagsterRunStatus.FAILED])
def test_a_plain_run_that_materialized_nothing_fails_the_ref(mixed, status):
    """Rule 6.11"""
    here = Orchestrator(mixed)
    launch_id = plain_launch(mixed, here)

    if status is DagsterRunStatus.FAILED:
        here.foreign.fail("plain")
    here.launcher.set_status(launch_id, status)
    here.tick()

    assert mixed.states("plain", "ours") == [_I.FAILED, _I.UPSTREAM_FAILED]
    assert "without materializing plain" in mixed.canonical("plain").reason


def test_a_canceled_plain_run_is_not_retried(mixed):
    """Rules 6.10, 6.11: a user canceled it in Dagster; the standing rule wants it again for `ours`, or nothing would."""
    here = Orchestrator(mixed)
    want = mixed.want("plain", ttl=None)
    launch_id = plain_launch(mixed, here)

    here.launcher.set_status(launch_id, DagsterRunStatus.CANCELED)
    here.tick()

    assert mixed.want_state(want) is WantState.CANCELED
    assert mixed.queries.job_runs.of_launch(launch_id)[0].state is JobRunState.CANCELED


def test_a_deleted_plain_run_is_lost(mixed):
    """Rule 6.9: otherwise its ref would be leased for ever."""
    here = Orchestrator(mixed)
    launch_id = plain_launch(mixed, here)

    here.launcher.forget(launch_id)
    report = here.tick()

    assert list(report.lost) == [launch_id]
    assert mixed.queries.job_runs.of_launch(launch_id)[0].state is JobRunState.LOST


def test_a_tainted_plain_partition_is_not_live_again_by_its_old_materialization(mixed):
    """Rules 6.11, 7.1: it has to be materialized again, also when the first attempt to do so was canceled."""
    here = Orchestrator(mixed)
    here.foreign.materialize("source", "dagster event 1")
    here.foreign.materialize("plain", "dagster event 2")
    mixed.want("plain")
    here.tick()
    mixed.taint("plain", reason="wrong numbers")

    here.tick()
    launch_id = here.launcher.last.launch_id
    here.launcher.set_status(launch_id, DagsterRunStatus.RUNNING)
    here.tick()
    here.launcher.set_status(launch_id, DagsterRunStatus.CANCELED)
    here.tick()
    mixed.want("plain")
    here.tick()

    assert mixed.state("plain") is _I.BUILDING
    assert len(here.launcher.orders) == 2


def test_news_that_is_refused_holds_up_neither_other_news_nor_unrelated_work(make_world):
    """Rules 6.11, 11.1: Dagster still has the materialization of a dynamic key that was deleted since."""
    world = make_world(
        dataset("plain", keys=["1", "2", "3"], kind=DatasetKind.PLAIN),
        dataset("old", ("plain", "deleted")),
        dataset("ours", ("plain", "all")),
        dataset("unrelated"),
    )
    here = Orchestrator(world)
    for key in ("1", "deleted", "2", "3"):
        here.foreign.materialize(f"plain@{key}", f"dagster event {key}")
    for asset in ("old", "ours", "unrelated"):
        world.want(asset)

    report = here.tick()

    assert sorted(order.job for order in here.launcher.orders) == ["ours", "unrelated"]
    assert sorted(report.arrived) == ["plain@1", "plain@2", "plain@3"]
    assert world.state("plain@deleted") is None
    assert here.tick().idle


# What a tick leaves behind


def test_heartbeats_of_long_ago_are_forgotten_now_and_then(graph):
    """Rule 6.9: they are kept beside the log, and would grow for ever."""
    here, beats = Orchestrator(graph), graph.engine.heartbeats
    graph.engine.beat(["old"])
    graph.clock.turn(6 * 24 * 3600)
    graph.engine.beat(["young"])

    here.tick()
    assert beats.last(["old", "young"]).keys() == {"old", "young"}
    graph.clock.turn(24 * 3600 + 1)
    here.tick()
    assert beats.last(["old", "young"]).keys() == {"young"}

    beats.beat(["old"], 1.0)
    graph.clock.turn(60)
    here.tick()
    assert "old" in beats.last(["old"]), "not in every tick"


# Several orchestrators


def two(world, **ports):
    """Two orchestrators, which share these ports."""
    return [Orchestrator(world, name=name, **ports) for name in ("first", "second")]


def meddling(port, look):
    """While one orchestrator looks at Dagster by this method, the other gets its whole tick in."""
    port.meanwhile = []
    answer = getattr(port, look)

    def looking(*arguments):
        seen = answer(*arguments)
        while port.meanwhile:
            port.meanwhile.pop()()
        return seen

    setattr(port, look, looking)
    return port


@pytest.mark.parametrize(
    "status", [DagsterRunStatus.RUNNING, DagsterRunStatus.SUCCEEDED, DagsterRunStatus.FAILED, DagsterRunStatus.CANCELED]
)
def test_two_orchestrators_follow_the_same_plain_run_in_peace(mixed, status):
    """Rule 11.1: the second tick finds it done."""
    launcher, foreign = meddling(HandLauncher(), "dagster_runs"), HandForeign()
    first, second = two(mixed, launcher=launcher, foreign=foreign)
    foreign.materialize("source", "dagster event 1")
    mixed.want("plain", ttl=None)
    first.tick()
    launcher.set_status(launcher.last.launch_id, status)
    if status is DagsterRunStatus.SUCCEEDED:
        foreign.materialize("plain", "dagster event 2")

    launcher.meanwhile = [second.tick]
    first.tick()

    assert launcher.meanwhile == []
    assert len(mixed.queries.instances.history("plain")) == 1


def test_two_orchestrators_lose_the_same_launch_in_peace(graph):
    """Rules 6.9, 11.1"""
    launcher = meddling(HandLauncher(), "dagster_runs")
    first, second = two(graph, launcher=launcher)
    graph.want("names")
    first.tick()
    launcher.set_status(launcher.last.launch_id, DagsterRunStatus.FAILED)

    launcher.meanwhile = [second.tick]
    first.tick()

    assert [instance.state for instance in graph.queries.instances.history("names")] == [_I.UP_FOR_RETRY, _I.BUILDING]


@pytest.mark.parametrize("before", [None, "dagster event 1"])
def test_a_slow_observer_says_nothing_of_what_came_after_it_looked(mixed, before):
    """Rules 6.11, 11.1: a taint by mistake would never go, for Dagster has no further news of the partition."""
    foreign = meddling(HandForeign(), "observe")
    first, second = two(mixed, foreign=foreign)
    mixed.want("source", ttl=None)
    if before is not None:
        foreign.materialize("source", before)

    def a_newer_one_comes_and_another_is_faster():
        foreign.materialize("source", "dagster event 2")
        second.tick()

    foreign.meanwhile = [a_newer_one_comes_and_another_is_faster]
    first.tick()

    assert mixed.state("source") is _I.LIVE
    assert mixed.canonical("source").origin == "dagster event 2"
    assert len(mixed.queries.instances.history("source")) == 1


def test_a_lease_taken_between_the_look_and_the_record_of_an_arrival_is_respected(mixed):
    """Rules 4.4, 11.1: a person launched it by hand in that moment."""
    here = Orchestrator(mixed)
    here.foreign.materialize("plain", "dagster event 1")
    mixed.want("plain")

    def an_id_after_another_claim():
        """The arrival's id is made when all was looked at, and nothing is recorded yet."""
        mixed.engine.new_id = mixed.ids
        mixed.claim("plain")
        return mixed.ids()

    mixed.engine.new_id = an_id_after_another_claim
    here.tick()

    assert mixed.state("plain") is _I.BUILDING
