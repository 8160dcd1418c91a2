"""A tick publishes what was built since, and a table that cannot be published delays nothing else (rules 10.10, 11.7)."""

from __future__ import annotations

import socket
from datetime import date
from pathlib import Path

import dagster as dg
import pandas as pd
import pyiceberg.catalog
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from databuild_dagster import Delta, Iceberg, databuild_asset
from databuild_dagster.bindings.orchestration import duties
from databuild_dagster.bindings.orchestration.table_publishing import publish_tables, table_lags
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.states import InstanceState
from tests.bindings.conftest import Site, deployed

PATIENCE_SECONDS = 60.0
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


@pytest.mark.long
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
    (aside,) = site.engine.queries.set_aside()
    assert (aside.name, aside.kind.value) == ("table of nowhere", "table")
    assert "UnknownCatalog: " in aside.reason
    lags = {lag.asset: lag.n_behind for lag in table_lags(instance, specs_of(site))}
    assert lags == {"sales": 0, "copies": 0, "nowhere": None}
    taint = site.engine.queries.head().seq
    publish_tables(instance, site.deployment, specs_of(site), wait_seconds=PATIENCE_SECONDS)
    assert site.engine.queries.head().seq == taint, "the same reason is no second event"


@pytest.mark.long
def test_a_catalog_that_never_answers_delays_one_tick_and_no_other_table(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("PYICEBERG_CATALOG__SILENT__URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        # pyiceberg reads its configuration when it is imported.
        monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
        monkeypatch.setattr(duties, "TICK_WAIT_SECONDS", 0.5)
        site = deployed(instance, str(tmp_path), a_silent, spoken)
        site.build("a_silent", "spoken")
        in_order = sorted(specs_of(site), key=lambda spec: spec.asset)

        publish_tables(instance, site.deployment, in_order, wait_seconds=PATIENCE_SECONDS)

        (aside,) = site.engine.queries.set_aside()
    assert (aside.name, aside.reason.partition(":")[0]) == ("table of a_silent", "PublishingContinues")
    assert {lag.asset: lag.n_behind for lag in table_lags(instance, in_order)} == {"a_silent": None, "spoken": 0}
