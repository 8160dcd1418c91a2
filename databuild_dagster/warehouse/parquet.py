"""From Parquet files to what a manifest says of them, and back to a table.

Row counts and columns come from the files' footers: nothing is scanned, and what is listed is what was
written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.errors import NotParquet
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Column, FileEntry, Manifest, TableSchema, local_paths
from databuild_dagster.warehouse.storage import storage_at

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

#: Where Spark keeps its own schema in a footer.
SPARK_SCHEMA_KEY = b"org.apache.spark.sql.parquet.row.metadata"
#: Schemas kept unpacked.
SCHEMAS_REMEMBERED = 256


class _SparkField(msgspec.Struct):
    name: str
    type: msgspec.Raw
    nullable: bool


class _SparkSchema(msgspec.Struct):
    fields: tuple[_SparkField, ...]


def describe_files(folder: str) -> tuple[tuple[FileEntry, ...], TableSchema]:
    """The data files of a folder that one writer has just filled, and the columns they share.

    Only for a staging folder, which has one writer: an instance's own folder is never asked what it holds.
    """
    names = [name for name in disk.regular_files(folder) if name.startswith("part-") and name.endswith(".parquet")]
    assert names, f"{folder}: even a frame without rows is written as one file, which has the schema"
    entries = []
    schema = None
    for name in names:
        footer = _footer(os.path.join(folder, name))
        size_bytes, checksum = disk.seal_file(os.path.join(folder, name))
        entries.append(FileEntry(uri=name, bytes=size_bytes, rows=footer.num_rows, checksum=checksum))
        schema = schema or table_schema(footer.schema.to_arrow_schema())
    assert schema is not None
    return tuple(entries), schema


def publish_files(staging: str, instance_dir: str, files: Iterable[FileEntry]) -> None:
    """Move or upload what was described from the staging folder to the instance's own, where it stays unchanged."""
    storage_at(instance_dir).publish(staging, instance_dir, [file.uri for file in files])


def read_table(
    warehouse: Warehouse,
    manifests: Sequence[Manifest],
    *,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
) -> pa.Table:
    """The rows of instances without Spark, for a look or for pandas: files in order, at most `limit` rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    missing = limit
    needed = list(manifests) if limit is None else _first_rows(manifests, limit)
    for path in local_paths(warehouse, needed):
        if missing is not None and missing <= 0:
            break
        try:
            # partitioning=None: otherwise `instance=<uuid>` in the path would come as a column.
            table = pq.read_table(path, columns=list(columns) if columns else None, partitioning=None)
        except (OSError, pa.ArrowException) as error:
            raise NotParquet(path=path, why=_first_line(error)) from error
        tables.append(table if missing is None else table.slice(0, missing))
        missing = None if missing is None else missing - tables[-1].num_rows
    if not tables:
        return pa.table({column.name: pa.nulls(0) for manifest in manifests[:1] for column in manifest.schema.columns})
    return pa.concat_tables(tables, promote_options="permissive")


def _first_rows(manifests: Sequence[Manifest], rows: int) -> list[Manifest]:
    """The manifests cut after the file that brings the last of so many rows: the others are not even fetched."""
    found = []
    for manifest in manifests:
        files = []
        for file in manifest.files:
            if rows <= 0:
                break
            files.append(file)
            rows -= file.rows
        found.append(msgspec.structs.replace(manifest, files=tuple(files)))
    return found


def write_table(table: pa.Table, path: str) -> None:
    """One file with the rows of a table, the schema's metadata included."""
    import pyarrow.parquet as pq

    with disk.explained(path, "written"):
        pq.write_table(table, path, compression="snappy")


def table_schema(schema: pa.Schema) -> TableSchema:
    """A footer's columns, in Spark's words if Spark has written them there."""
    spark = (schema.metadata or {}).get(SPARK_SCHEMA_KEY)
    if spark is None:
        return TableSchema(tuple(Column(field.name, str(field.type), field.nullable) for field in schema))
    return schema_from_spark(spark.decode())


@lru_cache(maxsize=SCHEMAS_REMEMBERED)
def schema_from_spark(text: str) -> TableSchema:
    """Columns as Spark's own JSON has them. Remembered: all instances of a dataset have the same."""
    fields = msgspec.json.decode(text, type=_SparkSchema).fields
    return TableSchema(tuple(Column(field.name, _type_text(field.type), field.nullable) for field in fields), text)


def _type_text(raw: msgspec.Raw) -> str:
    """`"long"` is long; a nested type stays the JSON that Spark wrote."""
    decoded = msgspec.json.decode(raw)
    return decoded if isinstance(decoded, str) else bytes(raw).decode()


def _footer(path: str) -> pq.FileMetaData:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise NotParquet(path=path, why=_first_line(error)) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
