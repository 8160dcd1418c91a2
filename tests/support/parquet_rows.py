"""Instances with real Parquet files, which a test writes without Spark and without a feature."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from databuild_dagster.model.events import ManifestFact
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

Rows = dict[str, list[Any]] | pa.Table


def written_fact(warehouse: Warehouse, ref: str, job_run: str, *parts: Rows) -> ManifestFact:
    """The data of an instance with a file for each part; without any it is empty."""
    entries, schema = _stored(warehouse, ref, job_run, parts) if parts else ((), TableSchema(()))
    manifest = make_manifest(ref, job_run, entries, schema)
    return manifest_fact(manifest, write_manifest(warehouse, manifest))


def _stored(
    warehouse: Warehouse, ref: str, job_run: str, parts: Sequence[Rows]
) -> tuple[tuple[FileEntry, ...], TableSchema]:
    staging = warehouse.new_staging_dir(job_run)
    os.makedirs(staging)
    for number, rows in enumerate(parts):
        pq.write_table(as_table(rows), f"{staging}/part-{number}.parquet")
    entries, schema = describe_files(staging, columns_of=columns_of)
    folder = warehouse.instance_dir(asset_of(ref), derive_partition_uuid(job_run, ref))
    return publish_files(staging, folder, entries), schema


def make_manifest(
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


def as_table(rows: Rows) -> pa.Table:
    return rows if isinstance(rows, pa.Table) else pa.table(rows)
