"""Instances that a test writes into a warehouse itself, without an engine: their files, their manifests, and a race for one."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier
from typing import Any

import msgspec
import pyarrow as pa

from databuild_dagster.warehouse import disk, local_copies
from databuild_dagster.warehouse.errors import ManifestConflict
from databuild_dagster.warehouse.files import describe_files, publish_files
from databuild_dagster.warehouse.formats import WRITTEN
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest, ManifestState, TableSchema, write_manifest

ASSET = "raw/flights"
UUID = "5e0002a1-0f3d-bd95-db63-b1ac4bedec0f"
OTHER = "579bd65c-4ec2-280d-148b-69c8ddecd1b2"


def manifest_of(**changes: Any) -> Manifest:
    manifest = Manifest(
        dataset=ASSET,
        ref=f"{ASSET}@2013-01-01",
        instance_uuid=UUID,
        job_run="0190b6a0-0000-7000-8000-000000000000",
        attempt=1,
        state=ManifestState.COMPLETE,
        created_at=datetime(2013, 1, 2, tzinfo=UTC),
        schema=TableSchema(()),
    )
    return msgspec.structs.replace(manifest, **changes)


def publish(warehouse: Warehouse, *tables: pa.Table, uuid: str = UUID) -> Manifest:
    """Put the files into their place; the manifest is for the caller to write."""
    staging = warehouse.new_staging_dir(uuid)
    disk.make_dirs(staging)
    for number, table in enumerate(tables):
        WRITTEN.write(table, os.path.join(staging, f"part-{number}-{uuid[:4]}.parquet"))
    files, schema = describe_files(staging)
    publish_files(staging, warehouse.instance_dir(ASSET, uuid), files)
    disk.remove_tree(staging)
    return manifest_of(files=files, schema=schema, instance_uuid=uuid)


def write(warehouse: Warehouse, *tables: pa.Table, uuid: str = UUID) -> Manifest:
    manifest = publish(warehouse, *tables, uuid=uuid)
    write_manifest(warehouse, manifest)
    return manifest


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def clear_cache() -> None:
    disk.remove_tree(local_copies.cache_dir())


def winners_of_a_race(warehouse: Warehouse, n_writers: int, make: Callable[..., Manifest] = manifest_of) -> list[int]:
    """The attempts whose manifests were accepted, of threads that write one for the same instance at the same moment."""
    together = Barrier(n_writers)

    def write_attempt(attempt: int) -> int | None:
        together.wait()
        try:
            write_manifest(warehouse, make(attempt=attempt))
        except ManifestConflict:
            return None
        return attempt

    with ThreadPoolExecutor(n_writers) as threads:
        outcomes = list(threads.map(write_attempt, range(1, n_writers + 1)))
    return [attempt for attempt in outcomes if attempt is not None]
