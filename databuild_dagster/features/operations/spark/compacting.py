"""The small files of an instance written again as few files; a checksum proves that the rows are the same (rule 9.8)."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.spark.frames import read_instances
from databuild_dagster.spark.reach import in_place
from databuild_dagster.spark.schemas import absent_columns, quoted
from databuild_dagster.spark.staging import publish, read_staged, stage_instance
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest, ManifestState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Target size of a file: opening it takes little time beside reading it.
TARGET_BYTES = 128 * 1024 * 1024


class NotTheSame(DatabuildError):
    """The compacted files of {ref} do not hold the rows of instance {uuid}: {found} instead of {expected}."""

    hint = "Nothing was changed; please report it, with what the columns hold."


class Contents(NamedTuple):
    """A summary of rows that depends neither on their order nor on their files."""

    rows: int
    #: The sum of every row's hash.
    checksum: str

    def __str__(self) -> str:
        return f"{self.rows} rows with checksum {self.checksum}"


def files_after(manifest: Manifest, target_bytes: int = TARGET_BYTES) -> int:
    """Target number of files after compaction, never more than now."""
    wanted = max(1, math.ceil(manifest.bytes / target_bytes))
    return min(len(manifest.files), wanted)


def contents_of(frame: DataFrame) -> Contents:
    """The summary of a frame, by a single Spark job over all columns."""
    import pyspark.sql.functions as F

    # A type that contains a map has no hash, so it is hashed as text.
    columns = [
        F.to_json(F.struct(quoted(field.name))) if _has_map(field.dataType) else F.col(quoted(field.name))
        for field in frame.schema.fields
    ]
    hashed = F.xxhash64(*columns).cast("decimal(20,0)")
    row = frame.agg(F.count(F.lit(1)).alias("rows"), F.sum(hashed).cast("string").alias("checksum")).collect()[0]
    return Contents(row["rows"], row["checksum"] or "0")


def compact_instance(
    spark: SparkSession,
    warehouse: Warehouse,
    manifest: Manifest,
    folder: str,
    *,
    uuid: str,
    job_run: str,
    target_bytes: int = TARGET_BYTES,
) -> Manifest:
    """A new instance with the rows of `manifest`'s instance, in `files_after` files; readers see it only after its event.

    It is written to `folder`, from which publishing is cheap, or by Spark itself into the warehouse. Raises `NotTheSame`,
    and what reading and writing raise, before anything is published.
    """
    frame = read_instances(spark, warehouse, [manifest]).drop(*absent_columns(manifest.schema))
    expected = contents_of(frame)
    reach = in_place(spark, warehouse)
    place = os.path.join(folder, "data") if reach is None else warehouse.new_attempt_dir(manifest.dataset, job_run)
    coalesce = files_after(manifest, target_bytes)
    staged = stage_instance(frame, place, ref=manifest.ref, coalesce=coalesce, reach=reach)
    found = contents_of(read_staged(spark, {None: staged}, by_key=False))
    if found != expected:
        raise NotTheSame(ref=manifest.ref, uuid=manifest.instance_uuid, found=found, expected=expected)
    return publish(
        # Spark writes each column as nullable; its readers see every column so.
        replace(staged, schema=manifest.schema),
        warehouse,
        ref=manifest.ref,
        uuid=uuid,
        job_run=job_run,
        lot_id=manifest.lot_id,
        inputs=manifest.inputs,
        state=ManifestState(manifest.state),
        comment=f"Compacted: the rows of instance {manifest.instance_uuid} in fewer files.",
    )


def _has_map(data_type: object) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType

    match data_type:
        case MapType():
            return True
        case ArrayType(elementType=element):
            return _has_map(element)
        case StructType(fields=fields):
            return any(_has_map(field.dataType) for field in fields)
    return False
