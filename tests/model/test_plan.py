"""The job graph of a request: complete, each job and key once, the same for any state of the store (rule 8.6)."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databuild_dagster.model import commands as c
from databuild_dagster.model import plan as planning
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.errors import (
    CyclicInputs,
    DuplicateRef,
    InvalidRef,
    InvalidRequest,
    PlanTooLarge,
    Refused,
    UnknownAsset,
    UnknownPartition,
)
from databuild_dagster.model.plan import MAX_PLANNED_REFS, plan
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.states import LEASED
from tests.support.catalog import SmallCatalog, dataset
from tests.support.model_world import ModelWorld

DATABASES = ("sqlite",)

DAYS = ["1", "2", "3"]
GRAPH = [
    dataset("raw", keys=DAYS),
    dataset("names"),
    dataset("daily", "raw", "names", keys=DAYS),
    dataset("report", ("daily", "all")),
]


def graph_of(specs, *refs):
    return plan(refs, {spec.asset: spec for spec in specs}, SmallCatalog(specs))


def after(graph):
    """Each job's first output to those of the jobs that it comes after."""
    return {job.produces[0]: [graph.jobs[place].produces[0] for place in job.after] for job in graph.jobs}


# What is in it


def test_inputs_are_followed_to_those_that_have_none():
    """Rule 8.6"""
    graph = graph_of(GRAPH, "report")

    assert after(graph) == {
        "names": [],
        "raw@1": [],
        "raw@2": [],
        "raw@3": [],
        "daily@1": ["names", "raw@1"],
        "daily@2": ["names", "raw@2"],
        "daily@3": ["names", "raw@3"],
        "report": ["daily@1", "daily@2", "daily@3"],
    }
    assert [(job.job, job.partition_key) for job in graph.jobs[-2:]] == [("daily", "3"), ("report", None)]


@pytest.mark.parametrize(
    ("mapping", "needed"),
    [
        ("same", ["days@2"]),
        ("all", ["days@1", "days@2", "days@3"]),
        ("3", ["days@3"]),
    ],
)
def test_a_mapping_says_which_keys_are_needed(mapping, needed):
    graph = graph_of([dataset("days", keys=DAYS), dataset("out", ("days", mapping), keys=DAYS)], "out@2")

    assert after(graph)["out@2"] == needed
    assert graph.inputs["out@2"] == tuple(needed)


def test_outputs_of_one_job_are_together_for_each_key_and_only_those_that_are_needed():
    """Rule 6.2: a job with several outputs is planned output by output."""
    specs = [
        dataset("left", keys=DAYS, job="three"),
        dataset("right", keys=DAYS, job="three"),
        dataset("other", keys=DAYS, job="three"),
        dataset("sum", "left", "right", keys=DAYS),
    ]

    graph = graph_of(specs, "sum@1", "left@2")

    assert [(job.job, job.partition_key, job.produces) for job in graph.jobs] == [
        ("three", "1", ("left@1", "right@1")),
        ("three", "2", ("left@2",)),
        ("sum", "1", ("sum@1",)),
    ]


def test_outputs_that_need_each_other_are_on_levels_of_their_own():
    """As the models of one plain job may."""
    specs = [
        dataset("a", job="models", kind=DatasetKind.PLAIN),
        dataset("b", "a", job="models", kind=DatasetKind.PLAIN),
        dataset("c", "a", job="models", kind=DatasetKind.PLAIN),
    ]

    graph = graph_of(specs, "b", "c")

    assert [(job.produces, job.after) for job in graph.jobs] == [(("a",), ()), (("b", "c"), (0,))]


def test_an_input_that_nothing_can_build_is_in_it_with_the_reason():
    """Rule 6.3: the request is not refused for it; the ref that needs it will fail."""
    specs = [dataset("days", keys=DAYS), dataset("out", ("days", "9"), "gone")]
    registered = {spec.asset: spec for spec in specs}

    graph = plan(["out"], registered, SmallCatalog([*specs, dataset("gone")]))

    assert after(graph) == {"days@9": [], "gone": [], "out": ["days@9", "gone"]}
    assert "'9' is not one of 1, 2, 3" in graph.unbuildable["days@9"]
    assert "No code location has registered an asset 'gone'" in graph.unbuildable["gone"]
    assert {job.job: job.location for job in graph.jobs}["gone"] is None


# What is refused


@pytest.mark.parametrize(
    ("refs", "error"),
    [
        (["nmaes"], UnknownAsset),
        (["daily@9"], UnknownPartition),
        (["daily"], UnknownPartition),
        (["names@1"], UnknownPartition),
        (["a//b"], InvalidRef),
        (["names", "names"], DuplicateRef),
        ([], InvalidRequest),
    ],
)
def test_what_cannot_be_wanted_cannot_be_planned_and_for_the_same_reason(refs, error):
    """Rule 5.7"""
    world = ModelWorld(GRAPH)
    with pytest.raises(Refused) as wanting:
        world.handle(c.CreateWants(wants=tuple((ref,) for ref in refs)))

    with pytest.raises(error) as planning:
        graph_of(GRAPH, *refs)

    assert str(planning.value) == str(wanting.value)
    world.close()


def test_inputs_that_lead_back_are_spelled_out():
    specs = [dataset("a", "b"), dataset("b", "c"), dataset("c", "a"), dataset("out", "a")]

    with pytest.raises(CyclicInputs, match="a → b → c → a"):
        graph_of(specs, "out")


def test_a_dataset_may_need_its_own_other_partitions_but_not_itself():
    assert len(graph_of_chain(Chain(100), "day@100").jobs) == 101

    with pytest.raises(CyclicInputs, match="self → self"):
        graph_of([dataset("self", "self")], "self")


# How large it may be


class Chain:
    """A catalog of `day@0` to `day@N`, each of which needs as many before it as it is wide."""

    def __init__(self, n: int, width: int = 1) -> None:
        self.n = n
        self.width = width

    def why_not(self, dataset, partition_key):
        return None if int(partition_key) <= self.n else "it is later"

    def inputs(self, dataset, partition_key):
        key = int(partition_key)
        return tuple(f"day@{number}" for number in range(max(key - self.width, 0), key))


def graph_of_chain(catalog, *refs, **bounds):
    return plan(refs, {"day": dataset("day", keys=["0"])}, catalog, **bounds)


def test_a_chain_that_is_longer_than_a_stack_is_planned():
    graph = graph_of_chain(Chain(5_000), "day@5000")

    assert len(graph.jobs) == 5_001
    assert [job.partition_key for job in graph.jobs[:2]] == ["0", "1"]


def test_more_refs_than_the_bound_are_refused():
    assert inspect.signature(plan).parameters["most_refs"].default == MAX_PLANNED_REFS

    with pytest.raises(PlanTooLarge, match="more than 1,000 refs") as refused:
        graph_of_chain(Chain(5_000), "day@5000", most_refs=1_000)

    assert "fewer partitions" in refused.value.advice


def test_more_inputs_than_the_bound_are_refused(monkeypatch):
    monkeypatch.setattr(planning, "MAX_PLANNED_INPUTS", 1_000)

    with pytest.raises(PlanTooLarge, match="more than 1,000 inputs"):
        graph_of_chain(Chain(100, width=100), "day@100")


# Purity

HAPPENINGS = ["want", "live", "fail", "lose", "miss", "taint", "arrive", "cancel"]


def happen(world: ModelWorld, what: str, ref: str) -> None:
    """Something happens to a ref, if it can in its state."""
    if what in ("live", "fail", "lose", "miss") and world.state(ref) not in LEASED:
        world.want(ref)
        if ref not in world.due():
            return
    try:
        match what:
            case "want":
                world.want(ref)
            case "live":
                world.succeed(ref)
            case "fail":
                world.fail(ref)
            case "lose":
                world.lose(ref)
            case "miss":
                world.miss(ref, *world.catalog.inputs(world.catalog.datasets[asset_of(ref)], ref.partition("@")[2]))
            case "taint":
                world.taint(ref)
            case "arrive":
                world.arrive(ref, "elsewhere")
            case "cancel":
                world.cancel_want(world.want(ref))
    except Refused:
        return


@given(
    st.lists(
        st.tuples(
            st.sampled_from(HAPPENINGS), st.sampled_from(["raw@1", "raw@2", "names", "daily@1", "daily@2", "report"])
        ),
        max_size=12,
    )
)
def test_the_same_request_gives_the_same_graph_for_any_content_of_the_store(happenings):
    """Rule 8.6"""
    world = ModelWorld(GRAPH)
    try:
        for what, ref in happenings:
            happen(world, what, ref)

        registered = {spec.asset: spec for spec in world.queries.datasets.all().values()}

        assert plan(["report"], registered, world.catalog) == graph_of(GRAPH, "report")
    finally:
        world.close()
