"""A tick publishes what was built since, and a table that cannot be published delays nothing else (rules 10.10, 11.7)."""

from __future__ import annotations

import socket
import time
from datetime import date
from pathlib import Path

import dagster as dg
import pandas as pd
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from databuild_dagster import Delta, Iceberg, build_table_checks, databuild_asset
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.features.tables import table_publishing
from databuild_dagster.features.tables.table_lags import table_lags
from databuild_dagster.features.tables.table_publishing import TABLE_CHECK, publish_tables
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.states import InstanceState
from tests.bindings.conftest import Site, deployed
from tests.features.tables.catalogs import configure
from tests.support.log_lines import at_warnings
from tests.support.postgres import PostgresServer

PATIENCE_SECONDS = 60.0
HOUR_SECONDS = 3600.0
DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04")


@databuild_asset(partitions_def=DAILY, publish=Iceberg(table="shop.sales"))
def sales() -> pd.DataFrame:
    return pd.DataFrame({"x": [1, 2]})


@databuild_asset(partitions_def=DAILY, publish=Delta())
def copies(sales: pd.DataFrame) -> pd.DataFrame:
    return sales


@databuild_asset(publish=Iceberg(catalog="no-such"))
def nowhere() -> pd.DataFrame:
    return pd.DataFrame({"x": [1]})


@databuild_asset(publish=Iceberg(catalog="silent"))
def a_silent() -> pd.DataFrame:
    return pd.DataFrame({"x": [1]})


@databuild_asset(publish=Iceberg(table="shop.spoken"))
def spoken() -> pd.DataFrame:
    return pd.DataFrame({"x": [1]})


def specs_of(site: Site) -> list[DatasetSpec]:
    return list(datasets_of(site.repository.asset_graph, site.deployment.location))


@databuild_asset(partitions_def=DAILY, publish=Iceberg(catalog="lake", table="shop.orders"))
def orders() -> pd.DataFrame:
    return pd.DataFrame({"x": [1, 2]})


def assert_shown_in_dagster(instance: dg.DagsterInstance, root: str) -> None:
    """Each materialization has the name and the place of the table, and each snapshot is an observation."""
    of_iceberg = instance.get_latest_materialization_event(dg.AssetKey("sales")).asset_materialization.metadata
    of_delta = instance.get_latest_materialization_event(dg.AssetKey("copies")).asset_materialization.metadata
    assert (of_iceberg["dagster/table_name"].value, of_iceberg["dagster/uri"].value) == (
        "shop.sales",
        f"{root}/sales/iceberg",
    )
    assert of_delta["dagster/uri"].value == f"{root}/copies"
    snapshot = load_catalog("databuild", type="sql", uri=f"sqlite:///{root}/iceberg.db").load_table("shop.sales")
    newest = instance.fetch_observations(dg.AssetKey("sales"), limit=1).records[0].asset_observation.metadata
    assert newest["databuild/table_snapshot"].value == str(snapshot.current_snapshot().snapshot_id)
    assert newest["dagster/row_count"].value == 4
    assert f"file://{newest['databuild/table_metadata'].value}" == snapshot.metadata_location
    of_version = instance.fetch_observations(dg.AssetKey("copies"), limit=1).records[0].asset_observation.metadata
    assert of_version["databuild/table_snapshot"].value == str(DeltaTable(f"{root}/copies").version())
    assert of_version["dagster/row_count"].value == 4


def test_ticks_publish_what_they_build_and_set_aside_what_cannot_be_published(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    site = deployed(instance, str(tmp_path), sales, copies, nowhere)

    site.build("copies@2024-01-01", "copies@2024-01-02", "nowhere")

    root = warehouse_of(instance)
    catalog = load_catalog("databuild", type="sql", uri=f"sqlite:///{root}/iceberg.db")
    rows = catalog.load_table("shop.sales").scan().to_arrow().to_pylist()
    assert len(rows) == 4
    assert {row["partition_key"] for row in rows} == {date(2024, 1, 1), date(2024, 1, 2)}
    assert DeltaTable(f"{root}/copies").to_pyarrow_table().num_rows == 4
    assert site.state("nowhere") is InstanceState.LIVE
    (aside,) = site.engine.queries.planning.set_aside()
    assert (aside.name, aside.kind.value) == ("table of nowhere", "table")
    assert "UnknownCatalog: " in aside.reason
    assert behind(site, instance) == {"sales": 0, "copies": 0, "nowhere": None}
    assert_shown_in_dagster(instance, root)
    taint = site.engine.queries.events.head().seq
    publish_tables(instance, site.deployment, specs_of(site), wait_seconds=PATIENCE_SECONDS)
    assert site.engine.queries.events.head().seq == taint, "the same reason is no second event"


def behind(site: Site, instance: dg.DagsterInstance) -> dict[str, int | None]:
    return {lag.asset: lag.partitions_behind for lag in table_lags(instance, specs_of(site))}


@pytest.mark.usefixtures("silent")
def test_a_catalog_that_never_answers_delays_one_tick_and_no_other_table(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_publishing, "TICK_WAIT_SECONDS", 0.5)
    site = deployed(instance, str(tmp_path), a_silent, spoken)
    site.build("a_silent", "spoken")
    until = time.monotonic() + PATIENCE_SECONDS

    # A tick that waited for the silent catalog again would take an hour. The other table may need several short ticks.
    while behind(site, instance)["spoken"] != 0:
        assert time.monotonic() < until, "the other table is not published"
        publish_tables(instance, site.deployment, specs_of(site), wait_seconds=HOUR_SECONDS)
    publish_tables(instance, site.deployment, specs_of(site), wait_seconds=HOUR_SECONDS)

    # On a busy machine, the last tick may not have waited for the other table, either.
    asides = {aside.name: aside.reason.partition(":")[0] for aside in site.engine.queries.planning.set_aside()}
    assert asides["table of a_silent"] == "PublishingContinues"
    assert behind(site, instance) == {"a_silent": None, "spoken": 0}


def test_the_end_of_a_build_waits_for_a_table_that_a_tick_has_begun(
    instance: dg.DagsterInstance, tmp_path: Path, silent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_publishing, "TICK_WAIT_SECONDS", 0.5)
    monkeypatch.setattr(table_publishing, "SILENT_SECONDS", 0.0)
    site = deployed(instance, str(tmp_path), a_silent)
    site.build("a_silent")
    (before,) = site.engine.queries.planning.set_aside()
    assert before.reason.startswith("PublishingContinues: ")

    # The catalog goes away when the wait is announced, so the publication ends.
    def go_away(text: str) -> None:
        if text.startswith("databuild: waiting for the table of a_silent"):
            silent.close()

    with at_warnings(table_publishing.__name__, go_away):
        specs = specs_of(site)
        publish_tables(instance, site.deployment, specs, wait_seconds=PATIENCE_SECONDS, is_last=True)

    (after,) = site.engine.queries.planning.set_aside()
    assert after.reason.startswith("CatalogAway: ")


@pytest.mark.long("a PostgreSQL server is killed and started again")
def test_a_catalog_that_is_away_for_an_hour_stops_no_build_and_its_table_catches_up(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = PostgresServer()
    try:
        configure(monkeypatch, "lake", TYPE="sql", URI=server.url("public"), WAREHOUSE=f"file://{tmp_path}/lake")
        site = deployed(instance, str(tmp_path), orders, asset_checks=build_table_checks(assets=[orders]))
        site.build("orders@2024-01-01")
        (before,) = table_lags(instance, specs_of(site))
        assert (before.partitions_behind, before.seconds_behind) == (0, 0.0)

        server.kill()
        site.build("orders@2024-01-02")
        away = site.engine.clock
        site.engine.clock = lambda: away() + HOUR_SECONDS
        site.build("orders@2024-01-03")

        assert [site.state(f"orders@2024-01-0{day}") for day in (2, 3)] == [InstanceState.LIVE] * 2
        (lag,) = table_lags(instance, specs_of(site))
        assert lag.partitions_behind == 2
        assert lag.seconds_behind >= HOUR_SECONDS
        assert str(lag.why).startswith("CatalogAway: ")
        assert not is_passing(instance)

        server.start_again()
        site.engine.clock = lambda: away() + 2 * HOUR_SECONDS
        site.build()

        (after,) = table_lags(instance, specs_of(site))
        assert (after.partitions_behind, after.why) == (0, None)
        assert is_passing(instance)
        table = load_catalog("lake").load_table("shop.orders")
        seqs = [int(found.summary.additional_properties["databuild.seq"]) for found in table.snapshots()]
        assert seqs == sorted(set(seqs))
        days = {row["partition_key"] for row in table.scan().to_arrow().to_pylist()}
        assert days == {date(2024, 1, day) for day in (1, 2, 3)}
    finally:
        server.stop()


def is_passing(instance: dg.DagsterInstance) -> bool:
    """The newest result of the check. Runs of the asset execute it, too, and plan it first."""
    key = dg.AssetCheckKey(dg.AssetKey("orders"), TABLE_CHECK)
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=100)
    events = [record.event.dagster_event.event_specific_data for record in records if record.event is not None]
    return next(event.passed for event in events if isinstance(event, dg.AssetCheckEvaluation))
