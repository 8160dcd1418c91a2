"""The tables' own rules: states come from the enumerations of the model, also in SQL."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from databuild_dagster.model.coordination import Answer, DelegationOutcome
from databuild_dagster.model.states import InstanceState, JobRunState, WantState
from databuild_dagster.store import schema

STORE = Path(schema.__file__).parent
STATES = {
    state.value for states in (InstanceState, WantState, JobRunState, Answer, DelegationOutcome) for state in states
}
LITERAL = re.compile(f"'({'|'.join(sorted(STATES))})'")


@pytest.mark.parametrize("path", sorted(STORE.rglob("*.py")), ids=lambda path: path.relative_to(STORE).as_posix())
def test_no_state_name_stands_as_a_literal_in_sql(path):
    texts = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]

    found = {node.lineno: LITERAL.findall(node.value) for node in texts if isinstance(node.value, str)}

    assert {line: names for line, names in found.items() if names} == {}
