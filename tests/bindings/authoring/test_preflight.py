"""A build that is refused opens no Spark session and leaves no mark in a warehouse (rules 3.11 and 10.9)."""

import socket
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame

from databuild_dagster import databuild_asset
from databuild_dagster.bindings.authoring import preflight
from databuild_dagster.bindings.authoring.location import CodeLocation
from databuild_dagster.bindings.authoring.preflight import prepare_machine
from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark, close_sessions
from databuild_dagster.data.ownership import Marker, RootOfAnother, make_marker, marker_of
from databuild_dagster.warehouse.layout import Warehouse
from tests.bindings.conftest import Site
from tests.support.object_store import S3Server
from tests.support.spark_elsewhere import Elsewhere


@databuild_asset
def orders() -> pd.DataFrame:
    return pd.DataFrame({"amount": [1, 2]})


@databuild_asset
def totals(orders: DataFrame) -> DataFrame:
    return orders.groupBy().sum("amount")


@pytest.fixture
def of_another(tmp_path: Path) -> Warehouse:
    """A warehouse that another store owns."""
    warehouse = Warehouse(str(tmp_path / "of_another"))
    make_marker(warehouse, Marker("another", "elsewhere"))
    return warehouse


def prepare(*sites: Site) -> None:
    """The checks before a build of every asset of some locations."""
    locations = [CodeLocation(site.deployment.location, site.repository, site.deployment) for site in sites]
    datasets = sites[0].engine.queries.datasets.all().values()
    prepare_machine(sites[0].instance, locations, datasets, [spec.asset for spec in datasets])


def test_a_warehouse_of_another_store_is_refused_before_a_remote_spark_is_used(
    deploy: Any, of_another: Warehouse
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        # With TLS, the check that the server can be reached sends nothing.
        url = f"sc://127.0.0.1:{server.getsockname()[1]}/;use_ssl=true"
        site = deploy(orders, totals, warehouse=of_another.root, spark=DatabuildSpark(mode="remote", url=url))

        with pytest.raises(RootOfAnother):
            prepare(site)

        server.accept()[0].close()
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_build_that_a_second_location_s_root_refuses_does_not_mark_the_first(
    deploy: Any, of_another: Warehouse, tmp_path: Path
) -> None:
    @databuild_asset
    def prices() -> pd.DataFrame:
        return pd.DataFrame({"price": [3]})

    of_first = Warehouse(str(tmp_path / "of_first"))
    first = deploy(orders, warehouse=of_first.root, location="first")
    second = deploy(prices, warehouse=of_another.root, location="second")

    with pytest.raises(RootOfAnother, match=of_another.root):
        prepare(first, second)

    assert marker_of(of_first) is None


def test_a_build_that_is_not_refused_marks_its_warehouse(deploy: Any, tmp_path: Path) -> None:
    of_first = Warehouse(str(tmp_path / "of_first"))
    site = deploy(orders, warehouse=of_first.root)

    prepare(site)
    prepare(site)

    identity = site.engine.store.identity()
    assert marker_of(of_first) == Marker(str(identity.id), str(identity.place))


@pytest.mark.long("only a Spark can be reached and run no job")
def test_a_spark_that_runs_no_job_yet_is_left_to_the_step_with_a_warning(
    deploy: Any,
    running_sail: Elsewhere,
    s3: S3Server,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = f"s3://{bucket}/warehouse"
    site = deploy(orders, totals, warehouse=root, spark=DatabuildSpark(mode="remote", url=running_sail.url))
    check = preflight.check_reach

    def check_while_frozen(*arguments: Any, **options: Any) -> None:
        # Not from the beginning, because a session opens by an answer.
        with running_sail.frozen():
            check(*arguments, **options)

    monkeypatch.setattr(preflight, "check_reach", check_while_frozen)
    monkeypatch.setattr(preflight, "MAX_FIRST_JOB_SECONDS", 0.0)

    prepare(site)

    close_sessions()
    (warning,) = (line for record in caplog.records if "runs no job" in (line := record.getMessage()))
    assert f"The build waits up to 300 s for its first job, and then checks that it sees {root}." in warning
    assert marker_of(Warehouse(root)) is not None
