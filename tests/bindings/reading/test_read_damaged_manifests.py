"""A reader or a job run gets one sentence about a damaged manifest, and never other rows (rule 10.2)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import BuildContext, databuild_asset
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.model.commands import CancelWants
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.wants import WantFilter
from databuild_dagster.warehouse.layout import Warehouse

from ..conftest import Site
from ..module_site import module_site

hourly = dg.HourlyPartitionsDefinition("2023-02-27-00:00", end_date="2023-03-01-00:00")
HOUR = "2023-02-27-23:00"
#: Names of ways to spoil a manifest. Each has its own partition, which no other case has failed before.
NEWER = "newer version"
cases = dg.StaticPartitionsDefinition(["truncated", "without its file", "without files", NEWER])
that_hour = dg.AssetIn(partition_mapping=dg.SpecificPartitionsPartitionMapping([HOUR]))


@databuild_asset(partitions_def=hourly)
def orders(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"id": [1, 2]})


@databuild_asset(partitions_def=cases, ins={"orders": that_hour})
def totals(orders: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"total": [len(orders)]})


@pytest.fixture(scope="module")
def built(spark_home: str) -> Iterator[Site]:
    """One hour of orders, built once; each test spoils and restores its files."""
    with module_site(spark_home, orders, totals) as site:
        site.build(f"orders@{HOUR}")
        yield site


@pytest.fixture
def site(built: Site, tmp_path: Path) -> Iterator[Site]:
    folder = manifest_path(built).parent
    shutil.copytree(folder, tmp_path / "intact")
    yield built
    if wants := built.engine.queries.wants.newest(WantFilter(open_only=True)):
        # Its retry would read the intact files.
        built.engine.handle(CancelWants(ids=tuple(want.id for want in wants)))
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "intact", folder)


def manifest_path(site: Site) -> Path:
    uuid = site.engine.queries.canonical.of([f"orders@{HOUR}"])[f"orders@{HOUR}"].uuid
    assert uuid is not None
    return Path(Warehouse(warehouse_of(site.instance)).manifest_path("orders", uuid))


def changed(**facts: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))

    return change


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def without_its_file(path: Path) -> None:
    (path.parent / json.loads(path.read_text())["files"][0]["uri"]).unlink()


DAMAGES = {"truncated": truncated, "without its file": without_its_file, "without files": changed(files=[])}


@pytest.mark.parametrize("case", [*DAMAGES, NEWER])
def test_a_job_run_that_would_read_it_publishes_nothing(site: Site, case: str) -> None:
    """Damage is the fault of the input (rule 6.16), and a newer version's manifest is no damage."""
    n_runs = len(site.runs)
    (DAMAGES.get(case) or changed(schema_version=2))(manifest_path(site))

    site.build(f"totals@{case}")

    assert len(site.runs) == n_runs + 1
    canonicals = site.engine.queries.canonical.of([f"totals@{case}", f"orders@{HOUR}"])
    totals, read_by_it = canonicals.values()
    assert (totals.rows, totals.manifest_uri) == (None, None)
    assert read_by_it.state is InstanceState.LIVE
    assert totals.reason is not None
    attempts = site.engine.queries.planning.attempts([totals.ref])[totals.ref]
    if case == NEWER:
        assert (totals.state, attempts) == (InstanceState.FAILED, 1)
    else:
        assert (totals.state, attempts) == (InstanceState.UP_FOR_RETRY, 0)
        assert f"orders@{HOUR}" in totals.reason
