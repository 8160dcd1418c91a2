"""The values under the keys of operations (rule 9.2)."""

from __future__ import annotations

import pytest

from databuild_dagster.model.errors import NewerOperation
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.records import arg_of, run_ops_of, run_ops_value

DATABASES = ()


def test_run_ops_are_triples():
    ids = [OperationId("d", "validate", None, 1), OperationId("d", "index", "x", 2)]

    assert run_ops_value(ids) == b'[["validate",null,1],["index","x",2]]'
    assert run_ops_of("d", run_ops_value(ids)) == ids
    assert run_ops_of("d", None) == []


@pytest.mark.parametrize("value", [b'{"format":2,"what":"ever"}', b"[]", b"1"])
def test_a_record_of_newer_code_is_refused_and_not_guessed_at(value):
    with pytest.raises(NewerOperation, match="newer code"):
        arg_of(OperationId("d", "t", None, 1), value)
