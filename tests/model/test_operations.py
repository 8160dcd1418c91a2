"""The keys of operations, and which may run beside which (SPEC 9.2, 9.4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databuild_dagster.model.errors import InvalidRequest, NotFound
from databuild_dagster.model.meta_storage import Draft, Entry
from databuild_dagster.model.operations import (
    FORMAT,
    RUNNING,
    ArgRecord,
    DatasetKeys,
    Ended,
    NewerOperation,
    OperationId,
    OperationState,
    TypeRule,
    arg_of,
    check_name,
    escape,
    finish,
    next_instance_id,
    run_ops_of,
    run_ops_value,
    strays,
    unescape,
    why_incompatible,
)

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
    """SPEC 9.2"""
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
    """SPEC 9.2: instance 1 never matches 10, and an object that is a number is no instance."""
    if first == second:
        return
    for key in (second.arg, second.state, second.partitions, *second.job(partition)):
        assert not key.startswith(first.under)


def test_the_end_of_an_operation_removes_its_own_keys_and_no_others():
    """SPEC 9.2, 9.6: instance 1 never matches 10."""
    first, tenth = (OperationId("d", "t", None, instance) for instance in (1, 10))
    run_ops = Entry(DatasetKeys.of("d").run_ops, run_ops_value([first, tenth]), 1)
    values = {key: RUNNING for id in (first, tenth) for key in (id.arg, id.state, *id.job("p"))} | {
        run_ops.key: run_ops.value
    }
    draft = Draft(lambda key: Entry(key, values[key], 1) if key in values else None, revision=2)
    ended = Ended(FORMAT, OperationState.SUCCESS, ArgRecord(FORMAT, 1, None, 0.0), 1, 1, {}, 1.0)

    answers = [draft.run(statement) for statement in finish(first, run_ops, ended, {})]

    left = {key for key in values if draft.look(key).value is not None}
    assert answers == [True]
    assert left == {run_ops.key, tenth.arg, tenth.state, *tenth.job("p")} | {first.job("p").unclean}


@pytest.mark.parametrize(
    "text", ["", "a", "a.b", "a.b.x", "a.b.-1", "a.b.c.d.5", "a..3", "a.b.03", "a.b.٣", "a.%zz%.3", "a.%41.3"]
)
def test_what_is_no_id_is_not_found(text):
    with pytest.raises(NotFound):
        OperationId.parse(text)


def test_run_ops_are_triples():
    ids = [OperationId("d", "validate", None, 1), OperationId("d", "index", "x", 2)]

    assert run_ops_value(ids) == b'[["validate",null,1],["index","x",2]]'
    assert run_ops_of("d", run_ops_value(ids)) == ids
    assert run_ops_of("d", None) == []


ONE, MANY, SHY = TypeRule("one", False), TypeRule("many", True), TypeRule("shy", True, frozenset({"one"}))
RULES = {rule.name: rule for rule in (ONE, MANY, SHY)}


@pytest.mark.parametrize(
    ("starting", "about", "running", "may"),
    [
        (ONE, None, None, True),
        (ONE, None, ("one", None), False),
        (MANY, "x", ("many", "x"), False),
        (MANY, "x", ("many", "y"), True),
        (MANY, None, ("many", None), True),
        (MANY, "x", ("one", None), True),
        (SHY, None, ("one", None), False),
        (ONE, None, ("shy", None), False),
        (ONE, None, ("gone", None), True),
    ],
)
def test_which_operations_may_run_beside_each_other(starting, about, running, may):
    """SPEC 9.3, 9.4"""
    there = [] if running is None else [OperationId("d", *running, 1)]

    assert (why_incompatible(starting, about, there, RULES) is None) is may


@pytest.mark.parametrize("value", [b'{"format":2,"what":"ever"}', b"[]", b"1"])
def test_a_record_of_newer_code_is_told_and_not_guessed_at(value):
    with pytest.raises(NewerOperation, match="newer code"):
        arg_of(OperationId("d", "t", None, 1), value)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb"])
def test_names_that_cannot_be(name):
    with pytest.raises(InvalidRequest):
        check_name("a type", name)


def test_keys_of_no_operation_are_found():
    """SPEC 12, I9"""
    id = OperationId("d", "t", None, 1)
    running = {DatasetKeys.of("d").run_ops: run_ops_value([id]), id.state: RUNNING, id.job("p").state: b"{}"}
    beside = {DatasetKeys.of("d").coordinator: b"", next_instance_id("d", "t"): b"2"}

    def wrong(values):
        return [key for key, _ in strays([Entry(key, value, 1) for key, value in sorted(values.items())])]

    assert wrong(running | beside) == []
    assert wrong(beside) == []
    assert wrong({**running, OperationId("d", "t", None, 10).job("p").state: b""}) == ["distOp.d.t.10.p.state"]
    assert wrong({key: value for key, value in running.items() if key != id.state}) == [id.root, id.job("p").state]
    assert wrong({id.state: RUNNING}) == [id.state]
    assert wrong({DatasetKeys.of("d").run_ops: b"{"}) == [DatasetKeys.of("d").run_ops]
