"""A table is at most 100 characters wide and loses no sentence; --wide shows all of it (rules 15)."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from databuild_dagster.cli.options import tabular
from databuild_dagster.cli.output import MAX_COLUMNS, MAX_WIDTH, table
from databuild_dagster.engine.ids import new_id
from tests.cli.conftest import Project

LONG = "a_source_of_orders_from_the_northern_warehouses_of_the_group_before_they_are_cleaned_for_reports"
DEFINITIONS = f"""
import dagster as dg
import pandas as pd

from databuild_dagster import build_definitions, databuild_asset

daily = dg.DailyPartitionsDefinition("2024-01-29", end_date="2024-03-01")
@databuild_asset(partitions_def=daily)
def {LONG}() -> pd.DataFrame:
    return pd.DataFrame({{"amount": [1.0], "a_comment_that_is_long": ["word " * 50]}})


@databuild_asset(partitions_def=daily)
def report({LONG}: pd.DataFrame) -> pd.DataFrame:
    raise ValueError("a reason that is long " * 20)


defs = build_definitions([{LONG}, report])
"""
REF = f"{LONG}@2024-01-29"
TABLES = (
    ["status"],
    ["want", "list"],
    ["want", "list", "--all"],
    ["partitions", LONG],
    ["history", REF],
    ["history", "report@2024-01-29"],
    ["read", REF],
    ["receipt", REF],
    ["job-run", "list"],
    ["ledger", "list"],
    ["ledger", "metrics"],
    ["location", "list"],
    ["lot", "list"],
    ["lot", "list", LONG, "--list"],
    ["arc", "list"],
    ["log", "check", "--deep"],
    ["gc", "--keep", "0"],
    ["gc", "--leftovers"],
    ["operation", "list"],
    ["spark", "status"],
)


def printed(columns: list[str], rows: list[list[str]], *arguments: str, **settings: tuple[str, ...]) -> Result:
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


def test_an_id_is_shown_in_full_while_anything_else_can_be_narrowed() -> None:
    id = new_id()

    assert id in printed(["id", "ref", "state"], [[id, REF, "Live"]]).output


def test_wide_shows_every_column_in_full() -> None:
    rows = [[REF, "x " * 100, "hidden"]]

    narrow = printed(["ref", "why", "more"], rows, wide_only=("more",)).output
    wide = printed(["ref", "why", "more"], rows, "--wide", wide_only=("more",)).output

    assert "hidden" not in narrow
    assert wide.splitlines()[1].split() == [REF, *["x"] * 100, "hidden"]


@pytest.mark.long
def test_no_table_of_any_command_is_wider_than_100_characters(project: Project) -> None:
    project.define(DEFINITIONS)
    project.call("build", "report@2024-01-29")

    for arguments in TABLES:
        done = project.call(*arguments)
        assert done.code in (0, 1, 2), done
        lines = [line for line in done.out.splitlines() if not line.startswith("Warning: ")]
        assert max(map(len, lines or [""])) <= MAX_WIDTH, (arguments, done.out)
