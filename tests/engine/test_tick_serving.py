"""A tick that serves some refs launches these and what they need, and does all else as any tick (rule 8.9)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.judge import LEASE_SECONDS
from databuild_dagster.model.states import InstanceState
from tests.support.catalog import dataset
from tests.support.orchestrator import Orchestrator
from tests.support.ports import HandLauncher

_I = InstanceState
KEYS = [f"{n:03}" for n in range(300)]
MAX_TICKS = 20


@pytest.fixture
def graph(make_world):
    """`second` needs `first` of its key; `many` and `extra` need nothing."""
    return make_world(
        dataset("first", keys=KEYS), dataset("second", "first", keys=KEYS), dataset("many", keys=KEYS), dataset("extra")
    )


def launched(here):
    return [(order.job, order.partition_keys) for order in here.launcher.orders]


def build(world, here, *refs):
    """As `databuild build`: tick and execute what was launched, until all refs are live."""
    for _ in range(MAX_TICKS):
        n_before = len(here.launcher.orders)
        here.tick(serving=refs, launches=1)
        for order in here.launcher.orders[n_before:]:
            here.start(order.launch_id)
            for run in world.queries.job_runs.of_launch(order.launch_id):
                world.succeed(*run.refs)
        if set(world.states(*refs)) == {_I.LIVE}:
            return
    raise AssertionError(f"{world.states(*refs)} after {MAX_TICKS} ticks")


def test_a_served_ref_and_its_inputs_are_launched_while_300_other_wants_are_open(graph):
    """Rule 8.9, finding R9"""
    here = Orchestrator(graph)
    for key in KEYS:
        graph.want(f"many@{key}", priority=5)
    graph.want("second@001")

    build(graph, here, "second@001")

    assert launched(here) == [("first", ("001",)), ("second", ("001",))]
    assert len(graph.due()) == 300


def test_an_input_that_the_last_call_named_is_served_and_holds_no_ref_back_without_end(graph):
    """Rule 6.3: a due ref waits for a learned input that is due."""
    graph.miss("many@001", "extra")
    graph.live("extra", "many@001")
    graph.taint("extra", "many@001")
    here = Orchestrator(graph)

    build(graph, here, "many@001")

    assert launched(here) == [("extra", (None,)), ("many", ("001",))]


def test_a_job_run_also_builds_its_other_outputs_that_are_due(make_world):
    keys = ["1", "2"]
    world = make_world(*(dataset(name, keys=keys, job="pair") for name in ("left", "right", "rest")))
    here = Orchestrator(world)
    for ref in ("left@1", "right@1", "right@2"):
        world.want(ref)

    here.tick(serving=["left@1"])

    assert world.states("left@1", "right@1", "rest@1", "right@2") == [_I.BUILDING, _I.BUILDING, None, None]


@pytest.mark.parametrize(
    ("serving", "again", "lost"),
    [
        (["many@001", "many@002"], True, False),
        (["many@001"], False, True),
        (["extra"], False, False),
    ],
    ids=["as a whole", "in part", "not at all"],
)
def test_a_dead_builds_launch_is_taken_over_if_it_is_served(graph, serving, again, lost):
    """Rule 6.9"""
    first = Orchestrator(graph, name="first", launcher=HandLauncher(swallows_orders=True))
    second = Orchestrator(graph, name="second", gone=lambda holder: holder == "first")
    graph.want("many@001")
    graph.want("many@002")
    first.tick()
    launch_id = first.launcher.last.launch_id

    report = second.tick(serving=serving)

    assert (launch_id in report.launched, launch_id in report.lost) == (again, lost)
    assert launched(second) == ([("many", ("001", "002"))] if again else [("many", ("001",))] if lost else [])


def test_a_launch_of_others_that_falls_silent_is_lost_and_left_to_them(graph):
    """Rule 11.1: looking after launches is not limited to served refs."""
    here = Orchestrator(graph)
    graph.want("extra")
    here.tick()
    launch_id = here.launcher.last.launch_id
    here.start(launch_id)
    here.tick()

    for _ in range(9):
        graph.clock.turn(LEASE_SECONDS / 6)
        report = here.tick(serving=["many@001"])
        if report.lost:
            break

    assert list(report.lost) == [launch_id]
    assert graph.due() == ["extra"]


def test_the_lots_of_arcs_are_wanted_and_left_to_the_orchestrator(make_world):
    world = make_world(dataset("files", keys=["1"]), dataset("clean", "files", keys=["1"], subscribe=["files"]))
    here = Orchestrator(world)
    world.want("files@1")
    build(world, here, "files@1")

    report = here.tick(serving=["files@1"])

    assert report.fired == ["clean@1"]
    assert world.due() == ["clean@1"]


@pytest.mark.databases("sqlite")
def test_a_served_level_reads_no_index_of_all_due_refs(graph):
    """Rule 11.3: the due refs of others cost a build nothing."""
    graph.want("second@001")
    statements: list[str] = []
    with graph.store.reading() as connection:
        connection.set_trace_callback(statements.append)

    graph.queries.planning.due_among(["second@001"], graph.queries.datasets.all(), graph.clock.now, 10)
    graph.queries.planning.due_soon(["second@001"], graph.clock.now)
    connection.set_trace_callback(None)

    asked = [text for text in statements if "WITH RECURSIVE" in text]
    steps = [step for text in asked for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {text}")]
    assert len(asked) == 2
    assert not [step for step in steps if "refs_at_hand" in step]
