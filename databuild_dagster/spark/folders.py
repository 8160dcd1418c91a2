"""Attempts read by their folders: one listing where a list of files costs an engine several requests for each file.

Only where someone looks at the folders again before the result counts (decision 0040)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from databuild_dagster.model.refs import PARTITION_KEY
from databuild_dagster.spark.frames import load_files, with_keys_of
from databuild_dagster.spark.reach import Reach
from databuild_dagster.spark.schemas import quoted
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest
from databuild_dagster.warehouse.whole_folders import WholeFolders, whole_folders

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_FOLDER = "__databuild_folder"


def readable_folders(reach: Reach, warehouse: Warehouse, manifests: Sequence[Manifest]) -> list[WholeFolders]:
    """The attempts of these instances that a session can read by their folders. Raises `StorageTrouble`."""
    if not reach.reads_keys:
        return []
    # An engine that leaves no mark may take that of another one for data.
    return [found for found in whole_folders(warehouse, manifests) if reach.leaves_mark or not found.has_marks]


def load_folders(
    spark: SparkSession,
    schema: StructType,
    url: str,
    folders: WholeFolders,
    keys_of: Mapping[str, Sequence[str]],
    column: str,
) -> DataFrame:
    """The rows of the folders of one attempt, at `url`; `keys_of` has the keys that each instance serves.

    The key is in the last column. `schema` has the columns of the files.
    """
    import pyspark.sql.functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    read = StructType([*schema, StructField(PARTITION_KEY, StringType())])
    rows = load_files(spark, read, {folders.format: [url]}, base_path=url)
    if not folders.are_all:
        rows = rows.where(F.col(PARTITION_KEY).isin(list(folders.instances)))
    pairs = [(of_folder, key) for of_folder, uuid in folders.instances.items() for key in keys_of[uuid]]
    if all(of_folder == key for of_folder, key in pairs):
        rows = rows.withColumnRenamed(PARTITION_KEY, column)
    else:
        renamed = rows.withColumnRenamed(PARTITION_KEY, _FOLDER)
        rows = with_keys_of(renamed, _FOLDER, pairs, column, "Spark reads another partition key than was written")
    return rows.select(*(quoted(field.name) for field in schema), quoted(column))
