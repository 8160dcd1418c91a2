"""A store with real Parquet files, and a dataset that is published as a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from databuild_dagster.data.home import sqlite_url
from databuild_dagster.features.tables.keeping import PublishedFiles
from databuild_dagster.features.tables.opening import open_table, place_of
from databuild_dagster.features.tables.port import Table
from databuild_dagster.features.tables.publisher import Published, publish
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetSpec, PartitionColumn, PartitionType, TableFormat, TableSpec
from databuild_dagster.model.events import Arrival
from databuild_dagster.model.refs import derive_partition_uuid
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    FileEntry,
    UriType,
    file_paths,
    manifest_fact,
    read_manifest,
    write_manifest,
)
from tests.support.catalog import dataset
from tests.support.parquet_rows import Rows, as_table, make_manifest, written_fact
from tests.support.world import World

#: Dagster's class of the definition.
STATIC = "ExternalStaticPartitionsDefinitionData"
DAYS = ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04")
DAY = PartitionColumn("day", PartitionType.DATE, "%Y-%m-%d")
ICEBERG = TableSpec(format=TableFormat.ICEBERG, name="shop.sales", columns=(DAY,))
DELTA = TableSpec(format=TableFormat.DELTA, columns=(DAY,))


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
        if keys:
            spec = msgspec.structs.replace(
                spec, partitions=json.dumps({"__class__": STATIC, "partition_keys": list(keys)})
            )
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

    def build(self, key: str | None, *parts: Rows, inputs: Sequence[str] = (), content_hash: str | None = None) -> str:
        """An instance with a file for each part; without any it is empty. `inputs` are other keys. Returns its uuid."""
        ref = self.ref(key)
        written = written_fact(self.warehouse, ref, self.job_run(ref), *parts)
        manifest = msgspec.structs.replace(written, content_hash=content_hash)
        return self.succeed(ref, inputs=map(self.ref, inputs), manifest=manifest)

    def rows_of(self, key: str) -> pa.Table:
        """The rows of the instance that readers see."""
        uuid = self.canonical(self.ref(key)).uuid
        files = file_paths(self.warehouse, read_manifest(self.warehouse, self.asset, uuid))
        return pa.concat_tables([pq.read_table(file) for file in files]) if files else pa.table({})

    def compact(self, key: str, *parts: Rows, erased: bool = False) -> str:
        """Replace the files of the instance that readers see by files with its rows, or with what an erasure left; the uuid."""
        ref, job_run = self.ref(key), self.ids()
        seen = self.canonical(ref).uuid
        manifest = written_fact(self.warehouse, ref, job_run, *parts)
        self.handle(c.ReplaceFiles(ref=ref, uuid=seen, job_run_id=job_run, manifest=manifest, erased=erased))
        return derive_partition_uuid(job_run, ref)

    def fail_after_writing(self, key: str, *parts: Rows) -> None:
        """An attempt that leaves its files."""
        written_fact(self.warehouse, self.ref(key), self.job_run(self.ref(key)), *parts)
        self.fail(self.ref(key))

    def adopt(self, key: str, path: Path, rows: Rows) -> str:
        """An instance of a file that is elsewhere."""
        ref = self.ref(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(as_table(rows), path)
        job_run = self.ids()
        entry = FileEntry(str(path), path.stat().st_size, pq.read_metadata(path).num_rows, "sha256:00")
        manifest = make_manifest(ref, job_run, (entry,), pq.read_schema(path), UriType.IDENTIFIER)
        uri = write_manifest(self.warehouse, manifest)
        arrival = Arrival(job_run_id=job_run, ref=ref, origin=str(path), manifest=manifest_fact(manifest, uri))
        self.handle(c.ArriveLots(arrivals=(arrival,)))
        return derive_partition_uuid(job_run, ref)

    def revert(self, key: str, uuid: str) -> None:
        self.handle(c.RevertCanonical(ref=self.ref(key), uuid=uuid))

    def gc(self, **options: Any) -> list[str]:
        """Remove superseded instances; returns their uuids."""
        # Inside, because the feature may be left out.
        from databuild_dagster.features.clean.cleaning import Cleaner

        tables = PublishedFiles(self.store, self.warehouse.root)
        cleaner = Cleaner(self.engine, self.warehouse.root, [tables])
        plan = cleaner.plan_gc(keep=0, older_than_seconds=0.0, **options)
        done = cleaner.carry_out(plan)
        assert done.failed == []
        return [going.uuid for going in done.going]


def sorted_rows(table: pa.Table) -> list[tuple[str, ...]]:
    """The rows with the columns by name, in one order."""
    names = sorted(table.column_names)
    rows = [tuple(f"{name}={row[name]!r}" for name in names) for row in table.to_pylist()]
    return sorted(rows)
