"""`databuild read`: what readers see, or saw once (rules 3.2, 15)."""

import json

import pytest

from tests.support.project import Project

from .sources import of_pandas

DAY = "orders@2024-01-29"
ROWS = [{"day": "2024-01-29", "amount": 1.5}, {"day": "2024-01-29", "amount": 2.5}]


def refused(project: Project, *arguments: str) -> dict[str, str]:
    done = project.call("read", *arguments, "--json")
    assert done.code == 2, done
    error: dict[str, str] = done.json["error"]
    return error


def test_a_tainted_ref_is_read_as_of_before_the_taint_or_if_that_is_allowed(project: Project) -> None:
    project.build(DAY)
    then = project.queries.events.head()
    project.ask("taint", DAY, "--reason", "the till was broken")

    error = refused(project, DAY)
    assert error["type"] == "TaintedRef"
    assert "--allow-tainted" in error["hint"]
    assert project.ask("read", DAY, "--allow-tainted") == ROWS
    assert project.ask("read", DAY, "--as-of", str(then.seq)) == ROWS
    events = [json.loads(line) for line in project.call("log", "events").out.splitlines()]
    at = events[then.seq - 1]["at"]
    assert project.ask("read", DAY, "--as-of", at, "--limit", "1") == ROWS[:1]
    assert refused(project, DAY, "--as-of", "2024-01-29T00:00:00")["type"] == "InvalidAsOf"


def test_values_that_json_does_not_have_are_still_valid_json(project: Project) -> None:
    """Rules 15"""
    project.define(
        of_pandas("""
@databuild_asset
def odd() -> pd.DataFrame:
    inf, nan = float("inf"), float("nan")
    return pd.DataFrame({"n": [inf, nan], "list": [[1.0, -inf], [nan]], "bytes": [b"\\x00\\xff", b""]})

defs = build_definitions([odd])
""")
    )
    project.build("odd")

    answer = json.loads(project.call("read", "odd", "--json").out, parse_constant=pytest.fail)

    assert answer == [
        {"n": "Infinity", "list": [1.0, "-Infinity"], "bytes": "AP8="},
        {"n": None, "list": [None], "bytes": ""},
    ]
    assert project.call("read", "odd", "--limit", "0").out == "No row was asked for.\n"
