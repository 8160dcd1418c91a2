"""Which refs an event touches: every type of event has an answer (rule 3.6)."""

from __future__ import annotations

import types
import typing
from typing import Any

import msgspec
import pytest

from databuild_dagster.engine.publishing import PUBLISHING
from databuild_dagster.model import events as e
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.touched import TOUCHING, MadeInstance, TouchedRefs, touched_refs


def example(kind: Any) -> Any:
    """A value of a type, with one entry in each tuple."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        required = [field.name for field in msgspec.structs.fields(kind) if field.required]
        return kind(**{name: example(hints[name]) for name in required})
    if typing.get_origin(kind) is tuple:
        return (example(typing.get_args(kind)[0]),)
    if isinstance(kind, types.UnionType):
        return example(typing.get_args(kind)[0])
    return "x" if kind in (str, Ref) else kind()


def event(fact: e.Fact) -> e.Event:
    return e.Event(7, 0.0, fact, "command", "actor")


@pytest.mark.parametrize("kind", e.EVENT_TYPES, ids=lambda kind: kind.__name__)
def test_every_type_of_event_touches_refs_or_is_known_to_touch_none(kind):
    """Rule 3.6: `TOUCHING` names those that do."""
    touched = touched_refs(event(example(kind)))

    assert (touched != TouchedRefs()) is (kind.__struct_config__.tag in TOUCHING)
    assert bool(touched.published) is (kind.__struct_config__.tag in PUBLISHING)


def test_a_type_of_event_without_an_answer_is_refused():
    class Later(e.Fact, frozen=True, tag="Later"):
        """A type that newer code has."""

    with pytest.raises(AssertionError, match="Expected code to be unreachable"):
        touched_refs(event(Later()))


def test_an_arrival_of_the_same_rows_touches_its_ref_and_publishes_nothing():
    """Rules 9.8, 10.3"""
    news = e.Arrival(job_run_id="1", ref="a", origin="file:///a")
    same = e.Arrival(job_run_id="2", ref="b", origin="file:///b", same_as="an instance")

    touched = touched_refs(event(e.LotArrived(arrivals=(news, same))))

    assert touched == TouchedRefs(frozenset("ab"), published=(MadeInstance("1", "a", None),))


def test_a_dep_miss_touches_its_outputs_and_the_refs_of_a_cycle():
    """Rule 6.3: the event fails the others of the cycle."""
    impact = e.ImpactFact(ref="a", missing=("b",), verdict="cycle", cycle=("a", "b"))

    touched = touched_refs(event(e.JobRunDepMissed(misses=(e.RunMissFact("1", (impact,)),), retry_at=0.0)))

    assert touched == TouchedRefs(frozenset("ab"), job_runs=("1",))
