"""From the inputs of many outputs to a frame with the key of the output beside each row.

An instance that serves several outputs, as in a window of three days, comes once for each. A folder per key holds links
to the instances' files, so that Spark reads the key as a partition column, constant per file. A join with a table of keys
would be a Spark job of its own; a map from file to key would be searched for every row.

And from a frame to the keys in a column, and to the rows of a key (rule 10.4)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from databuild_dagster.model.refs import PARTITION_KEY
from databuild_dagster.spark import errors, pyspark_names, schemas, staging
from databuild_dagster.spark.frames import (
    by_columns,
    by_format,
    load_files,
    load_keyed,
    spark_paths,
    united,
    with_keys_of,
    with_types,
)
from databuild_dagster.spark.memory_frames import FrameKind, column_names, frame_kind, from_arrow, to_arrow, with_text
from databuild_dagster.spark.reach import Reach, in_place
from databuild_dagster.warehouse import disk, files, filters, formats
from databuild_dagster.warehouse.errors import ListedFileLost
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest
from databuild_dagster.warehouse.whole_folders import WholeFolders, whole_folders

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


Keyed = Mapping[str, Sequence[Manifest]]


def read_keyed(
    spark: SparkSession,
    warehouse: Warehouse,
    keyed: Keyed,
    folder: str | None,
    *,
    column: str = PARTITION_KEY,
    columns: StructType | None = None,
    on_folders: Callable[[WholeFolders], None] | None = None,
) -> DataFrame:
    """A frame of the rows of each key's instances; the key is the last column.

    `folder` must not exist yet, and must stay as long as the frame is used; None where Spark and this process share no
    disk. `columns` are by default the united columns of all instances. `on_folders` is called with folders that are read in
    place of their listed files, which the caller has to `check_unchanged`; without it, only listed files are read. Raises
    `NoSchema`, `SchemasDiffer`, `KeyColumnTaken`, `ListedFileLost`, `StorageTrouble`.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    manifests = list({manifest.instance_uuid: manifest for found in keyed.values() for manifest in found}.values())
    columns = columns or schemas.united_schema(manifests)
    refuse_taken(column, manifests)
    schema = StructType([*columns, StructField(column, StringType())])
    if groups := by_columns(manifests, columns):
        frames = []
        for place, (own, read) in enumerate(groups):
            uuids = {manifest.instance_uuid for manifest in read}
            some = {key: [one for one in found if one.instance_uuid in uuids] for key, found in keyed.items()}
            inner = folder and os.path.join(folder, str(place))
            rows = read_keyed(spark, warehouse, some, inner, column=column, columns=own, on_folders=on_folders)
            frames.append(with_types(rows, own, schema))
        frame: DataFrame = united(frames)
        return frame
    paths_of = spark_paths(spark, warehouse, manifests, columns)
    if not any(paths_of.values()):
        return spark.createDataFrame([], schema)
    reach = in_place(spark, warehouse)
    if reach is not None or folder is None or any("://" in path for found in paths_of.values() for path in found):
        return _read_in_place(spark, warehouse, reach, keyed, paths_of, columns, column, on_folders)
    links: dict[str, list[str]] = {}
    for key, found in keyed.items():
        of_key = os.path.join(folder, staging.folder_of(key, column))
        for name, paths in by_format(found, paths_of).items():
            links.setdefault(name, []).extend(_links(paths, of_key, formats.format_named(name).suffix))
    # By file: in a folder, Spark silently skips a link to a file that is gone.
    return load_files(spark, schema, links, base_path=folder)


def _read_in_place(
    spark: SparkSession,
    warehouse: Warehouse,
    reach: Reach | None,
    keyed: Keyed,
    paths_of: Mapping[str, Sequence[str]],
    columns: StructType,
    column: str,
    on_folders: Callable[[WholeFolders], None] | None,
) -> DataFrame:
    """The rows of files in place: by folders where `check_unchanged` can list the folders again, else by the lists of files."""
    keys_of: dict[str, list[str]] = {}
    manifests: dict[str, Manifest] = {}
    for key, found in keyed.items():
        for manifest in found:
            keys_of.setdefault(manifest.instance_uuid, []).append(key)
            manifests[manifest.instance_uuid] = manifest
    frames = []
    if reach is not None and on_folders is not None:
        for folders in readable_folders(reach, warehouse, list(manifests.values())):
            on_folders(folders)
            frames.append(load_folders(spark, columns, reach.url_of(folders.attempt), folders, keys_of, column))
            manifests = {uuid: one for uuid, one in manifests.items() if uuid not in folders.instances.values()}
    listed = {key: [one for one in found if one.instance_uuid in manifests] for key, found in keyed.items()}
    by_key = {key: by_format(found, paths_of) for key, found in listed.items()}
    if not frames or any(by_key.values()):
        names_files = reach is None or reach.names_files
        frames.append(load_keyed(spark, columns, by_key, column, names_files=names_files))
    frame: DataFrame = united(frames)
    return frame


def read_keyed_arrow(
    warehouse: Warehouse, keyed: Keyed, *, column: str = PARTITION_KEY, where: filters.Filter | None = None
) -> pa.Table:
    """The same rows as an Arrow table, without a Spark session. Raises the same, and `BadFilter`."""
    import pyarrow as pa

    manifests = [manifest for found in keyed.values() for manifest in found]
    schema = schemas.united_schema(manifests)
    refuse_taken(column, manifests)
    arrow_schema = pyspark_names.arrow_schema_of(schema)
    tables = {key: files.read_table(warehouse, found, columns=arrow_schema) for key, found in keyed.items() if found}
    if where is not None:
        # Of no rows, too: a bad filter is refused whether there are rows or not.
        _matching(arrow_schema.empty_table(), column, "", where)
        tables = {key: _matching(table, column, key, where) for key, table in tables.items() if table.num_rows}
    found_rows = [with_text(table, column, key) for key, table in tables.items() if table.num_rows]
    nothing = with_text(arrow_schema.empty_table(), column, "")
    return pa.concat_tables(found_rows or [nothing], promote_options="permissive")


def _matching(table: pa.Table, column: str, key: str, where: filters.Filter) -> pa.Table:
    """The matching rows; the filter may name the key."""
    return filters.matching_rows(with_text(table, column, key), where).drop_columns([column])


def with_key(frame: Any, key: str) -> Any:
    """Any frame with the same key in every row, in its column `partition_key`."""
    if not _is_spark(frame):
        return with_text(frame, PARTITION_KEY, key)
    import pyspark.sql.functions as F

    return frame.withColumn(PARTITION_KEY, F.lit(key))


def refuse_taken(column: str, manifests: Sequence[Manifest]) -> None:
    """Raises `KeyColumnTaken`; for Spark, `A` and `a` are the same column."""
    for schema in {manifest.schema for manifest in manifests}:
        if any(own.name.lower() == column.lower() for own in schema.columns):
            raise errors.KeyColumnTaken(asset=manifests[0].dataset, column=column)


def _links(paths: Sequence[str], folder: str, suffix: str) -> list[str]:
    """A symbolic link to each file: a hard link may not leave its disk, nor point at a file of a different user."""
    disk.make_dirs(folder)
    links = [os.path.join(folder, f"part-{number:05}{suffix}") for number in range(len(paths))]
    with disk.explained(folder, "written"):
        for path, link in zip(paths, links, strict=True):
            # Spark's error would name the link, which no user knows.
            if not os.path.exists(path):
                raise ListedFileLost(path=path, why="it is not there")
            os.symlink(path, link)
    return links


def values_of(frame: Any, column: str, asset: str, most: int) -> list[Any]:
    """The different values of a column, None for null; at most `most` + 1, unordered.

    For Spark this is a job that reads only that column. Raises `BadPartColumn`.
    """
    columns = column_names(frame)
    if columns.count(column) != 1:
        why = f"it has {columns.count(column)} columns of that name" if column in columns else "it has no such column"
        raise errors.BadPartColumn(asset=asset, column=column, why=why)
    if _is_spark(frame):
        return [row[0] for row in frame.select(schemas.quoted(column)).distinct().limit(most + 1).collect()]
    try:
        found = _series(frame, column).drop_duplicates().tolist()
    except TypeError as error:  # Lists, for example, which pandas cannot compare.
        raise errors.BadPartColumn(asset=asset, column=column, why="its values cannot be compared") from error
    # pandas has several nulls; all but None differ from themselves.
    return list(dict.fromkeys(None if _is_null(value) else value for value in found))[: most + 1]


def rows_of(frame: Any, column: str, value: Any) -> Any:
    """The rows of a frame whose column has the value; None for null."""
    if not _is_spark(frame):
        return _in_memory_rows_of(frame, column, value)
    import pyspark.sql.functions as F

    # A plain comparison, which Parquet's own statistics can answer.
    found = F.col(schemas.quoted(column))
    return frame.filter(found.isNull() if value is None else found == F.lit(value))


def _series(frame: Any, column: str) -> pd.Series:
    """A column of a frame in memory, as pandas has it."""
    if frame_kind(type(frame)) is FrameKind.PANDAS:
        series: pd.Series = frame[column]
        return series
    found: pd.Series = to_arrow(frame).column(column).to_pandas()
    return found


def _in_memory_rows_of(frame: Any, column: str, value: Any) -> Any:
    series, kind = _series(frame, column), frame_kind(type(frame))
    chosen = series.isna() if value is None else series == value
    if kind is FrameKind.PANDAS:
        return frame[chosen].reset_index(drop=True)
    assert kind is not None, f"{type(frame)} is no frame"
    import pyarrow as pa

    return from_arrow(to_arrow(frame).filter(pa.array(chosen)), kind)


def _is_null(value: Any) -> bool:
    import pandas as pd

    return value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value)


def _is_spark(frame: Any) -> bool:
    return hasattr(frame, "unionByName")


# Attempts read by their folders: one listing where a list of files costs an engine several requests for each file. Only
# where someone looks at the folders again before the result counts (decision 0040).


_FOLDER = "__databuild_folder"


def readable_folders(reach: Reach, warehouse: Warehouse, manifests: Sequence[Manifest]) -> list[WholeFolders]:
    """The attempts of the instances that a session can read by their folders. Raises `StorageTrouble`."""
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
    """The rows of the folders of an attempt, at `url`; `keys_of` has the keys that each instance serves.

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
    return rows.select(*(schemas.quoted(field.name) for field in schema), schemas.quoted(column))
