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

from databuild_dagster import BuildContext, databuild_asset, read
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.model.commands import TaintPartitions
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.states import InstanceState
from databuild_dagster.warehouse.layout import Warehouse

from ..conftest import Site
from ..module_site import module_site

hourly = dg.HourlyPartitionsDefinition("2023-02-27-00:00", end_date="2023-03-01-00:00")
HOUR = "2023-02-27-23:00"


@databuild_asset(partitions_def=hourly)
def orders(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"id": [1, 2]})


@databuild_asset(partitions_def=hourly)
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
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "intact", folder)


def manifest_path(site: Site) -> Path:
    uuid = site.engine.queries.canonical([f"orders@{HOUR}"])[f"orders@{HOUR}"].uuid
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


def with_a_link(path: Path) -> None:
    file = path.parent / json.loads(path.read_text())["files"][0]["uri"]
    file.rename(path.parent.parent / "elsewhere.parquet")
    file.symlink_to(path.parent.parent / "elsewhere.parquet")


def escaping(path: Path) -> None:
    (file,) = json.loads(path.read_text())["files"]
    changed(files=[{**file, "uri": "../../../../etc/passwd"}])(path)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (truncated, "cannot be read"),
        (changed(schema_version=2, files="elsewhere"), "newer than 1"),
        (without_its_file, "is lost"),
        (with_a_link, "is lost"),
        (escaping, "is not in the folder of its instance"),
        (changed(state="removed"), "its data was removed since"),
        (changed(instance_uuid="5e0002a1-0f3d-bd95-db63-b1ac4bedec0f"), "it is that of instance 5e0002a1"),
    ],
)
def test_a_reader_of_a_damaged_manifest_is_refused_and_gets_nothing(
    site: Site, spoil: Callable[[Path], None], words: str
) -> None:
    spoil(manifest_path(site))

    with pytest.raises(DatabuildError, match=words) as refusal:
        read(f"orders@{HOUR}", format="pandas", home=site.instance.root_directory)

    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize("spoil", [truncated, changed(schema_version=2), without_its_file, with_a_link, escaping])
def test_a_job_run_that_would_read_it_fails_and_publishes_nothing(site: Site, spoil: Callable[[Path], None]) -> None:
    if site.state(f"totals@{HOUR}") is not None:
        site.engine.handle(TaintPartitions(refs=(f"totals@{HOUR}",), reason="an earlier case failed"))
    n_runs = len(site.runs)
    spoil(manifest_path(site))

    site.build(f"totals@{HOUR}")

    assert len(site.runs) == n_runs + 1
    assert site.state(f"totals@{HOUR}") is not InstanceState.LIVE
    assert site.engine.queries.canonical([f"orders@{HOUR}"])[f"orders@{HOUR}"].state is InstanceState.LIVE


def test_the_manifest_of_what_is_built_names_its_lot(site: Site) -> None:
    """Rules 10.1, 10.2"""
    assert json.loads(manifest_path(site).read_text())["lot_id"] == "20230227PT1H023"
