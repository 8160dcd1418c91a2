"""A condition decided row by row over data files, and files written again without the rows that match (rule 10.11).

pyarrow decides, a row group at a time: the answer is exact, and no Spark starts. A row matches if the condition is true for it, so
a row for which it is null stays. `partition_key` is a column that no file has.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import msgspec

from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.refs import PARTITION_KEY, Ref, partition_key_of
from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.errors import ListedFileLost, NotParquet, UnknownFormat
from databuild_dagster.warehouse.files import as_spark_writes, describe_files, plain_type, publish_files
from databuild_dagster.warehouse.filters import BadFilter, Filter, matching_mask, matching_rows, parsed_filter
from databuild_dagster.warehouse.formats import INT96_UNIT, SPARK_SCHEMA_KEY, WRITTEN
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import FileEntry, Manifest, UriType, file_paths, is_in_attempt
from databuild_dagster.warehouse.storage import storage_at

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_ARROW_SCHEMA: Final = b"ARROW:schema"


class RowsDiffer(DatabuildError):
    """{path} was written again with {found} rows, {matched} of which match, instead of {expected}."""

    hint = "Nothing was changed; please report it, with what the columns hold."


class RowCounts(NamedTuple):
    """The number of rows of a file, and of matching rows."""

    rows: int
    matched: int


@dataclass(frozen=True)
class Condition:
    """A condition on the rows of a dataset, with the type of each column that it names."""

    wanted: Filter
    #: By name in lower case; a file without such a column has null there.
    types: Mapping[str, pa.DataType]

    @property
    def needs_key(self) -> bool:
        """Whether it names the partition key, which is in no file."""
        return PARTITION_KEY in self.wanted.columns and PARTITION_KEY not in self.types

    def count(self, path: str, ref: Ref, format_name: str) -> RowCounts:
        """Count the rows of a file of an instance; only the named columns are read.

        Raises `BadFilter`, `NotParquet`, `ListedFileLost`, `DiskTrouble`, `StorageTrouble`.
        """
        rows = matched = 0
        with opened(path, format_name) as file:
            names = [name for name in file.schema_arrow.names if name.lower() in self.wanted.columns]
            for group in range(file.num_row_groups):
                n_rows = file.metadata.row_group(group).num_rows
                table = file.read_row_group(group, columns=names) if names else None
                rows += n_rows
                matched += matching_rows(self._named(table, n_rows, ref), self.wanted).num_rows
        return RowCounts(rows, matched)

    def may_match(self, row: Any) -> bool:
        """Whether a row that was written as JSON matches, as far as its text shows; a field that is absent is null."""
        import pyarrow as pa

        if self.needs_key or not isinstance(row, dict):
            return True
        values = {name.lower(): value for name, value in row.items()}
        try:
            columns = {
                name: pa.nulls(1, kind) if values.get(name) is None else pa.array([values[name]]).cast(kind)
                for name, kind in self.types.items()
            }
            return bool(matching_rows(pa.table(columns), self.wanted).num_rows)
        except (pa.ArrowException, TypeError, ValueError):
            return True

    def mask(self, table: pa.Table | None, n_rows: int, ref: Ref) -> pa.ChunkedArray:
        """For each row of a table, whether it matches. Raises `BadFilter`."""
        return matching_mask(self._named(table, n_rows, ref), self.wanted)

    def _named(self, table: pa.Table | None, n_rows: int, ref: Ref) -> pa.Table:
        """The columns that the condition names, also columns that the table lacks. Raises `BadFilter`."""
        import pyarrow as pa

        columns: dict[str, pa.ChunkedArray | pa.Array] = {}
        if table is not None:
            named = [name for name in table.column_names if name.lower() in self.wanted.columns]
            if len({name.lower() for name in named}) < len(named):
                raise BadFilter(where=self.wanted.where, why=f"{' and '.join(named)} differ only in case")
            columns = {name: table[name].cast(plain_type(table.schema.field(name).type)) for name in named}
        there = {name.lower() for name in columns}
        for name in self.wanted.columns - there:
            if name == PARTITION_KEY and self.needs_key:
                columns[name] = pa.repeat(pa.scalar(partition_key_of(ref), pa.string()), n_rows)
            elif name in self.types:
                columns[name] = pa.nulls(n_rows, self.types[name])
            else:
                raise BadFilter(where=self.wanted.where, why=f"no kept file has a column {name!r}")
        return pa.table(columns)


def parsed_condition(where: str) -> Filter:
    """The condition of a user, as far as its text shows. Raises `BadFilter`."""
    if "\\" in where:
        raise BadFilter(where=where, why="a backslash in it has more than one meaning")
    wanted = parsed_filter(where)
    if not wanted.columns:
        raise BadFilter(where=where, why="it names no column")
    return wanted


def condition_over(wanted: Filter, instances: Sequence[tuple[Warehouse, Manifest]]) -> Condition:
    """The condition over a dataset's instances: each column that it names is in at least one instance.

    Raises `BadFilter`, and what opening the files raises.
    """
    left = set(wanted.columns)
    types: dict[str, pa.DataType] = {}
    for warehouse, manifest in instances:
        if not left:
            break
        if left.isdisjoint(column.name.lower() for column in manifest.schema.columns):
            continue
        for path in file_paths(warehouse, manifest)[:1]:
            # A file that is lost or damaged is named by the survey.
            with suppress(ListedFileLost, NotParquet), opened(path, manifest.format) as file:
                for field in file.schema_arrow:
                    if field.name.lower() in left:
                        left.remove(field.name.lower())
                        types[field.name.lower()] = plain_type(field.type)
    known = {column.name: None for _, manifest in instances for column in manifest.schema.columns}
    unknown = sorted(left.difference(name.lower() for name in known) - {PARTITION_KEY})
    if known and unknown:
        why = f"there is no column {unknown[0]!r} among {', '.join([*known, PARTITION_KEY])}"
        raise BadFilter(where=wanted.where, why=why)
    return Condition(wanted, types)


def write_without(
    condition: Condition, warehouse: Warehouse, manifest: Manifest, matched: Mapping[str, int], staging: str, uuid: str
) -> Manifest:
    """The manifest of a new instance, not written yet, without the rows that match; its files are in its folder.

    `matched` has the number of such rows in each file, by its uri. A file without any is linked, or copied in an object store.
    Files of other programs are written again in any case. Raises what reading and writing raise, and `RowsDiffer`.
    """
    is_outside = manifest.uri_type is UriType.IDENTIFIER
    paths = zip(file_paths(warehouse, manifest), manifest.files, strict=True)
    again = {file.uri: (path, file) for path, file in paths if matched.get(file.uri) or is_outside}
    written = _written(condition, manifest, list(again.values()), matched, staging)
    folder = warehouse.instance_dir(manifest.dataset, uuid)
    publish_files(staging, folder, [entry for entry in written.values() if entry is not None])
    same = [file.uri for file in manifest.files if file.uri not in again and not is_in_attempt(file.uri)]
    if same:
        warehouse.storage.share(warehouse.instance_dir(manifest.dataset, manifest.instance_uuid), folder, same)
    entries = (written[file.uri] if file.uri in again else file for file in manifest.files)
    return msgspec.structs.replace(
        manifest,
        instance_uuid=uuid,
        uri_type=UriType.PATH,
        files=tuple(entry for entry in entries if entry is not None),
        children=(),
        adopted_from=None,
        attempt=1,
    )


def _written(
    condition: Condition,
    manifest: Manifest,
    files: Sequence[tuple[str, FileEntry]],
    matched: Mapping[str, int],
    staging: str,
) -> dict[str, FileEntry | None]:
    """By uri, the entry of the new file; None for a file of which no row stays."""
    disk.make_dirs(staging)
    names: dict[str, str] = {}
    for number, (path, file) in enumerate(files):
        name = f"part-{number:05}-{secrets.token_hex(8)}{WRITTEN.suffix}"
        n_rows = _write_one(condition, manifest, path, os.path.join(staging, name))
        expected = RowCounts(file.rows - matched.get(file.uri, 0), 0)
        # Read again: nothing else is lost, and nothing of it is left.
        found = condition.count(os.path.join(staging, name), manifest.ref, WRITTEN.name) if n_rows else RowCounts(0, 0)
        if found != expected:
            raise RowsDiffer(path=path, found=found.rows, matched=found.matched, expected=expected.rows)
        if n_rows:
            names[file.uri] = name
    described = {entry.uri: entry for entry in describe_files(staging)[0]} if names else {}
    return {file.uri: described[names[file.uri]] if file.uri in names else None for _, file in files}


def _write_one(condition: Condition, manifest: Manifest, path: str, target: str) -> int:
    """Write the rows of a file that do not match; returns their number. Without any there is no new file."""
    import pyarrow as pa
    import pyarrow.compute as pc

    with opened(path, manifest.format) as file:
        footer, schema = file.metadata, file.schema_arrow
        if manifest.uri_type is UriType.IDENTIFIER and SPARK_SCHEMA_KEY not in (schema.metadata or {}):
            # Readers of adopted files see these types, and without a file nulls for what has no type.
            typed = [field for field in as_spark_writes(schema) if not pa.types.is_null(field.type)]
            schema = pa.schema(typed, metadata=schema.metadata)
        n_rows = 0
        writer: pq.ParquetWriter | None = None
        with disk.explained(target, "written"):
            try:
                for group in range(footer.num_row_groups):
                    table = file.read_row_group(group)
                    kept = table.select(schema.names).filter(
                        pc.invert(condition.mask(table, table.num_rows, manifest.ref))
                    )
                    if kept.num_rows:
                        writer = writer or _writer(target, schema, footer)
                        writer.write_table(kept.cast(schema), row_group_size=kept.num_rows)
                        n_rows += kept.num_rows
            finally:
                if writer is not None:
                    writer.close()
    return n_rows


def _writer(target: str, schema: pa.Schema, footer: pq.FileMetaData) -> pq.ParquetWriter:
    """A writer that compresses each column, and represents times, as the file of this footer does."""
    import pyarrow.parquet as pq

    group = footer.row_group(0)
    chunks = [group.column(place) for place in range(group.num_columns)]
    return pq.ParquetWriter(
        target,
        schema,
        compression={chunk.path_in_schema: _CODECS.get(chunk.compression, chunk.compression) for chunk in chunks},
        use_deprecated_int96_timestamps=any(chunk.physical_type == "INT96" for chunk in chunks),
        # Spark reads its own description of the columns.
        store_schema=_ARROW_SCHEMA in (footer.metadata or {}),
    )


#: Names of pyarrow's writer, where its reader has different names.
_CODECS: Final = {"UNCOMPRESSED": "NONE"}


@contextmanager
def opened(path: str, format_name: str) -> Iterator[pq.ParquetFile]:
    """A data file, of which parts can be read. Raises `NotParquet`, `ListedFileLost`, `UnknownFormat`, and what reading raises."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if format_name != WRITTEN.name:
        raise UnknownFormat(name=format_name)
    try:
        source: BinaryIO = storage_at(path).open_binary(path)
    except FileNotFoundError as error:
        raise ListedFileLost(path=path, why="it is not there") from error
    with source:
        try:
            # Spark's INT96 times may be outside of the years that nanoseconds reach.
            with pq.ParquetFile(source, coerce_int96_timestamp_unit=INT96_UNIT) as file:
                yield file
        except (OSError, pa.ArrowException) as error:
            why = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise NotParquet(path=path, why=why) from error
