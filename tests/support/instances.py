"""Instances that a test writes at once, as a build would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from databuild_dagster.engine.holders import new_id
from databuild_dagster.model.refs import AnyRef, Ref, asset_of, derive_partition_uuid, parse_ref
from databuild_dagster.spark.reach import in_place
from databuild_dagster.spark.schemas import columns_of
from databuild_dagster.spark.staging import Known, publish, stage_instance, staging
from databuild_dagster.warehouse.files import OutsideFile
from databuild_dagster.warehouse.formats import WRITTEN, FileFormat
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest, ManifestState, TableSchema, UriType


def write_instance(
    frame: Any,
    warehouse: Warehouse,
    *,
    ref: AnyRef,
    uuid: str,
    job_run: str,
    inputs: Mapping[Ref, str] | None = None,
    coalesce: int | None = None,
    file_format: FileFormat = WRITTEN,
    known: Known = lambda: None,
    **facts: Any,
) -> Manifest:
    """Stage a frame and publish it at once. `facts` are further arguments of `publish`."""
    named = parse_ref(ref)
    with staging(warehouse, uuid) as folder:
        staged = stage_instance(frame, folder, ref=named, coalesce=coalesce, file_format=file_format, known=known)
        return publish(staged, warehouse, ref=named, uuid=uuid, job_run=job_run, inputs=inputs or {}, **facts)


def written_by_engine(frame: Any, warehouse: Warehouse, ref: Ref) -> Manifest:
    """A frame of an engine that writes in place, as Sail does, is written by it; any other is staged."""
    session, job_run = getattr(frame, "sparkSession", None), new_id()
    uuid = derive_partition_uuid(job_run, ref)
    reach = None if session is None else in_place(session, warehouse)
    if reach is None:
        return write_instance(frame, warehouse, ref=ref, uuid=uuid, job_run=job_run)
    staged = stage_instance(frame, warehouse.new_attempt_dir(ref, job_run), ref=ref, reach=reach)
    return publish(staged, warehouse, ref=ref, inputs={}, uuid=uuid, job_run=job_run)


def landed_manifest(
    files: Sequence[OutsideFile], *, ref: AnyRef, schema: TableSchema | None = None, job_run: str | None = None
) -> Manifest:
    """The manifest of files of other programs, as an arrival records it. `schema` is by default that of the first file."""
    named, job_run = parse_ref(ref), job_run or new_id()
    return Manifest(
        dataset=asset_of(named),
        ref=named,
        instance_uuid=derive_partition_uuid(job_run, named),
        job_run=job_run,
        attempt=1,
        state=ManifestState.COMPLETE,
        uri_type=UriType.IDENTIFIER,
        files=tuple(file.entry for file in files),
        created_at=datetime(2013, 1, 2, tzinfo=UTC),
        schema=schema or columns_of(files[0].schema),
    )
