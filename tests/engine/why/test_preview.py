"""The actions of a job graph, their reasons, the number of launches and the expected time (rule 8.6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databuild_dagster.engine.ports import DagsterRunStatus
from databuild_dagster.engine.why.preview import Action, annotate, expected_seconds
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.plan import plan
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.job_runs import LaunchSpan
from databuild_dagster.store.queries.wants import WantFilter
from tests.support.catalog import dataset
from tests.support.orchestrator import Orchestrator
from tests.support.ports import HandForeign
from tests.support.world import World

DAYS = ["1", "2", "3", "4", "5"]
BUILD, JOIN, REUSE, BLOCKED = Action


@pytest.fixture
def graph(make_world):
    """`report` needs all days of `daily`, each of which needs that day of `raw` and the unpartitioned `names`."""
    return make_world(
        dataset("raw", keys=DAYS),
        dataset("names"),
        dataset("daily", "raw", "names", keys=DAYS),
        dataset("report", ("daily", "all")),
    )


def annotated(world, *refs, foreign=None):
    registered = {spec.asset: spec for spec in world.queries.datasets.all().values()}
    return annotate(world.engine, plan(refs, registered, world.catalog), foreign)


def verdict(world, ref, *, of=None, foreign=None):
    return annotated(world, of or ref, foreign=foreign).verdicts[ref]


def actions(annotated_plan):
    return {ref: verdict.action for ref, verdict in annotated_plan.verdicts.items()}


# What, and why


@pytest.mark.parametrize(
    ("happens", "action", "reason"),
    [
        (lambda world: None, BUILD, "never built"),
        (lambda world: world.live("names"), REUSE, "live since 2023-11-14T22:13:20Z, instance {uuid}"),
        (lambda world: world.start("names"), JOIN, "being built by job run {job_run} since 2023-11-14T22:13:20Z"),
        (lambda world: world.buffer("names"), JOIN, "queued as job run {job_run} since 2023-11-14T22:13:20Z"),
    ],
    ids=["missing", "live", "being built", "queued"],
)
def test_a_plan_says_what_it_does_with_a_ref_and_why(graph, happens, action, reason):
    happens(graph)
    canonical = graph.canonical("names")

    assert verdict(graph, "names") == (action, reason.format(uuid=canonical.uuid, job_run=canonical.job_run))


def test_what_waits_for_its_inputs_is_joined_and_they_are_built(graph):
    graph.miss("daily@1", "raw@1", "names")

    answer = annotated(graph, "daily@1")

    assert actions(answer) == {"names": BUILD, "raw@1": BUILD, "daily@1": JOIN}
    job_run = graph.canonical("daily@1").job_run
    assert answer.verdicts["daily@1"].reason == f"waits for names, raw@1, as job run {job_run} found"
    assert [launch.refs for launch in answer.launches] == [("names",), ("raw@1",), ("daily@1",)]


def test_what_backs_off_is_built_later(graph):
    graph.fail("names", kind="transient", error="the server is gone")

    assert verdict(graph, "names") == (BUILD, "retry at 2023-11-14T22:13:25Z, after: the server is gone")
    graph.clock.turn(5)
    assert verdict(graph, "names") == (BUILD, "to be tried again, after: the server is gone")


def test_what_failed_of_an_input_is_blocked_by_that(graph):
    graph.miss("daily@2", "raw@2")
    graph.fail("raw@2")

    assert graph.state("daily@2") is InstanceState.UPSTREAM_FAILED
    assert verdict(graph, "daily@2").reason == f"raw@2 {verdict(graph, 'raw@2').reason}"


def test_a_source_blocks_what_needs_it_and_the_rest_is_built_meanwhile(make_world):
    """Rule 5.7: it waits, so what it needs beside the source is wanted."""
    world = make_world(dataset("feed", kind=DatasetKind.SOURCE), dataset("a"), dataset("b", "feed", "a"))

    answer = annotated(world, "b")

    assert actions(answer) == {"feed": BLOCKED, "a": BUILD, "b": BLOCKED}
    assert answer.verdicts["b"].reason == "waits for source feed, which no job builds"
    assert answer.verdicts["feed"].reason == "a source, which no job builds, never built: it waits until it appears"
    world.arrive("feed", "outside")
    assert actions(annotated(world, "b")) == {"feed": REUSE, "a": BUILD, "b": BUILD}


def test_dagster_is_asked_about_what_is_not_ours(make_world):
    """Rule 6.11: as the next tick does."""
    world = make_world(dataset("plain", kind=DatasetKind.PLAIN), dataset("out", "plain"))
    foreign = HandForeign()
    assert verdict(world, "plain", of="out", foreign=foreign) == (BUILD, "never built")

    foreign.materialize("plain", "dagster event 7")

    seq = world.seq
    assert verdict(world, "plain", of="out", foreign=foreign) == (REUSE, "live, as Dagster says: dagster event 7")
    assert verdict(world, "plain", of="out") == (BUILD, "never built")
    assert world.seq == seq
    world.arrive("plain", "dagster event 7")
    foreign.fail("plain", "Dagster run 8 failed to materialize it")
    assert verdict(world, "plain", of="out", foreign=foreign) == (BUILD, "Dagster run 8 failed to materialize it")


# How many launches


def run_to_the_end(world, *refs):
    """Want refs and build what the orchestrator launches; the number of launches."""
    here = Orchestrator(world)
    for ref in refs:
        world.want(ref)
    built = 0
    for _ in range(30):
        here.tick()
        launched = here.launcher.orders[built:]
        if not launched:
            return built
        for order in launched:
            here.start(order.launch_id)
            for run in world.queries.job_runs.of_launch(order.launch_id):
                world.succeed(*run.refs)
            here.launcher.set_status(order.launch_id, DagsterRunStatus.SUCCEEDED)
        built += len(launched)
    raise AssertionError("it goes on for ever")


@st.composite
def histories(draw):
    """Datasets that need earlier ones, in jobs of up to two outputs, what of them is live or tainted, and a request."""
    specs, refs = [], []
    for number in range(draw(st.integers(2, 6))):
        earlier = [f"d{item}" for item in range(number)]
        needs = draw(st.lists(st.sampled_from(earlier), max_size=3, unique=True)) if earlier else []
        keys = draw(st.sampled_from([(), ("1", "2", "3")]))
        whole = {spec.asset: spec.partitions is not None and (not keys or draw(st.booleans())) for spec in specs}
        specs.append(
            dataset(
                f"d{number}",
                *((need, "all" if whole[need] else "same") for need in needs),
                keys=keys,
                job=f"j{draw(st.integers(0, number))}" if not keys else None,
                most=draw(st.sampled_from([1, 2, 1000])) if keys else 1000,
            )
        )
        refs += [f"d{number}@{key}" for key in keys] or [f"d{number}"]
    there = draw(st.lists(st.sampled_from(refs), unique=True))
    tainted = draw(st.lists(st.sampled_from(there), unique=True)) if there else []
    return specs, there, tainted, draw(st.lists(st.sampled_from(refs), min_size=1, unique=True))


@given(histories())
def test_the_printed_plan_is_the_executed_one_in_any_state(history):
    """Rules 8.6, 11.2: exactly what is to be built is built, in exactly so many launches, and then all is live."""
    specs, there, tainted, refs = history
    world = World(specs)
    try:
        world.live(*there)
        if tainted:
            world.taint(*tainted)
        # What was built for its own sake is wanted still, and would be built again beside what the plan is about.
        for want in world.queries.wants.newest(WantFilter(open_only=True)):
            world.cancel_want(want.id)
        answer = annotated(world, *refs)

        n_launches = run_to_the_end(world, *refs)

        assert len(answer.launches) == n_launches
        to_build = {ref for ref, action in actions(answer).items() if action is BUILD}
        assert {ref for launch in answer.launches for ref in launch.refs} == to_build
        assert {
            ref for ref in actions(answer) if len(world.queries.instances.history(ref)) > (ref in there)
        } == to_build
        assert world.states(*refs) == [InstanceState.LIVE] * len(refs)
    finally:
        world.store.close()


# How long it takes


def test_a_job_without_a_history_has_no_expected_time(graph):
    answer = annotated(graph, "names")

    assert answer.expected_seconds is None
    assert answer.without_history == ("names",)


def test_the_expected_time_is_what_launches_took(graph):
    """The times of lost and failed job runs are not counted."""
    for key, seconds in [("1", 10), ("2", 30), ("3", 20)]:
        graph.start(f"raw@{key}")
        graph.clock.turn(seconds)
        graph.succeed(f"raw@{key}")
    graph.start("raw@4")
    graph.clock.turn(500)
    graph.fail("raw@4")

    answer = annotated(graph, "daily@5")

    assert [(launch.job, launch.expected_seconds) for launch in answer.launches] == [
        ("names", None),
        ("raw", 20),
        ("daily", None),
    ]
    assert answer.expected_seconds == 20
    assert answer.without_history == ("names", "daily")


@pytest.mark.parametrize(
    ("history", "n", "seconds"),
    [
        ([], 5, None),
        ([LaunchSpan(1, 3, 3)], 1, 3),
        ([LaunchSpan(1, 3, 3)], 4, 12),
        # One by one: so much to the first, so much for each further one.
        ([LaunchSpan(11, 5, 25)], 1, 5),
        ([LaunchSpan(11, 5, 25)], 21, 45),
        # Batched: all at once.
        ([LaunchSpan(31, 8, 8)], 365, 8),
        # Of launches with several partitions, the single ones say nothing.
        ([LaunchSpan(31, 8, 8), LaunchSpan(1, 4, 4), LaunchSpan(1, 4, 4)], 10, 8),
        ([LaunchSpan(31, 8, 8), LaunchSpan(1, 4, 4), LaunchSpan(1, 5, 5)], 1, 5),
    ],
)
def test_a_history_is_stretched_to_the_size_of_the_launch(history, n, seconds):
    assert expected_seconds(history, n) == seconds


def test_a_paused_ref_and_what_needs_it_are_blocked_by_the_pause(graph):
    """Rule 6.13: its inputs are not asked for; those of its siblings are."""
    graph.pause("daily@1", reason="Rome sends half")

    found = annotated(graph, "report")

    assert found.verdicts["daily@1"].action is BLOCKED
    assert found.verdicts["daily@1"].reason.startswith("never built; paused by tester since")
    assert found.verdicts["report"].reason.startswith("needs daily@1, which is paused by tester since")
    assert actions(found)["daily@2"] is BUILD
    assert actions(found)["raw@1"] is REUSE
    assert "daily@1" not in [ref for launch in found.launches for ref in launch.refs]
