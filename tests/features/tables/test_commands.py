"""`databuild admin publish` by hand, and what `status`, `log check` and `gc` say of published tables (rule 10.10)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from databuild_dagster.features.tables import table_publishing
from databuild_dagster.model.commands import RegisterDatasets
from tests.support.catalog import HERE, dataset
from tests.support.log_lines import at_warnings
from tests.support.project import Project
from tests.support.published import DAYS, ICEBERG, PublishedWorld
from tests.support.table_readers import iceberg_table

DEFINITIONS = """
import dagster as dg
import pandas as pd

from databuild_dagster import Iceberg, build_definitions, databuild_asset

daily = dg.DailyPartitionsDefinition("2024-01-29", end_date="2024-02-02")


@databuild_asset(partitions_def=daily, publish=Iceberg(table="shop.orders"))
def orders() -> pd.DataFrame:
    return pd.DataFrame({"amount": [1.5, 2.5]})


defs = build_definitions([orders])
"""
ORDERS = "orders@2024-01-29"
DAY, NEXT = f"sales@{DAYS[0]}", f"sales@{DAYS[1]}"


@pytest.fixture
def sales(project: Project) -> PublishedWorld:
    """A published table in the home of the project."""
    world = PublishedWorld(project.home, ICEBERG)
    world.build(DAYS[0], {"amount": [1.5, 2.5]})
    world.publish()
    return world


def rebuild(sales: PublishedWorld) -> None:
    sales.taint(DAY)
    sales.build(DAYS[0], {"amount": [3.5, 4.5]})


def n_rows(table: Table) -> int:
    return int(table.scan().to_arrow().num_rows)


def test_a_build_publishes_and_a_second_publication_changes_nothing(project: Project) -> None:
    project.define(DEFINITIONS)
    project.build(ORDERS)

    done = project.call("admin", "publish", "orders")

    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("shop.orders is up to date: it holds up to seq ")
    catalog = load_catalog("databuild", type="sql", uri=f"sqlite:///{project.home}/warehouse/iceberg.db")
    table = catalog.load_table("shop.orders")
    assert n_rows(table) == 2
    (file,) = Path(project.home, "warehouse", "orders").rglob("*.parquet")
    assert {task.file.file_path for task in table.scan().plan_files()} == {f"file://{file}"}, "no copy"


def test_a_taint_is_published_by_hand_after_a_dry_run(project: Project, sales: PublishedWorld) -> None:
    sales.taint(DAY)

    planned, done = project.ask("admin", "publish", "sales", "--dry-run"), project.ask("admin", "publish", "sales")

    assert (planned["done"], planned["snapshot"], planned["files_removed"]) == (False, None, 1)
    assert (done["done"], done["files_removed"], done["table"]) == (True, 1, "shop.sales")
    assert n_rows(iceberg_table(sales)) == 0


def test_status_shows_how_far_behind_a_table_is(project: Project) -> None:
    project.define(DEFINITIONS)
    project.build(ORDERS)
    before = project.ask("status")["tables"]
    project.call("taint", ORDERS, "--reason", "wrong")

    behind = project.call("status")
    scraped = project.call("metrics", "--prometheus").out

    assert [(table["asset"], table["partitions_behind"], table["since"]) for table in before] == [("orders", 0, None)]
    assert "The table of orders is 1 partition behind, at seq" in behind.out
    assert 'databuild_table_partitions_behind{dataset="orders"} 1.0' in scraped
    assert 'databuild_table_seconds_behind{dataset="orders"}' in scraped


def test_a_receipt_names_the_snapshot_and_tags_it(project: Project, sales: PublishedWorld) -> None:
    (before,) = project.ask("show", "--full", DAY)["instances"]
    snapshot = iceberg_table(sales).current_snapshot().snapshot_id

    (tagged,) = project.ask("show", "--full", DAY, "--tag", "audit")["instances"]
    shown = project.call("show", "--full", DAY).out

    assert (before["table"]["name"], before["table"]["snapshot"]) == ("shop.sales", snapshot)
    assert (tagged["table"]["tags"], iceberg_table(sales).refs()["audit"].snapshot_id) == (["audit"], snapshot)
    assert f"{DAY} is in snapshot {snapshot} of the table shop.sales, which holds up to seq" in shown
    assert ", tagged audit." in shown


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("show", "--full", DAY, "--tag", "a tag"), "a tag has letters, digits"),
        (("show", "--full", DAY, NEXT, "--tag", "audit"), "a tag names one snapshot; name one REF"),
        (("admin", "publish", DAY), "a table has all partitions of a dataset"),
    ],
)
@pytest.mark.usefixtures("sales")
def test_a_request_that_no_table_can_meet_is_one_sentence(
    project: Project, arguments: tuple[str, ...], sentence: str
) -> None:
    done = project.call(*arguments)

    assert done.code == 2
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(("asset", "kind"), [("plain", "NotPublished"), ("order", "UnknownAsset")])
def test_a_dataset_that_has_no_table_is_refused(project: Project, sales: PublishedWorld, asset: str, kind: str) -> None:
    sales.handle(RegisterDatasets(location=HERE, datasets=(sales.spec, dataset("plain"))))

    done = project.call("admin", "publish", asset, "--json")

    assert (done.code, done.json["error"]["type"]) == (2, kind)


@pytest.mark.usefixtures("silent")
def test_a_catalog_that_never_answers_ends_a_command_after_its_timeout(project: Project, sales: PublishedWorld) -> None:
    rebuild(sales)
    moved = msgspec.structs.replace(sales.spec, table=msgspec.structs.replace(ICEBERG, catalog="silent"))
    sales.handle(RegisterDatasets(location=HERE, datasets=(moved,)))

    done = project.call("admin", "publish", "sales", "--timeout", "1s", "--json")
    kept = project.ask("gc", "--keep", "0", "--timeout", "1s")

    assert (done.code, done.json["error"]["type"]) == (2, "TableSilent")
    assert kept["instances"] == []
    assert kept["kept"][0]["why"].startswith("its table cannot be read: ")


def test_a_deep_check_names_the_files_that_a_table_and_the_log_do_not_share(
    project: Project, sales: PublishedWorld
) -> None:
    clean = project.call("log", "check", "--deep")
    table = iceberg_table(sales)
    with table.transaction() as transaction:
        # The mark stays, as after an older version's mistake.
        properties = table.current_snapshot().summary.additional_properties
        marks = {name: value for name, value in properties.items() if name.startswith("databuild.")}
        transaction.delete("amount > 0", snapshot_properties=marks)

    wrong = project.call("log", "check", "--deep")
    repaired = project.call("admin", "publish", "sales", "--repair")
    clean_again = project.call("log", "check", "--deep")

    assert (clean.code, wrong.code, repaired.code, clean_again.code) == (0, 1, 0, 0), (clean, clean_again)
    assert "the table of sales is wrong: it is missing there, and the log lists it" in wrong.out
    assert "`databuild admin publish --repair sales` puts it right" in wrong.out


def test_gc_expires_snapshots_before_it_removes_data(project: Project, sales: PublishedWorld) -> None:
    rebuild(sales)
    sales.publish()

    kept = project.ask("gc", "--keep", "0", "--yes")
    removed = project.ask("gc", "--keep", "0", "--older-than", "none", "--yes")

    assert (len(kept["instances"]), len(removed["instances"])) == (0, 1)
    table = iceberg_table(sales)
    assert (len(table.snapshots()), n_rows(table)) == (1, 2)


def test_a_build_whose_catalog_is_unknown_records_nothing(project: Project) -> None:
    project.define(DEFINITIONS.replace('table="shop.orders"', 'table="shop.orders", catalog="no-such"'))

    done = project.call("build", ORDERS, "--json")

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
        done = project.call("build", ORDERS)

    assert done.code == 0
    assert "1 of 1 ref live" in done.out
