"""Tables over a warehouse in an object store: their metadata and logs are objects, too (rule 10.10)."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from databuild_dagster.features.tables.errors import NoPlaceForCatalog
from tests.features.tables.catalogs import configure
from tests.support.object_store import S3Server, bucket, running_s3, s3
from tests.support.published import DAYS, DELTA, ICEBERG, PublishedWorld

__all__ = ["bucket", "running_s3", "s3"]


def build_twice(world: PublishedWorld) -> None:
    world.build(DAYS[0], {"x": [1]})
    world.build(DAYS[1], {"x": [2]})
    world.publish()
    world.taint(world.ref(DAYS[0]))
    world.build(DAYS[0], {"x": [3]})
    world.publish()


def rows_of(table: pa.Table) -> list[tuple[int, date]]:
    return sorted((row["x"], row["day"]) for row in table.to_pylist())


EXPECTED = [(2, date(2024, 1, 2)), (3, date(2024, 1, 1))]


def test_an_iceberg_table_in_a_bucket_has_a_catalog_of_pyicebergs_configuration(
    s3: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "TYPE": "sql",
        "URI": f"sqlite:///{tmp_path}/catalog.db",
        "WAREHOUSE": f"s3://{bucket}/tables",
        "S3__ENDPOINT": s3.url,
        "S3__ACCESS_KEY_ID": "tests",
        "S3__SECRET_ACCESS_KEY": "tests",
        "S3__REGION": "us-east-1",
    }
    configure(monkeypatch, "bucket", **settings)
    table = msgspec.structs.replace(ICEBERG, catalog="bucket")
    world = PublishedWorld(tmp_path / "home", table, warehouse=f"s3://{bucket}/here")

    build_twice(world)

    assert rows_of(load_catalog("bucket").load_table("shop.sales").scan().to_arrow()) == EXPECTED


def test_a_delta_table_in_a_bucket_is_beside_its_data(
    s3: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    world = PublishedWorld(tmp_path / "home", DELTA, warehouse=f"s3://{bucket}/here")

    build_twice(world)

    table = DeltaTable(f"s3://{bucket}/here/sales")
    assert table.version() == 1
    assert rows_of(table.to_pyarrow_table()) == EXPECTED


def test_a_bucket_has_no_place_for_the_catalog_that_needs_no_configuration(bucket: str, tmp_path: Path) -> None:
    world = PublishedWorld(tmp_path / "home", ICEBERG, warehouse=f"s3://{bucket}/here")
    world.build(DAYS[0], {"x": [1]})

    with pytest.raises(NoPlaceForCatalog, match="has no catalog, and s3://.* is an object store"):
        world.publish()
