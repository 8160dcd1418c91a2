"""Keys of no operation are found (rules 12, I9)."""

from __future__ import annotations

from databuild_dagster.model.meta_storage import Entry
from databuild_dagster.model.operations.keys import DatasetKeys, OperationId, next_instance_id
from databuild_dagster.model.operations.records import RUNNING, run_ops_value, strays

DATABASES = ()


def test_keys_of_no_operation_are_found():
    """Rules 12, I9"""
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
