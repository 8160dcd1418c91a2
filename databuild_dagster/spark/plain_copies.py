"""Copies, and links with plain names, on this machine, of files that Spark does not read as what their manifest says.

No Spark has Parquet's column without a type. Sail compares the Arrow types that a writer left in a file with the types that Sail reads,
and refuses large lists, lists of fixed size and categories. Only Spark 4 reads a decimal whose width differs from the manifest's, as
files of other programs and parts of a lot may have. A copy has the types of the manifest. Copies and links are kept beside the copies
of objects, and are pruned with them.

Hadoop's file system of a disk takes `10:15.parquet` for a url. Sail takes the wildcards of a path for a pattern, escaped or not, and
may read the wrong file; it opens no name with a control character. So such a file gets a link with a plain name.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from databuild_dagster.spark.pyspark_names import arrow_schema_of
from databuild_dagster.spark.schemas import absent_columns, spark_schema
from databuild_dagster.warehouse import disk, local_copies
from databuild_dagster.warehouse.errors import ListedFileLost
from databuild_dagster.warehouse.files import as_spark_writes, fitted, parts_of
from databuild_dagster.warehouse.formats import INT96_UNIT, SPARK_SCHEMA_KEY, format_named
from databuild_dagster.warehouse.manifest import FileEntry, Manifest, UriType
from databuild_dagster.warehouse.storage import protocol_of
from databuild_dagster.warehouse.threads import in_threads

if TYPE_CHECKING:
    import pyarrow as pa

#: A colon in the name of a file, and in no folder's.
_COLON = re.compile(r":[^/]*\Z")
_WILDCARD_OR_CONTROL = re.compile(r"[{}\[\]*?\\\x00-\x1f\x7f]")
#: Of a name, what Spark may take for a compression.
_SUFFIX = re.compile(r"(?:\.[A-Za-z0-9]+)*\Z")


def plain_names(paths: Sequence[str], *, escapes: bool) -> list[str]:
    """The paths, with a link in place of each that Spark would not open; urls are left as they are.

    `escapes` means that the session knows an escaped wildcard, as Spark on a JVM does. Raises `ListedFileLost`, `DiskTrouble`.
    """
    return [_link(path) if _is_odd(path, escapes=escapes) else path for path in paths]


def _is_odd(path: str, *, escapes: bool) -> bool:
    found = _COLON.search(path) is not None or (not escapes and _WILDCARD_OR_CONTROL.search(path) is not None)
    return found and protocol_of(path) is None


def _link(path: str) -> str:
    """The path of the link, which is made if it is not there yet."""
    if not os.path.exists(path):
        raise ListedFileLost(path=path, why="it is not there")
    suffix = _SUFFIX.search(os.path.basename(path))
    assert suffix is not None, "it matches an empty text"
    link = local_copies.copy_path(f"names/{sha256(path.encode()).hexdigest()[:32]}/part-00000{suffix[0]}")
    disk.make_dirs(os.path.dirname(link))
    with disk.explained(link, "written"):
        with suppress(FileExistsError):
            os.symlink(path, link)
        # It is in use.
        os.utime(os.path.dirname(link))
    return link


#: Where writers by Arrow keep its own types, in base64.
_ARROW_SCHEMA_KEY: Final = b"ARROW:schema"
#: Files whose columns are remembered.
_REMEMBERED: Final = 4096


def readable_paths(manifest: Manifest, paths: Sequence[str], *, is_sail: bool) -> list[str]:
    """The paths of an instance's files for Spark: the path of a copy for a local file that Spark would not read.

    Raises `ListedFileLost`, `UnreadableFile`, `DiskTrouble`.
    """
    is_of_many = manifest.uri_type is UriType.IDENTIFIER or bool(manifest.children)
    if not is_of_many or manifest.schema.spark is None or any("://" in path for path in paths):
        return list(paths)
    absent = absent_columns(manifest.schema)
    fields = [field for field in arrow_schema_of(spark_schema(manifest.schema)) if field.name not in absent]

    def readable(pair: tuple[str, FileEntry]) -> str:
        path, file = pair
        schema = _schema_of(path, file.checksum, manifest.format, as_arrow=is_sail, is_ours=bool(manifest.children))
        if schema is None or (absent.isdisjoint(schema.names) and _is_read(schema, fields, is_sail=is_sail)):
            return path
        return _copy(path, file, fields, manifest.format)

    return in_threads(readable, list(zip(paths, manifest.files, strict=True)))


@lru_cache(_REMEMBERED)
def _schema_of(path: str, checksum: str, format_name: str, *, as_arrow: bool, is_ours: bool) -> pa.Schema | None:
    """The columns of a file, with `as_arrow` in the types of Arrow that the writer of the file kept.

    None for a file that Spark wrote, which Spark reads, unless the file is of a part of a lot of ours.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not os.path.exists(path):
        raise ListedFileLost(path=path, why="it is not there")
    schema = format_named(format_name).describe(path, path).schema
    if SPARK_SCHEMA_KEY in (schema.metadata or {}) and not is_ours:
        return None
    kept = (pq.read_metadata(path).metadata or {}).get(_ARROW_SCHEMA_KEY) if as_arrow else None
    return pa.ipc.read_schema(pa.py_buffer(b64decode(kept))) if kept else schema


def _is_read(schema: pa.Schema, fields: Sequence[pa.Field], *, is_sail: bool) -> bool:
    """Whether Spark reads `fields` from a file with `schema`. A field that the file lacks is null; further columns are not read."""
    types = {field.name: field.type for field in as_spark_writes(schema)}
    if is_sail and any(_is_strange(field.type) for field in schema):
        return False
    return all(_told(types.get(field.name, field.type)) == _told(field.type) for field in fields)


def _told(kind: pa.DataType) -> list[pa.DataType]:
    """The parts of a type that Spark reads only as the file has them: parts without a type, and decimals."""
    import pyarrow as pa

    return [part for part in parts_of(kind) if pa.types.is_null(part) or pa.types.is_decimal(part)]


def _is_strange(kind: pa.DataType) -> bool:
    """Whether Sail reads a type, or a type inside it, only where its Arrow type is expected."""
    import pyarrow as pa

    is_a = pa.types
    strange = (is_a.is_dictionary, is_a.is_large_list, is_a.is_fixed_size_list, is_a.is_date64)
    return any(is_it(part) for part in parts_of(kind) for is_it in strange)


def _copy(path: str, file: FileEntry, fields: Sequence[pa.Field], format_name: str) -> str:
    """The path of the copy, which is made if it is not there yet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(fields)
    name = sha256(f"{path} {file.checksum} {schema}".encode()).hexdigest()[:32]
    target = local_copies.copy_path(f"plain/{name}/part-00000{format_named(format_name).suffix}")
    if local_copies.is_there(target, None):
        return target

    def write(temporary: str) -> None:
        with (
            disk.explained(target, "written"),
            pq.ParquetFile(path, coerce_int96_timestamp_unit=INT96_UNIT) as opened,
            pq.ParquetWriter(temporary, schema, compression="snappy") as writer,
        ):
            for group in range(opened.num_row_groups):
                table = opened.read_row_group(group)
                writer.write_table(fitted(table.cast(as_spark_writes(table.schema)), schema))

    local_copies.make(target, write)
    local_copies.prune_sometimes()
    return target
