"""A store with real Parquet files, and a dataset that is published as a table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from databuild_dagster.data.home import sqlite_url
from databuild_dagster.features.clean.cleaning import Cleaner
from databuild_dagster.features.tables.keeping import PublishedFiles
from databuild_dagster.features.tables.opening import open_table, place_of
from databuild_dagster.features.tables.port import Table
from databuild_dagster.features.tables.publisher import Published, publish
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetSpec, PartitionColumn, PartitionType, TableFormat, TableSpec
from databuild_dagster.model.events import Arrival, ManifestFact
from databuild_dagster.model.refs import asset_of, derive_partition_uuid
from databuild_dagster.spark.schemas import columns_of
from databuild_dagster.warehouse.files import describe_files, publish_files
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    FileEntry,
    Manifest,
    ManifestState,
    TableSchema,
    UriType,
    manifest_fact,
    write_manifest,
)
from tests.support.catalog import dataset
from tests.support.world import World

DAYS = ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04")
DAY = PartitionColumn("day", PartitionType.DATE, "%Y-%m-%d")
ICEBERG = TableSpec(format=TableFormat.ICEBERG, name="shop.sales", columns=(DAY,))
DELTA = TableSpec(format=TableFormat.DELTA, columns=(DAY,))

Rows = dict[str, list[Any]] | pa.Table


class PublishedWorld(World):
    """`sales`, with a partition per day, in a home of its own."""

    def __init__(
        self, home: Path, table: TableSpec, keys: Sequence[str] = DAYS, *, warehouse: str = "", **options: Any
    ) -> None:
        home.mkdir(exist_ok=True)
        self.home = home
        self.asset = asset = "sales"
        self.warehouse = Warehouse(warehouse or str(home / "warehouse"))
        spec = msgspec.structs.replace(dataset(asset, keys=keys), table=table)
        super().__init__([spec], url=sqlite_url(home), **options)

    @property
    def spec(self) -> DatasetSpec:
        return self.specs[0]

    def table(self) -> Table:
        return open_table(place_of(self.spec, self.warehouse.root))

    def publish(self, **options: Any) -> Published:
        return publish(self.engine, self.spec, self.warehouse.root, **options)

    def ref(self, key: str | None) -> str:
        return self.asset if key is None else f"{self.asset}@{key}"

    def build(self, key: str | None, *parts: Rows, inputs: Sequence[str] = ()) -> str:
        """An instance with a file for each part; without any it is empty. `inputs` are other keys. Returns its uuid."""
        ref = self.ref(key)
        job_run = self.job_run(ref)
        return self.succeed(
            ref, inputs=map(self.ref, inputs), manifest=written_fact(self.warehouse, ref, job_run, *parts)
        )

    def fail_after_writing(self, key: str, *parts: Rows) -> None:
        """An attempt that leaves its files."""
        written_fact(self.warehouse, self.ref(key), self.job_run(self.ref(key)), *parts)
        self.fail(self.ref(key))

    def adopt(self, key: str, path: Path, rows: Rows) -> str:
        """An instance of a file that is elsewhere."""
        ref = self.ref(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(_table(rows), path)
        job_run = self.ids()
        entry = FileEntry(str(path), path.stat().st_size, pq.read_metadata(path).num_rows, "sha256:00")
        manifest = _manifest(ref, job_run, (entry,), pq.read_schema(path), UriType.IDENTIFIER)
        uri = write_manifest(self.warehouse, manifest)
        arrival = Arrival(job_run_id=job_run, ref=ref, origin=str(path), manifest=manifest_fact(manifest, uri))
        self.handle(c.ArriveLots(arrivals=(arrival,)))
        return derive_partition_uuid(job_run, ref)

    def revert(self, key: str, uuid: str) -> None:
        self.handle(c.RevertCanonical(ref=self.ref(key), uuid=uuid))

    def gc(self, **options: Any) -> list[str]:
        """Remove superseded instances; returns their uuids."""
        tables = PublishedFiles(self.store, self.warehouse.root)
        cleaner = Cleaner(self.engine, self.warehouse.root, [tables])
        plan = cleaner.plan_gc(keep=0, older_than_seconds=0.0, **options)
        done = cleaner.carry_out(plan)
        assert done.failed == []
        return [going.uuid for going in done.going]


def written_fact(warehouse: Warehouse, ref: str, job_run: str, *parts: Rows) -> ManifestFact:
    """The data of an instance with a file for each part; without any it is empty."""
    entries, schema = _stored(warehouse, ref, job_run, parts) if parts else ((), TableSchema(()))
    manifest = _manifest(ref, job_run, entries, schema)
    return manifest_fact(manifest, write_manifest(warehouse, manifest))


def _stored(
    warehouse: Warehouse, ref: str, job_run: str, parts: Sequence[Rows]
) -> tuple[tuple[FileEntry, ...], TableSchema]:
    staging = warehouse.new_staging_dir(job_run)
    os.makedirs(staging)
    for number, rows in enumerate(parts):
        pq.write_table(_table(rows), f"{staging}/part-{number}.parquet")
    entries, schema = describe_files(staging, columns_of=columns_of)
    folder = warehouse.instance_dir(asset_of(ref), derive_partition_uuid(job_run, ref))
    return publish_files(staging, folder, entries), schema


def _manifest(
    ref: str,
    job_run: str,
    files: tuple[FileEntry, ...],
    schema: TableSchema | pa.Schema,
    uri_type: UriType = UriType.PATH,
) -> Manifest:
    return Manifest(
        dataset=asset_of(ref),
        ref=ref,
        instance_uuid=derive_partition_uuid(job_run, ref),
        job_run=job_run,
        attempt=1,
        state=ManifestState.COMPLETE if files else ManifestState.EMPTY,
        uri_type=uri_type,
        files=files,
        created_at=datetime(2024, 1, 5, tzinfo=UTC),
        schema=schema if isinstance(schema, TableSchema) else columns_of(schema),
    )


def _table(rows: Rows) -> pa.Table:
    return rows if isinstance(rows, pa.Table) else pa.table(rows)


def sorted_rows(table: pa.Table) -> list[tuple[str, ...]]:
    """The rows with the columns by name, in one order."""
    names = sorted(table.column_names)
    rows = [tuple(f"{name}={row[name]!r}" for name in names) for row in table.to_pylist()]
    return sorted(rows)
