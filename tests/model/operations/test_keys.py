"""The keys of operations (rule 9.2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databuild_dagster.model.errors import NotFound
from databuild_dagster.model.operations.keys import DatasetKeys, OperationId, escape, next_instance_id, unescape

DATABASES = ()

_texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6) | st.sampled_from(
    [
        "1",
        "10",
        "%",
        "%2E",
        ".",
        "a.b",
        "state",
        "runOps",
        "nextInstanceId",
        "coordinator",
        "٣",
        "2013-01-01",
        "ü/x|y:z @",
    ]
)
_ids = st.builds(OperationId, _texts, _texts, st.none() | _texts, st.integers(1, 12))


def test_keys_are_where_the_specification_has_them():
    """Rule 9.2"""
    one = OperationId("flights", "validate", None, 3)
    many = OperationId("shop/sales", "build_index", "by.day", 12)

    assert (one.arg, one.state, one.partitions) == (
        "distOp.flights.validate.3.arg",
        "distOp.flights.validate.3.state",
        "distOp.flights.validate.3.partitions",
    )
    assert many.root == "distOp.shop/sales.build_index.by%2Eday.12"
    job = many.job("2013.01")
    assert job[:3] == tuple(f"{many.root}.2013%2E01.{name}" for name in ("executor", "state", "progress"))
    assert DatasetKeys.of("flights")[:2] == ("distOp.flights.runOps", "distOp.flights.coordinator")
    assert next_instance_id("flights", "validate") == "distOp.flights.validate.nextInstanceId"


@given(part=_texts | st.just(""))
def test_a_part_is_escaped_and_comes_back(part):
    assert "." not in escape(part)
    assert escape(part)
    assert unescape(escape(part)) == part


@given(id=_ids)
def test_an_id_is_a_text_and_comes_back(id):
    assert OperationId.parse(str(id)) == id


@given(first=_ids, second=_ids, partition=_texts)
def test_no_operations_keys_begin_as_anothers(first, second, partition):
    """Rule 9.2: instance 1 never matches 10, and an object that is a number is no instance."""
    if first == second:
        return
    for key in (second.arg, second.state, second.partitions, *second.job(partition)):
        assert not key.startswith(first.under)


@pytest.mark.parametrize(
    "text", ["", "a", "a.b", "a.b.x", "a.b.-1", "a.b.c.d.5", "a..3", "a.b.03", "a.b.٣", "a.%zz%.3", "a.%41.3"]
)
def test_what_is_no_id_is_not_found(text):
    with pytest.raises(NotFound):
        OperationId.parse(text)
