"""`databuild publish` by hand, and what `status`, `log check` and `gc` say of published tables (rule 10.10)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from .conftest import Project

DEFINITIONS = """
import dagster as dg
import pandas as pd

from databuild_dagster import Iceberg, build_definitions, databuild_asset

daily = dg.DailyPartitionsDefinition("2024-01-29", end_date="2024-02-02")


@databuild_asset(partitions_def=daily, publish=Iceberg(table="shop.orders"))
def orders() -> pd.DataFrame:
    return pd.DataFrame({"amount": [1.5, 2.5]})


@databuild_asset
def plain() -> pd.DataFrame:
    return pd.DataFrame({"amount": [1.5]})


defs = build_definitions([orders, plain])
"""
DAY, NEXT = "orders@2024-01-29", "orders@2024-01-30"


@pytest.fixture
def published(project: Project) -> Project:
    project.define(DEFINITIONS)
    project.build(DAY)
    return project


def table_of(project: Project) -> Table:
    catalog = load_catalog("databuild", type="sql", uri=f"sqlite:///{project.home}/warehouse/iceberg.db")
    return catalog.load_table("shop.orders")


def test_a_build_publishes_and_a_second_publication_changes_nothing(published: Project) -> None:
    done = published.call("publish", "orders")

    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("shop.orders is up to date: it holds up to seq ")
    assert table_of(published).scan().to_arrow().num_rows == 2


def test_a_taint_is_published_by_hand_after_a_dry_run(published: Project) -> None:
    published.call("taint", DAY, "--reason", "wrong")

    planned, done = published.ask("publish", "orders", "--dry-run"), published.ask("publish", "orders")

    assert (planned["done"], planned["snapshot"], planned["files_removed"]) == (False, None, 1)
    assert (done["done"], done["files_removed"], done["table"]) == (True, 1, "shop.orders")
    assert table_of(published).scan().to_arrow().num_rows == 0


def test_status_shows_how_far_behind_a_table_is(published: Project) -> None:
    before = published.ask("status")["tables"]
    published.call("taint", DAY, "--reason", "wrong")

    behind = published.call("status")

    assert [(table["asset"], table["partitions_behind"]) for table in before] == [("orders", 0)]
    assert "The table of orders is 1 partition behind, at seq" in behind.out


def test_a_deep_check_names_the_files_that_a_table_and_the_log_do_not_share(published: Project) -> None:
    clean = published.call("log", "check", "--deep")
    table = table_of(published)
    with table.transaction() as transaction:
        # The mark stays, as after an older version's mistake.
        properties = table.current_snapshot().summary.additional_properties
        marks = {name: value for name, value in properties.items() if name.startswith("databuild.")}
        transaction.delete("amount > 0", snapshot_properties=marks)

    wrong = published.call("log", "check", "--deep")
    repaired = published.call("publish", "orders", "--repair")
    clean_again = published.call("log", "check", "--deep")

    assert (clean.code, wrong.code, repaired.code, clean_again.code) == (0, 1, 0, 0), (clean, clean_again)
    assert "the table of orders is wrong: it is missing there, and the log lists it" in wrong.out
    assert "`databuild publish orders --repair` puts it right" in wrong.out


def test_gc_expires_snapshots_before_it_removes_data(published: Project) -> None:
    published.build(DAY, "--rebuild")

    kept = published.ask("gc", "--keep", "0", "--yes")
    removed = published.ask("gc", "--keep", "0", "--older-than", "none", "--yes")

    assert (len(kept["instances"]), len(removed["instances"])) == (0, 1)
    assert len(table_of(published).snapshots()) == 1
    assert table_of(published).scan().to_arrow().num_rows == 2


@pytest.mark.parametrize(
    ("dataset", "sentence"),
    [
        ("plain", "plain is published as no table."),
        (DAY, "a table has all partitions of a dataset"),
        ("order", "No code location has registered an asset 'order'."),
    ],
)
def test_a_dataset_that_cannot_be_published_is_one_sentence(published: Project, dataset: str, sentence: str) -> None:
    done = published.call("publish", dataset)

    assert done.code == 2
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1


def test_a_build_whose_catalog_is_unknown_records_nothing(project: Project) -> None:
    project.define(DEFINITIONS.replace('table="shop.orders"', 'table="shop.orders", catalog="no-such"'))

    done = project.call("build", DAY)

    assert done.code == 2
    assert "The table of orders is in catalog 'no-such', which pyiceberg does not know" in done.err
    assert project.ask("want", "list") == []


def test_a_publication_needs_no_spark_and_leaves_no_copy(published: Project) -> None:
    files = sorted(path for path in Path(published.home, "warehouse", "orders").rglob("*.parquet"))

    assert len(files) == 1
    assert {task.file.file_path for task in table_of(published).scan().plan_files()} == {f"file://{files[0]}"}
