"""Instances that a test writes at once, as a build would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from databuild_dagster.model.refs import AnyRef, Ref, parse_ref
from databuild_dagster.spark.staging import Known, publish, stage_instance, staging
from databuild_dagster.warehouse.formats import WRITTEN, FileFormat
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest


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
