"""A question reaches the refs that may change by it, and at most ten thousand (rule 8.10)."""

from __future__ import annotations

import pytest

from databuild_dagster.features.what_if.questions import if_missing
from databuild_dagster.features.what_if.reaching import Reached, Reaching
from databuild_dagster.model.errors import ReachesTooFar
from databuild_dagster.model.plan import MAX_REACHED
from databuild_dagster.store.excerpt import Surroundings
from tests.support.catalog import dataset

DAYS = ("1", "2", "3")


def reached(world, *refs: str, **options: bool) -> Reached:
    with world.store.reading() as connection:
        surroundings = Surroundings(connection, world.engine.now())
        return Reaching(world.queries.datasets.all().values(), world.catalog, surroundings).search(refs, **options)


def test_what_was_built_from_a_ref_is_reached_over_replaced_instances(make_world):
    world = make_world(dataset("a"), dataset("b", "a"), dataset("c", "b"))
    world.live("a")
    world.succeed("b", inputs=["a"])
    world.succeed("c", inputs=["b"])
    world.taint("b")
    world.succeed("b")

    found = reached(world, "a", built_from=True)

    assert set(found.refs) == {"a", "b", "c"}
    assert set(reached(world, "a").refs) == {"a"}


def test_an_input_that_a_function_asked_for_is_needed_again(make_world):
    world = make_world(dataset("asked"), dataset("report"))
    world.live("asked")
    world.succeed("report", inputs=["asked"])
    world.taint("asked")

    found = reached(world, "report")

    assert found.asked_for == {"report": ("asked",)}
    assert "asked" in found.refs


def test_a_mapping_that_raises_is_a_reason_and_no_error(make_world, monkeypatch):
    world = make_world(dataset("raw"), dataset("report", "raw"))
    monkeypatch.delitem(world.catalog.datasets, "raw")

    assert reached(world, "report").unknown == {"report": "KeyError: 'raw'"}


def test_a_question_that_reaches_too_far_is_refused_in_one_sentence(make_world):
    keys = [f"{number:05}" for number in range(MAX_REACHED + 1)]
    world = make_world(dataset("raw"), dataset("days", "raw", keys=keys))

    with pytest.raises(ReachesTooFar) as refused:
        if_missing(world.engine, ["raw"])

    sentence = "A change of raw reaches more than 10,000 partitions, and a simulation holds no more."
    assert refused.value.message == sentence
