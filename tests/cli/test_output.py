"""A table is at most 100 characters wide and loses no sentence; --wide shows all of it (rules 15)."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from databuild_dagster.cli.options import tabular
from databuild_dagster.cli.output import MAX_COLUMNS, MAX_WIDTH, Column, listing, table
from databuild_dagster.engine.holders import new_id
from databuild_dagster.model.records import headline
from databuild_dagster.model.wording import SHORT_ID
from tests.support.project import Project

from .sources import of_pandas

MANY_COMMANDS = pytest.mark.long("twenty commands run one after the other")
LONG = "a_source_of_orders_from_the_northern_warehouses_of_the_group_before_they_are_cleaned_for_reports"
DEFINITIONS = of_pandas(f"""
daily = dg.DailyPartitionsDefinition("2024-01-29", end_date="2024-03-01")
@databuild_asset(partitions_def=daily)
def {LONG}() -> pd.DataFrame:
    return pd.DataFrame({{"amount": [1.0], "a_comment_that_is_long": ["word " * 50]}})


@databuild_asset(partitions_def=daily)
def report({LONG}: pd.DataFrame) -> pd.DataFrame:
    raise ValueError("a reason that is long " * 20)


defs = build_definitions([{LONG}, report])
""")
REF = f"{LONG}@2024-01-29"
TABLES = (
    ["status"],
    ["want", "list"],
    ["want", "list", "--all"],
    # Without --list a line may name a range, and JSON has each ref of it.
    ["partitions", LONG, "--list"],
    ["history", REF],
    ["history", "report@2024-01-29"],
    ["read", REF],
    ["show", "--full", REF],
    ["history", "--job-runs"],
    ["history", "--requests"],
    ["metrics"],
    ["status", "--locations"],
    ["lot", "list"],
    ["lot", "list", LONG, "--list"],
    ["lot", "list", "--subscriptions"],
    ["log", "check", "--deep"],
    ["gc", "--keep", "0"],
    ["gc", "--leftovers"],
    ["operation", "list"],
    ["spark"],
)


def listed(records: list[dict[str, Any]], columns: tuple[Column, ...], *arguments: str) -> Result:
    @click.command()
    @tabular
    def show(as_json: bool) -> None:
        listing(records, columns, empty="", as_json=as_json)

    return CliRunner().invoke(show, list(arguments))


def printed(columns: list[str], rows: list[list[str]], *arguments: str, **settings: Any) -> Result:
    @click.command()
    @tabular
    def show(as_json: bool) -> None:
        table(columns, rows, empty="", **settings)

    return CliRunner().invoke(show, list(arguments))


@given(st.lists(st.lists(st.text("ab -@", max_size=200), min_size=1, max_size=MAX_COLUMNS + 3), min_size=1, max_size=4))
def test_no_line_of_a_table_is_wider_than_100_characters(rows: list[list[str]]) -> None:
    n_columns = len(rows[0])
    cells = [(row + [""] * n_columns)[:n_columns] for row in rows]

    text = printed([f"column {number}" for number in range(n_columns)], cells).output

    assert max(map(len, text.splitlines())) <= MAX_WIDTH


def test_a_long_sentence_is_folded_and_a_long_ref_keeps_both_its_ends() -> None:
    sentence = " ".join(f"word{number}" for number in range(40))

    text = printed(["ref", "id", "why"], [[REF, new_id(), sentence]]).output

    assert all(word in text for word in sentence.split())
    assert "a_source_" in text
    assert "01-29" in text


def test_an_id_is_shown_by_its_end_and_in_full_with_wide() -> None:
    id = new_id()

    assert id[-SHORT_ID:] in printed(["id", "ref", "state"], [[id, REF, "Live"]]).output.split()
    assert id in printed(["id", "ref", "state"], [[id, REF, "Live"]], "--wide").output.split()


def test_ids_with_a_common_end_are_shown_as_long_as_they_need_to_differ() -> None:
    ids = [f"0193a5b2-7c00-7abc-8def-{n:04x}00000abc" for n in (1, 2)]
    others = [f"0193a5b2-7c00-7abc-{n:04x}-000100000abc" for n in (1, 2)]

    assert [id[-12:] for id in ids] == printed(["id"], [[id] for id in ids]).output.split()[1:]
    assert others == printed(["id"], [[id] for id in others]).output.split()[1:]


def test_an_id_among_the_rows_of_a_ref_stays_whole() -> None:
    id = new_id()

    assert id in printed(["key"], [[id]], of_ours=False).output


def test_a_record_is_shown_by_columns_and_a_cut_text_says_where_the_rest_is() -> None:
    error = "no orders " * 30
    columns = (Column("job run", "id"), Column("refs"), Column("error", narrow=headline), Column("at", wide_only=True))
    record = {"id": "1", "refs": ["a", "b", "c", "d"], "error": f"{error}\nTraceback", "at": None}

    narrow = listed([record], columns).output
    wide = listed([record], columns, "--wide").output
    as_json = listed([record], columns, "--json").output

    assert "a, b, c and 1 more" in narrow
    assert narrow.splitlines()[-1] == "A text that ends with … is longer; --wide and --json show all of it."
    assert f"a, b, c, d  {error}Traceback  -" in wide
    assert "…" not in wide
    assert json.loads(as_json) == [record]


def test_wide_shows_every_column_in_full() -> None:
    rows = [[REF, "x " * 100, "hidden"]]

    narrow = printed(["ref", "why", "more"], rows, wide_only=("more",)).output
    wide = printed(["ref", "why", "more"], rows, "--wide", wide_only=("more",)).output

    assert "hidden" not in narrow
    assert wide.splitlines()[1].split() == [REF, *["x"] * 100, "hidden"]


@MANY_COMMANDS
def test_no_table_of_any_command_is_wider_than_100_characters(project: Project) -> None:
    """findings/first-use.md 14"""
    project.define(DEFINITIONS)
    project.call("build", "report@2024-01-29")

    for arguments in TABLES:
        done = project.call(*arguments)
        assert done.code in (0, 1, 2), done
        lines = [line for line in done.out.splitlines() if not line.startswith("Warning: ")]
        assert max(map(len, lines or [""])) <= MAX_WIDTH, (arguments, done.out)


@MANY_COMMANDS
def test_json_has_each_ref_id_time_and_number_that_the_text_has(project: Project) -> None:
    """Rules 15: numbers may be the length of a list, or count the records that have a value."""
    day, failed, month = "orders@2024-01-29", "orders@2024-01-30", "revenue@2024-01-01"
    project.fail("2024-01-30")
    project.call("build", day, month)
    project.call("want", "create", "orders@2024-02-02", "--sla", "1h", "--comment", "board 7")
    project.call("taint", day, "--reason", "wrong rate of 2024")
    (want,) = project.ask("want", "list", "--ref", "orders@2024-02-02")

    for command in (
        # The metrics are rounded in the text.
        *(command for command in TABLES if command != ["metrics"]),
        ["show", day],
        ["show", failed],
        ["explain", month],
        ["explain", want["id"]],
        ["plan", month],
        ["want", "show", want["id"]],
        ["history", day],
        ["lot", "list", "orders"],
        ["lot", "gaps", "orders", "--to", "2024-02-03"],
        ["status", "--locations"],
        ["taint", day, "--reason", "again", "--dry-run"],
    ):
        arguments = [argument.replace(REF, day).replace(LONG, "orders") for argument in command]
        wide = ["--wide"] if "--wide" in project.call(*arguments, "--help").out else []
        text, as_json = project.call(*arguments, *wide).out, project.call(*arguments, "--json").json
        known = json.dumps(as_json)
        words = (word.strip(".,:;()`") for word in re.split(r"[\s=]+|(?<=\.py):", text))
        numbers = {word for word in words if re.search(r"\d", word)}
        plain = {word: word.replace(",", "") for word in numbers}
        unknown = {
            word
            for word in numbers
            if not {word, plain[word]} & counts_in(as_json) and word not in known and plain[word] not in known
        }
        assert not unknown, (arguments, unknown, text, known)


def counts_in(value: Any) -> set[str]:
    """The lengths of all lists, and how many records of a list have the same value in a field."""
    if isinstance(value, dict):
        return set().union(*(counts_in(part) for part in value.values()), {str(len(value))})
    if not isinstance(value, list):
        return set()
    records = [part for part in value if isinstance(part, dict)]
    values = Counter((name, str(part)) for record in records for name, part in record.items())
    return set().union(*(counts_in(part) for part in value), {str(len(value))}, map(str, values.values()))


@MANY_COMMANDS
def test_every_command_takes_the_ids_that_tables_print(project: Project) -> None:
    day, other = "orders@2024-01-29", "orders@2024-01-30"

    def short(*command: str) -> str:
        """The first id of the last row of a table."""
        return project.call(*command).out.splitlines()[-1].removeprefix("*").split()[0]

    def answer(*command: str) -> Any:
        return project.ask(*command)

    built = answer("build", day)["request_id"]
    first = short("history", day)
    project.call("build", day, "--rebuild")
    project.call("want", "create", other)
    want = short("want", "list")
    project.claim("orders@2024-02-01")
    job_run = short("history", "--job-runs", "--limit", "1")
    taint = answer("taint", "--instance", short("history", day), "--reason", "wrong")["taint_id"]

    assert len(first) == len(want) == len(job_run) == SHORT_ID
    assert answer("want", "show", want)[0]["refs"] == [other]
    assert answer("explain", want)["state"] == "Idle"
    assert answer("show", "--full", day, "--instance", first)["uuid"].endswith(first)
    assert first in answer("show", "--manifest", first)["instance_uuid"]
    assert answer("untaint", taint[-SHORT_ID:])["taint_id"] == taint
    assert answer("revert", day, "--to", first)["uuid"].endswith(first)
    assert answer("history", "--requests", "--request", built[-SHORT_ID:])[0]["requester"] == built
    assert answer("want", "cancel", want)[0]["state"] == "Canceled"
    assert answer("want", "cancel", "--job-runs", job_run)[0]["id"].endswith(job_run)
