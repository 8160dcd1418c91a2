"""From written files to their entries in a manifest, and from a manifest back to a table.

Row counts and columns come from the files' own footers; no rows are scanned. Other programs own the files outside of any warehouse
that a pattern finds: databuild lists and describes them, and never moves, copies or removes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from unicodedata import category

import msgspec

from databuild_dagster.warehouse import disk, errors, formats, storage
from databuild_dagster.warehouse.layout import ATTEMPT, Warehouse
from databuild_dagster.warehouse.manifest import (
    Column,
    FileEntry,
    Manifest,
    TableSchema,
    UriType,
    file_paths,
    local_paths,
)

if TYPE_CHECKING:
    import pyarrow as pa

#: The key, in the metadata of a field of Spark, of its type with void for what has no value (`spark.schemas`).
VOID = "databuild.void"
#: Parsed schemas that are cached.
SCHEMAS_REMEMBERED = 256
#: Columns of a sample; the schema names all of them.
MAX_COLUMNS = 20
#: A sample reads one row group; a larger row group than this is not opened.
MAX_ROW_GROUP_BYTES = 4 << 20


class _SparkField(msgspec.Struct):
    name: str
    type: msgspec.Raw
    nullable: bool
    metadata: dict[str, msgspec.Raw] = {}


class _SparkSchema(msgspec.Struct):
    fields: tuple[_SparkField, ...]


_ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"

# Made at import, as those of manifests.
_spark_schema_of = msgspec.json.Decoder(_SparkSchema).decode


def keep_no_freed_memory() -> None:
    """Let Arrow allocate by malloc in this process, unless `ARROW_DEFAULT_MEMORY_POOL` is set. Its own allocator keeps what was freed.

    Called before the first import of PyArrow, the choice holds for Arrow's own C++ code, too: about 25 MB in the example's year.
    """
    if _ARROW_POOL in os.environ:
        return
    # Arrow reads the variable when it is loaded. Child processes and the note of a load do not see it.
    os.environ[_ARROW_POOL] = "system"
    import pyarrow as pa

    del os.environ[_ARROW_POOL]
    pa.set_memory_pool(pa.system_memory_pool())


def return_freed_memory() -> None:
    """Give the system back what this process freed, such as the rows of an asset's function that now are in a frame.

    Takes less than 1 ms if there is nothing.
    """
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


def table_schema(schema: pa.Schema) -> TableSchema:
    """A file's columns, in Spark's words if Spark wrote the file."""
    spark = (schema.metadata or {}).get(formats.SPARK_SCHEMA_KEY)
    if spark is None:
        return TableSchema(tuple(Column(field.name, str(field.type), field.nullable) for field in schema))
    return schema_from_spark(spark.decode())


def as_spark_writes(schema: pa.Schema) -> pa.Schema:
    """The columns of adopted files with the types that Spark writes, so that both are read together; naive times are UTC."""
    import pyarrow as pa

    naive = {pa.timestamp(unit): pa.timestamp("us", "UTC") for unit in ("s", "ms", "us")}
    plain = [field.with_type(plain_type(field.type)) for field in schema]
    return pa.schema([field.with_type(naive.get(field.type, field.type)) for field in plain])


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that Spark has for an Arrow type, also inside of lists and structs.

    Categories become their values, unsigned numbers the next wider signed numbers. A type that differs only in its layout in
    memory becomes the usual type.
    """
    import pyarrow as pa

    is_a = pa.types
    if is_a.is_dictionary(kind):
        return plain_type(kind.value_type)
    if is_a.is_unsigned_integer(kind):
        wider = {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}
        return wider.get(kind.bit_width, pa.decimal128(20))
    if is_a.is_large_string(kind) or is_a.is_string_view(kind):
        return pa.string()
    if is_a.is_large_binary(kind) or is_a.is_binary_view(kind):
        return pa.binary()
    if is_a.is_decimal(kind) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    if is_a.is_date64(kind):
        return pa.date32()
    if is_a.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(plain_type(kind.key_type)), kind.item_field.with_type(plain_type(kind.item_type))
        )
    if is_a.is_list(kind) or is_a.is_large_list(kind) or is_a.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(plain_type(kind.value_type)))
    if is_a.is_struct(kind):
        return pa.struct(
            [kind.field(place).with_type(plain_type(kind.field(place).type)) for place in range(kind.num_fields)]
        )
    return kind


def parts_of(kind: pa.DataType) -> Iterator[pa.DataType]:
    """A type, and all types inside of it."""
    yield kind
    for place in range(kind.num_fields):
        yield from parts_of(kind.field(place).type)


def describe_files(
    folder: str,
    file_format: formats.FileFormat = formats.WRITTEN,
    columns_of: Callable[[pa.Schema], TableSchema] = table_schema,
) -> tuple[tuple[FileEntry, ...], TableSchema]:
    """The data files of a staging folder, which has a single writer, and the columns they share.

    Never for an instance's own folder, whose files the manifest lists.
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


def publish_files(staging: str, instance_dir: str, files: Sequence[FileEntry]) -> tuple[FileEntry, ...]:
    """Move or upload described files from the staging folder to the instance's own, where they stay unchanged.

    Files of an attempt stay where they are. Returns the entries for the instance's manifest.
    """
    attempt = staging.removeprefix(instance_dir.rpartition("/")[0])
    if not attempt.startswith(f"/{ATTEMPT}"):
        storage.storage_at(instance_dir).publish(staging, instance_dir, [file.uri for file in files])
        return tuple(files)
    return tuple(msgspec.structs.replace(file, uri=f"..{attempt}/{file.uri}") for file in files)


def read_table(
    warehouse: Warehouse,
    manifests: Sequence[Manifest],
    *,
    columns: pa.Schema | None = None,
    limit: int | None = None,
) -> pa.Table:
    """The rows of instances without Spark: files in order, at most `limit` rows. Without `columns`, all columns of the files."""
    import pyarrow as pa

    tables = []
    missing = limit
    needed = list(manifests) if limit is None else _first_rows(manifests, limit)
    manifest_of = [manifest for manifest in needed for _ in manifest.files]
    for manifest, path in zip(manifest_of, local_paths(warehouse, needed), strict=True):
        if missing is not None and missing <= 0:
            break
        table = formats.format_named(manifest.format).read(path)
        if manifest.uri_type is UriType.IDENTIFIER and formats.SPARK_SCHEMA_KEY not in (table.schema.metadata or {}):
            table = table.cast(as_spark_writes(table.schema))
        table = _with_columns_of(table, manifest) if columns is None else fitted(table, columns)
        tables.append(table if missing is None else table.slice(0, missing))
        missing = None if missing is None else missing - tables[-1].num_rows
    if not tables and columns is not None:
        return columns.empty_table()
    if not tables:
        return pa.table({column.name: pa.nulls(0) for manifest in manifests[:1] for column in manifest.schema.columns})
    return pa.concat_tables(tables, promote_options="permissive")


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table of some files with the columns of a schema, which has every value of theirs; null where the files have none."""
    import pyarrow as pa

    if table.schema.equals(schema):
        return table
    found = set(table.column_names)
    columns = [
        as_type(table[field.name], field.type) if field.name in found else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema.with_metadata(table.schema.metadata))


def as_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column with a wider type. Lists without a value may be stored as lists of texts, which Arrow does not cast to all."""
    import pyarrow as pa

    if column.type == kind:
        return column
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), kind)])
    try:
        return column.cast(kind)
    except pa.ArrowNotImplementedError:
        return pa.chunked_array([pa.array(column.to_pylist(), kind)])


def _with_columns_of(table: pa.Table, manifest: Manifest) -> pa.Table:
    """The table with the columns that are in no file, because they have no value."""
    import pyarrow as pa

    for place, column in enumerate(manifest.schema.columns):
        if column.name not in table.column_names:
            table = table.add_column(place, column.name, pa.nulls(table.num_rows))
    return table


def sample_rows(warehouse: Warehouse, manifest: Manifest, most: int) -> list[dict[str, Any]] | None:
    """Up to `most` rows of the first local file that has any, for people; None where that takes more than a moment."""
    files = zip(file_paths(warehouse, manifest), manifest.files, strict=True)
    path = next((path for path, file in files if file.rows), None)
    if path is None or manifest.format != "parquet" or storage.protocol_of(path) is not None:
        return None
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, memory_map=True, pre_buffer=False) as file:
        group = file.metadata.row_group(0)
        n_columns = min(MAX_COLUMNS, group.num_columns)
        if sum(group.column(n).total_compressed_size for n in range(n_columns)) > MAX_ROW_GROUP_BYTES:
            return None
        columns = file.schema_arrow.names[:MAX_COLUMNS]
        batches = file.iter_batches(batch_size=most, columns=columns, row_groups=[0], use_threads=False)
        return [row for batch in islice(batches, 1) for row in batch.to_pylist()]


def _first_rows(manifests: Sequence[Manifest], rows: int) -> list[Manifest]:
    """The manifests cut after the file with the last of so many rows, so that no other file is fetched."""
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
    """Columns from Spark's own JSON. Cached: all instances of a dataset have the same."""
    fields = _spark_schema_of(text).fields
    types = (_type_text(field.metadata.get(VOID, field.type)) for field in fields)
    columns = (Column(field.name, kind, field.nullable) for field, kind in zip(fields, types, strict=True))
    return TableSchema(tuple(columns), text)


def _type_text(raw: msgspec.Raw) -> str:
    """`"long"` becomes long; a nested type stays the JSON that Spark wrote."""
    decoded = msgspec.json.decode(raw)
    return decoded if isinstance(decoded, str) else bytes(raw).decode()


def checksum_of_other(path: str) -> str:
    """The checksum of a file that another program wrote: the store's checksum in an object store, which changes with the bytes,
    else the checksum of the bytes. Raises `FileNotFoundError`."""
    place = storage.storage_at(path)
    if storage.protocol_of(path) is None:
        return place.checksum(path)
    for listed in place.list_files(path, deep=False):
        return listed.checksum or place.checksum(path)
    raise FileNotFoundError(path)


class OutsideFile(NamedTuple):
    """A file and its own schema."""

    entry: FileEntry
    schema: pa.Schema


def whole_pattern(pattern: str) -> str:
    """The pattern as an absolute path; a url is returned unchanged, `file://` is a path."""
    if pattern.startswith("file://"):
        pattern = pattern.removeprefix("file://")
    if storage.protocol_of(pattern) is not None:
        return pattern
    return os.path.abspath(os.path.expanduser(pattern))


def find_files(pattern: str) -> list[tuple[str, int]]:
    """The matching data files, sorted, each with its bytes. Raises `StorageTrouble`, `StorageLibraryMissing`."""
    return storage.storage_at(pattern).find(pattern)


def describe_each(
    files: Sequence[tuple[str, int]], file_format: formats.FileFormat = formats.WRITTEN
) -> list[OutsideFile | errors.UnreadableFile]:
    """Rows, columns and checksum of each file, or its error. Raises `StorageTrouble`, `DiskTrouble`."""

    def describe(file: tuple[str, int]) -> OutsideFile | errors.UnreadableFile:
        path, size_bytes = file
        try:
            with storage.storage_at(path).open_binary(path) as opened:
                found_bytes = opened.seek(0, os.SEEK_END)
                if found_bytes != size_bytes:
                    return errors.UnreadableFile(path=path, why="it is being written to")
                opened.seek(0)
                facts = file_format.describe(opened, path)
            # The footer of a rewritten file may be the same: it has only counts, and the smallest and largest values.
            checksum = checksum_of_other(path)
        except FileNotFoundError:
            return errors.UnreadableFile(path=path, why="it is not there any more")
        except errors.UnreadableFile as error:
            return error
        return OutsideFile(FileEntry(path, size_bytes, facts.rows, checksum), facts.schema)

    return storage.storage_at(files[0][0]).for_each(describe, files) if files else []


def is_no_url(path: str) -> bool:
    """Whether Iceberg readers open the wrong file for a path or url: to them `#` and `?` end it, and they know no controls."""
    return any(character in "#?" or category(character) == "Cc" for character in path)


def fingerprint_of(files: Sequence[FileEntry]) -> str:
    """A text that changes when a file comes, goes or changes."""
    text = "\n".join(sorted(f"{file.uri} {file.bytes} {file.checksum}" for file in files))
    return sha256(text.encode()).hexdigest()[:16]
