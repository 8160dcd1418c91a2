"""`databuild publish` by hand, and what `status`, `log check` and `gc` say of published tables (rule 10.10)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from databuild_dagster.bindings.registry.instance import engine_for, open_instance
from databuild_dagster.features.tables import table_publishing
from databuild_dagster.model.commands import RegisterDatasets
from tests.support.log_lines import at_warnings
from tests.support.project import Project

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
    (file,) = Path(published.home, "warehouse", "orders").rglob("*.parquet")
    assert {task.file.file_path for task in table_of(published).scan().plan_files()} == {f"file://{file}"}, "no copy"


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
    scraped = published.call("ledger", "metrics", "--prometheus").out

    assert [(table["asset"], table["partitions_behind"], table["since"]) for table in before] == [("orders", 0, None)]
    assert "The table of orders is 1 partition behind, at seq" in behind.out
    assert 'databuild_table_partitions_behind{dataset="orders"} 1.0' in scraped
    assert 'databuild_table_seconds_behind{dataset="orders"}' in scraped


def test_a_receipt_names_the_snapshot_and_tags_it(published: Project) -> None:
    (before,) = published.ask("receipt", DAY)["instances"]
    snapshot = table_of(published).current_snapshot()

    (tagged,) = published.ask("receipt", DAY, "--tag", "audit")["instances"]
    shown = published.call("receipt", DAY).out

    assert (before["table"]["name"], before["table"]["snapshot"]) == ("shop.orders", snapshot.snapshot_id)
    assert (tagged["table"]["tags"], table_of(published).refs()["audit"].snapshot_id) == (
        ["audit"],
        snapshot.snapshot_id,
    )
    assert f"{DAY} is in snapshot {snapshot.snapshot_id} of the table shop.orders, which holds up to seq" in shown
    assert ", tagged audit." in shown


@pytest.fixture(scope="module")
def published_once(shared_project: Project) -> Project:
    shared_project.define(DEFINITIONS)
    shared_project.build(DAY)
    return shared_project


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("receipt", DAY, "--tag", "a tag"), "a tag has letters, digits"),
        (("receipt", DAY, NEXT, "--tag", "audit"), "a tag names one snapshot; name one REF"),
        (("publish", DAY), "a table has all partitions of a dataset"),
    ],
)
def test_a_request_that_no_table_can_meet_is_one_sentence(
    published_once: Project, arguments: tuple[str, ...], sentence: str
) -> None:
    done = published_once.call(*arguments)

    assert done.code == 2
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(("dataset", "kind"), [("plain", "NotPublished"), ("order", "UnknownAsset")])
def test_a_dataset_that_has_no_table_is_refused(published_once: Project, dataset: str, kind: str) -> None:
    done = published_once.call("publish", dataset, "--json")

    assert (done.code, done.json["error"]["type"]) == (2, kind)


@pytest.mark.usefixtures("silent")
def test_a_catalog_that_never_answers_ends_a_command_after_its_timeout(published: Project) -> None:
    published.build(DAY, "--rebuild")
    with open_instance(published.home) as instance:
        engine = engine_for(instance)
        spec = engine.queries.known_dataset("orders")
        moved = msgspec.structs.replace(spec, table=msgspec.structs.replace(spec.table, catalog="silent"))
        engine.handle(RegisterDatasets(location=spec.location, datasets=(moved,)))

    done = published.call("publish", "orders", "--timeout", "1s", "--json")
    kept = published.ask("gc", "--keep", "0", "--older-than", "none", "--timeout", "1s")

    assert (done.code, done.json["error"]["type"]) == (2, "TableSilent")
    assert kept["instances"] == []
    assert kept["kept"][0]["why"].startswith("its table cannot be read: ")


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


def test_a_build_whose_catalog_is_unknown_records_nothing(project: Project) -> None:
    project.define(DEFINITIONS.replace('table="shop.orders"', 'table="shop.orders", catalog="no-such"'))

    done = project.call("build", DAY, "--json")

    assert (done.code, done.json["error"]["type"]) == (2, "UnknownCatalog")
    assert project.ask("want", "list") == []


@pytest.mark.usefixtures("silent")
def test_ctrl_c_at_the_end_of_a_build_ends_the_wait_for_a_table_alone(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_publishing, "TICK_WAIT_SECONDS", 0.1)
    monkeypatch.setattr(table_publishing, "SILENT_SECONDS", 0.0)
    project.define(DEFINITIONS.replace('table="shop.orders"', 'catalog="silent"'))

    def press(text: str) -> None:
        if text.startswith("databuild: waiting for the table of orders"):
            raise KeyboardInterrupt

    with at_warnings(table_publishing.__name__, press):
        done = project.call("build", DAY)

    assert done.code == 0
    assert "1 of 1 ref live" in done.out
