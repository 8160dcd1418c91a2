"""From the files that a writer has left to what a manifest says of them, and back to a table.

Row counts and columns come from the files themselves, as their format tells them: nothing is scanned, and what is
listed is what was written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.file_format import FileFormat
from databuild_dagster.warehouse.formats import WRITTEN, format_named
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Column, FileEntry, Manifest, TableSchema, UriType, local_paths
from databuild_dagster.warehouse.parquet import SPARK_SCHEMA_KEY
from databuild_dagster.warehouse.storage import storage_at

if TYPE_CHECKING:
    import pyarrow as pa

#: Schemas kept unpacked.
SCHEMAS_REMEMBERED = 256


class _SparkField(msgspec.Struct):
    name: str
    type: msgspec.Raw
    nullable: bool


class _SparkSchema(msgspec.Struct):
    fields: tuple[_SparkField, ...]


def table_schema(schema: pa.Schema) -> TableSchema:
    """A file's columns, in Spark's words if Spark has written them there."""
    spark = (schema.metadata or {}).get(SPARK_SCHEMA_KEY)
    if spark is None:
        return TableSchema(tuple(Column(field.name, str(field.type), field.nullable) for field in schema))
    return schema_from_spark(spark.decode())


def as_spark_writes(schema: pa.Schema) -> pa.Schema:
    """The columns of others' files as they stand in ours, so that both are read together.

    Categories become what they stand for, unsigned numbers the next wider signed ones; times without a zone are
    UTC.
    """
    import pyarrow as pa

    plain = {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20),
        pa.large_string(): pa.string(),
        pa.large_binary(): pa.binary(),
        pa.date64(): pa.date32(),
        **{pa.timestamp(unit): pa.timestamp("us", "UTC") for unit in ("s", "ms", "us")},
    }

    def as_ours(data_type: pa.DataType) -> pa.DataType:
        found = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
        return plain.get(found, found)

    return pa.schema([field.with_type(as_ours(field.type)) for field in schema])


def describe_files(
    folder: str,
    file_format: FileFormat = WRITTEN,
    columns_of: Callable[[pa.Schema], TableSchema] = table_schema,
) -> tuple[tuple[FileEntry, ...], TableSchema]:
    """The data files of a folder that one writer has just filled, and the columns they share.

    Only for a staging folder, which has one writer: an instance's own folder is never asked what it holds.
    """
    names = [
        name for name in disk.regular_files(folder) if name.startswith("part-") and name.endswith(file_format.suffix)
    ]
    assert names, f"{folder}: even a frame without rows is written as one file, which has the schema"
    entries = []
    schema = None
    for name in names:
        path = os.path.join(folder, name)
        facts = file_format.describe(path, path)
        size_bytes, checksum = disk.seal_file(path)
        entries.append(FileEntry(uri=name, bytes=size_bytes, rows=facts.rows, checksum=checksum))
        schema = schema or columns_of(facts.schema)
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

    tables = []
    missing = limit
    needed = list(manifests) if limit is None else _first_rows(manifests, limit)
    manifest_of = [manifest for manifest in needed for _ in manifest.files]
    for manifest, path in zip(manifest_of, local_paths(warehouse, needed), strict=True):
        if missing is not None and missing <= 0:
            break
        table = format_named(manifest.format).read(path, columns)
        if manifest.uri_type is UriType.IDENTIFIER and SPARK_SCHEMA_KEY not in (table.schema.metadata or {}):
            table = table.cast(as_spark_writes(table.schema))
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


@lru_cache(maxsize=SCHEMAS_REMEMBERED)
def schema_from_spark(text: str) -> TableSchema:
    """Columns as Spark's own JSON has them. Remembered: all instances of a dataset have the same."""
    fields = msgspec.json.decode(text, type=_SparkSchema).fields
    return TableSchema(tuple(Column(field.name, _type_text(field.type), field.nullable) for field in fields), text)


def _type_text(raw: msgspec.Raw) -> str:
    """`"long"` is long; a nested type stays the JSON that Spark wrote."""
    decoded = msgspec.json.decode(raw)
    return decoded if isinstance(decoded, str) else bytes(raw).decode()
