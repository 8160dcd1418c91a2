"""From the frame of an instance, or of a whole batch, to files in a staging folder, and from there to instances.

A single Spark job writes a batch of any number of keys: it writes the rows of each key to a folder, which becomes an instance.
No reader sees a staged file before `publish`, so staged files can be checked and refused."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from databuild_dagster.model.refs import PARTITION_KEY, Ref, asset_of
from databuild_dagster.model.wording import few_of
from databuild_dagster.spark import errors
from databuild_dagster.spark.frames import fits_one_task, load_keyed
from databuild_dagster.spark.memory_frames import (
    FrameKind,
    blank_columns,
    frame_kind,
    from_arrow,
    nullable_types,
    pandas_metadata,
    to_arrow,
    with_text,
)
from databuild_dagster.spark.pyspark_names import arrow_schema_of, frame_of_arrow, has_few_rows_of_ours, is_spark_frame
from databuild_dagster.spark.reach import COMMITTED, Reach, without_wildcards
from databuild_dagster.spark.schemas import (
    absent_columns,
    alike_columns,
    as_written,
    columns_of,
    has_times_of_day,
    quoted,
    spark_schema,
    typed_fields,
)
from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.disk import Listed, is_data
from databuild_dagster.warehouse.errors import DiskTrouble, StorageTrouble
from databuild_dagster.warehouse.files import describe_files, plain_type, publish_files, schema_from_spark
from databuild_dagster.warehouse.formats import SPARK_SCHEMA_KEY, WRITTEN, FileFormat
from databuild_dagster.warehouse.layout import NULL_KEY, Warehouse
from databuild_dagster.warehouse.manifest import FileEntry, Manifest, ManifestState, TableSchema, write_manifest
from databuild_dagster.warehouse.storage import Storage, storage_at
from databuild_dagster.warehouse.threads import in_threads

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


#: The output of smaller inputs is written as a single file.
SMALL_INPUT_BYTES = 32 * 1024 * 1024
#: The rows of a larger key are spread over several tasks and files.
LARGE_KEY_BYTES = 64 * 1024 * 1024
#: The bound of file systems for a name.
MAX_NAME_BYTES = 255
#: Keys named in a message.
MAX_NAMED = 3


#: The columns of the newest instance, for a frame with columns that have no type.
Known = Callable[[], TableSchema | None]


@dataclass(frozen=True, slots=True)
class Staged:
    """The files of an instance before it is published."""

    folder: str
    #: Only files with rows.
    files: tuple[FileEntry, ...]
    schema: TableSchema
    file_format: FileFormat = WRITTEN
    #: Of the session that wrote them into the warehouse itself; None for files on this machine's disk.
    reach: Reach | None = None

    @property
    def paths(self) -> list[str]:
        """The full path of each file."""
        return [os.path.join(self.folder, file.uri) for file in self.files]


@contextmanager
def staging(warehouse: Warehouse, name: str) -> Iterator[str]:
    """A staging folder, which is removed with the block."""
    folder = warehouse.new_staging_dir(name)
    try:
        yield folder
    finally:
        # Its files are never read; a failed removal must hide neither a result nor an error.
        with suppress(DiskTrouble):
            disk.remove_tree(folder)


def stage_instance(
    frame: Any,
    folder: str,
    *,
    ref: Ref,
    coalesce: int | None = None,
    file_format: FileFormat = WRITTEN,
    reach: Reach | None = None,
    known: Known = lambda: None,
) -> Staged:
    """Write the frame of an instance; with `reach`, `folder` is an attempt's, where Spark writes itself.

    `known` are the columns of earlier instances, which give columns without any value their types. Raises `NotAFrame`,
    `UnsupportedColumn`, `AttemptIncomplete`, `DiskTrouble`, `StorageTrouble`, or what Spark raises.
    """
    if _is_spark_frame(frame, ref):
        if reach is None and has_few_rows_of_ours(frame):
            coalesce = 1
        frame, typed = _typed(frame, known)
        whole = frame if coalesce is None else _in_files(frame, coalesce, reach)
        if reach is not None:
            found, schema = write_attempt(whole, folder, reach, file_format)
            return Staged(folder, _with_rows(found.get("", ())), typed or schema, file_format, reach)
        whole.write.format(file_format.name).options(**file_format.spark_options).save(folder)
        return _described(folder, file_format, typed)
    _write_arrow(frame, folder, ref, file_format, known, blank_columns(frame))
    return _described(folder, file_format)


def _typed(frame: DataFrame, known: Known, *, without: str | None = None) -> tuple[DataFrame, TableSchema | None]:
    """A frame of Spark as Spark can write it: void is cast or left out. With the columns of its manifest, if they differ from the
    frame's own."""
    import pyspark.sql.functions as F
    from pyspark.sql.types import StructType

    fields = typed_fields(frame.schema, known)
    if fields == list(frame.schema):
        return frame, None
    typed = as_written(StructType(fields), without=without)
    absent = absent_columns(typed)
    columns = [
        F.col(quoted(field.name)).cast(field.dataType).alias(field.name) for field in fields if field.name not in absent
    ]
    return frame.select(*columns), typed


def _in_files(frame: DataFrame, wanted: int, reach: Reach | None) -> DataFrame:
    """The frame in at most so many tasks; an engine that does not coalesce may follow a hash of the rows."""
    if reach is None or reach.coalesces:
        return frame.coalesce(wanted)
    from pyspark.sql.types import ArrayType, MapType, StructType

    nested = (ArrayType, MapType, StructType)
    plain = [quoted(field.name) for field in frame.schema if not isinstance(field.dataType, nested)]
    return frame.repartition(wanted, *plain) if plain else frame


def stage_batch(
    frame: Any,
    folder: str,
    *,
    asset: str,
    keys: Collection[str],
    inputs: Collection[Sequence[Manifest]] = (),
    file_format: FileFormat = WRITTEN,
    reach: Reach | None = None,
    known: Known = lambda: None,
) -> dict[str, Staged]:
    """Write the frame of a batch in a single Spark job; returns the files of each of `keys`, which may have no rows.

    `inputs` of each key say how many tasks write. Raises `BadPartitionKeyColumn`, `StrayPartitionKeys` for rows of keys that
    are not in the batch, `KeyTooLong`, and what `stage_instance` raises.
    """
    for key in keys:
        folder_of(key)
    found: Mapping[str, Sequence[FileEntry]] = {}
    typed: TableSchema | None = None
    if is_spark := _is_spark_frame(frame, asset):
        frame, typed = _typed(frame, known, without=PARTITION_KEY)
    if not is_spark:
        schema = _write_arrow_by_key(frame, folder, asset, file_format, known)
    elif reach is None:
        schema = _write_spark_by_key(frame, folder, asset, inputs, file_format)
    else:
        spread = _spread_by_key(frame, asset, inputs, reach)
        found, schema = write_attempt(spread, folder, reach, file_format, by_key=True)
    schema = typed or schema
    if reach is None:
        with disk.explained(folder, "listed"):
            names = sorted(name for name in os.listdir(folder) if name.startswith(f"{PARTITION_KEY}="))
    else:
        names = sorted(found)
    folders = {_key_of(name): os.path.join(folder, name) for name in names}
    if stray := [key for key in folders if key not in keys]:
        named = few_of(["a null key" if key is None else repr(key) for key in stray], MAX_NAMED)
        raise errors.StrayPartitionKeys(asset=asset, named=named, asked=len(keys))
    if reach is None:
        described = in_threads(lambda of_key: _described(of_key, file_format, typed), list(folders.values()))
    else:
        described = [
            Staged(folders[_key_of(name)], _with_rows(found[name]), schema, file_format, reach) for name in names
        ]
    staged = dict(zip(folders, described, strict=True))
    without_rows = Staged(folder, (), described[0].schema if described else schema, file_format, reach)
    return {key: staged.get(key, without_rows) for key in keys}


def read_staged(
    spark: SparkSession | None,
    staged: Mapping[str | None, Staged],
    *,
    by_key: bool,
    kind: FrameKind = FrameKind.SPARK,
    is_elsewhere: bool = False,
) -> Any:
    """The staged rows, with the column `partition_key` for a batch; only a frame of Spark needs the session.

    A session that `is_elsewhere` gets the rows of files on this machine's disk, which it does not see.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    first = next(iter(staged.values()))
    schema = spark_schema(first.schema)
    if by_key:
        schema = StructType([*schema, StructField(PARTITION_KEY, StringType())])
    if spark is None:
        return from_arrow(_staged_as_arrow(schema, staged, by_key=by_key), kind)
    paths = [path for of_key in staged.values() for path in of_key.paths]
    if not paths:
        return spark.createDataFrame([], schema)
    if first.reach is not None:
        return _in_place(spark, staged, first.reach, by_key=by_key)
    if is_elsewhere:
        return frame_of_arrow(spark, _staged_as_arrow(schema, staged, by_key=by_key), schema)
    reader = spark.read.format(first.file_format.name).options(**first.file_format.spark_options).schema(schema)
    if by_key:
        paths = [of_key.folder for of_key in staged.values() if of_key.files]
        reader = reader.option("basePath", os.path.dirname(paths[0]))
    return reader.load([without_wildcards(path) for path in paths])


def _in_place(spark: SparkSession, staged: Mapping[str | None, Staged], reach: Reach, *, by_key: bool) -> DataFrame:
    first = next(iter(staged.values()))
    urls = {str(key): [reach.url_of(path) for path in of_key.paths] for key, of_key in staged.items()}
    keyed = {key: {first.file_format.name: paths} for key, paths in urls.items() if paths}
    rows = load_keyed(spark, spark_schema(first.schema), keyed, PARTITION_KEY, names_files=reach.names_files)
    return rows if by_key else rows.drop(PARTITION_KEY)


def _staged_as_arrow(schema: StructType, staged: Mapping[str | None, Staged], *, by_key: bool) -> pa.Table:
    import pyarrow as pa

    columns = arrow_schema_of(schema)
    tables = [columns.empty_table()]
    for key, of_key in staged.items():
        paths = of_key.paths
        if paths and of_key.reach is not None:
            listed = zip(paths, of_key.files, strict=True)
            paths = storage_at(paths[0]).local_copies([(path, file.bytes) for path, file in listed])
        for path in paths:
            table = of_key.file_format.read(path)
            tables.append(with_text(table, PARTITION_KEY, str(key)) if by_key else table)
    return pa.concat_tables(tables, promote_options="permissive").cast(columns)


def publish(staged: Staged, warehouse: Warehouse, **facts: Any) -> Manifest:
    """`put_files`, then write the manifest that it returns. Raises `ManifestConflict`, too."""
    manifest = put_files(staged, warehouse, **facts)
    write_manifest(warehouse, manifest)
    return manifest


def put_files(
    staged: Staged,
    warehouse: Warehouse,
    *,
    ref: Ref,
    uuid: str,
    job_run: str,
    inputs: Mapping[Ref, str],
    state: ManifestState | None = None,
    comment: str = "",
    children: Sequence[str] = (),
    lot_id: str | None = None,
    attempt: int = 1,
) -> Manifest:
    """Move staged files to the instance's folder; returns its manifest. Zero rows are `empty` unless `state` is given.

    With `children`, of a lot in parts, the files are there already. Raises `DiskTrouble`, `StorageTrouble`.
    """
    asset, files = asset_of(ref), staged.files
    if not children:
        files = publish_files(staged.folder, warehouse.instance_dir(asset, uuid), files)
    return Manifest(
        dataset=asset,
        ref=ref,
        lot_id=lot_id,
        instance_uuid=uuid,
        job_run=job_run,
        attempt=attempt,
        state=state or (ManifestState.COMPLETE if staged.files else ManifestState.EMPTY),
        files=files,
        created_at=datetime.now(UTC),
        schema=staged.schema,
        inputs=dict(inputs),
        comment=comment,
        children=tuple(children),
        format=staged.file_format.name,
    )


def files_wanted(inputs: Sequence[Manifest]) -> int | None:
    """The number of files for `stage_instance(coalesce=)`: 1 for small inputs; None leaves it to Spark.

    A small daily frame is written in 0.12 s as one file and in 0.15 s as two, and one file is read faster. A single task would
    write a large frame.
    """
    return 1 if inputs and sum(manifest.bytes for manifest in inputs) < SMALL_INPUT_BYTES else None


def _described(folder: str, file_format: FileFormat, typed: TableSchema | None = None) -> Staged:
    files, schema = describe_files(folder, file_format, columns_of)
    # Files without rows are dropped: the manifest has their columns.
    return Staged(folder, _with_rows(files), typed or schema, file_format)


def _with_rows(files: Iterable[FileEntry]) -> tuple[FileEntry, ...]:
    return tuple(file for file in files if file.rows)


def _write_spark_by_key(
    frame: DataFrame, folder: str, asset: str, inputs: Collection[Sequence[Manifest]], file_format: FileFormat
) -> TableSchema:
    schema = frame.schema
    spread = _spread_by_key(frame, asset, inputs, None)
    writer = spread.write.format(file_format.name).options(**file_format.spark_options)
    writer.partitionBy(PARTITION_KEY).save(folder)
    return schema_from_spark(type(schema)([field for field in schema if field.name != PARTITION_KEY]).json())


def _spread_by_key(
    frame: DataFrame, asset: str, inputs: Iterable[Sequence[Manifest]], reach: Reach | None
) -> DataFrame:
    """The frame with the rows of a key in one task, so that each key has one file; only large keys have several files.

    Adaptive execution makes a shuffle a job of its own, which then leaves few rows to one task, so these are not shuffled.
    """
    from pyspark.sql.types import StringType

    schema = frame.schema
    text = any(isinstance(field.dataType, StringType) for field in schema if field.name == PARTITION_KEY)
    _check_columns([field.name for field in schema], asset, is_text=text)
    read = {manifest.instance_uuid: manifest for found in inputs for manifest in found}
    if reach is None and (has_few_rows_of_ours(frame) or fits_one_task(read.values())):
        return frame.coalesce(1)
    is_large = any(sum(manifest.bytes for manifest in found) > LARGE_KEY_BYTES for found in inputs)
    return frame.hint("rebalance", PARTITION_KEY) if is_large else frame.repartition(PARTITION_KEY)


def _write_arrow_by_key(frame: Any, folder: str, asset: str, file_format: FileFormat, known: Known) -> TableSchema:
    import pyarrow as pa

    blank = blank_columns(frame)
    table = _arrow_table(frame, asset)
    kinds = [field.type for field in table.schema if field.name == PARTITION_KEY]
    # A column without any value has no type.
    is_text = bool(kinds) and (_is_text(kinds[0]) or not table.num_rows)
    _check_columns(table.column_names, asset, is_text=is_text)
    keys = table[PARTITION_KEY].cast(pa.string())
    rows = table.drop_columns([PARTITION_KEY])
    disk.make_dirs(folder)
    for key in keys.unique().to_pylist():
        found = rows.filter(pa.compute.equal(keys, key) if key is not None else keys.is_null())
        _write_arrow(found, os.path.join(folder, folder_of(key)), asset, file_format, known, blank)
    # The columns are known without rows, too.
    nothing = os.path.join(folder, ".columns")
    _write_arrow(rows.slice(0, 0), nothing, asset, file_format, known, blank)
    return describe_files(nothing, file_format, columns_of)[1]


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _check_columns(columns: list[str], asset: str, *, is_text: bool) -> None:
    if not (found := columns.count(PARTITION_KEY)):
        raise errors.BadPartitionKeyColumn(asset=asset, why=f"has no column {PARTITION_KEY}")
    if found > 1:
        raise errors.BadPartitionKeyColumn(asset=asset, why=f"has {found} columns {PARTITION_KEY}")
    if not is_text:
        raise errors.BadPartitionKeyColumn(asset=asset, why=f"has a column {PARTITION_KEY} that is not text")


def folder_of(key: str | None, column: str = PARTITION_KEY) -> str:
    """The folder that Spark reads as this value of the partition key column. Raises `KeyTooLong`."""
    if key is None:
        return f"{column}={NULL_KEY}"
    folder = f"{column}={hive_value(key)}"
    if (found := len(folder.encode())) > MAX_NAME_BYTES:
        raise errors.KeyTooLong(shown=repr(f"{key[:40]}…"), found=found, most=MAX_NAME_BYTES)
    return folder


def hive_value(key: str) -> str:
    """A partition key as Spark and Hive write it after the `=` in a folder's name."""
    return "".join(
        character if character.isalnum() or character in "-_." or ord(character) > 127 else f"%{ord(character):02X}"
        for character in key
    )


def _key_of(name: str) -> str | None:
    value = name.removeprefix(f"{PARTITION_KEY}=")
    # Some engines write no value for null. Spark encodes single ASCII characters only, the percent sign among them.
    return None if value in ("", NULL_KEY) else unquote(value)


def _is_spark_frame(frame: Any, ref: str) -> bool:
    """True for a frame of Spark, False for a frame in memory. Raises `NotAFrame`."""
    if is_spark_frame(frame):
        return True
    if frame_kind(type(frame)) is not None:
        return False
    raise errors.NotAFrame(ref=ref, found=type(frame).__name__)


def _write_arrow(
    frame: Any, staging: str, ref: str, file_format: FileFormat, known: Known, blank: Collection[str]
) -> None:
    """Write as Spark after createDataFrame: same types, NaN as null, naive times as UTC. `typed_fields` has the types of columns
    without any value, such as the `blank` columns."""
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    table = _arrow_table(frame, ref)
    for field in table.schema:
        if has_times_of_day(field.type):
            raise errors.UnsupportedColumn(
                ref=ref, why=f"Spark reads no {field.type} from files, which {field.name!r} is"
            )
    if (alike := alike_columns(table.schema)) is not None:
        raise errors.ColumnsAlike(ref=ref, one=alike[0], other=alike[1], of="")
    nullable = nullable_types(table)
    try:
        table = _plain(table)
        fields = typed_fields(from_arrow_schema(table.schema, prefer_timestamp_ntz=False), known, blank)
        schema = StructType(fields)
        for place, name in enumerate(table.column_names):
            if name in blank:
                table = table.set_column(place, name, pa.nulls(table.num_rows))
        # safe=False: pandas counts nanoseconds, Spark microseconds.
        table = table.cast(arrow_schema_of(schema), safe=False)
    except (pa.ArrowException, PySparkException, TypeError, ValueError) as error:
        raise errors.UnsupportedColumn(ref=ref, why=str(error).splitlines()[0].rstrip(".")) from error
    disk.make_dirs(staging)
    # A unique name, as Spark's: a file's name identifies its contents.
    text = schema.json()
    metadata = {SPARK_SCHEMA_KEY: text.encode(), **pandas_metadata(nullable)}
    path = os.path.join(staging, f"part-00000-{secrets.token_hex(8)}{file_format.suffix}")
    table = table.drop_columns(list(absent_columns(schema_from_spark(text))))
    file_format.write(table.replace_schema_metadata(metadata), path)


def _arrow_table(frame: Any, ref: str) -> pa.Table:
    """The frame as an Arrow table. Raises `UnsupportedColumn`."""
    import pyarrow as pa

    try:
        return to_arrow(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise errors.UnsupportedColumn(ref=ref, why=str(error).splitlines()[0].rstrip(".")) from error


def _plain(table: pa.Table) -> pa.Table:
    """With types that Spark has. Categories without a value say nothing of their type."""
    import pyarrow as pa

    for place, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if pa.types.is_dictionary(column.type) and column.chunks and not any(len(c.dictionary) for c in column.chunks):
            table = table.set_column(place, name, pa.nulls(table.num_rows))
    return table.cast(pa.schema([field.with_type(plain_type(field.type)) for field in table.schema]))


# From a frame to the files of one attempt, where Spark writes them itself: no byte of them comes to this process.
# An attempt has a folder of its own in the warehouse. Its files stay there, and manifests list them; so a writer that comes
# late, or twice, has written beside what readers see (decision 0038).


class _Commit(msgspec.Struct):
    """The contents of Databricks' `_committed_<id>`: names in its folder."""

    added: list[str]
    removed: list[str] = []


_commit_of = msgspec.json.Decoder(_Commit).decode

#: The file that Hadoop's committer leaves when all tasks are committed.
_MARK = "_SUCCESS"
#: Footers of the same attempt differ by the texts of their smallest and largest values.
TAILS_DIFFER_BYTES = 256


def write_attempt(
    frame: DataFrame, folder: str, reach: Reach, file_format: FileFormat, *, by_key: bool = False
) -> tuple[dict[str, list[FileEntry]], TableSchema]:
    """Let Spark write a frame into `folder`, which no other call has, and describe what it left.

    Returns the files by the folder that they are in, relative to `folder` (an empty name for itself), and the columns
    without the partition key. Raises `AttemptIncomplete`, `DiskTrouble`, `StorageTrouble`, `UnreadableFile`, or what Spark
    raises.
    """
    counted = None
    schema = as_written(frame.schema, without=PARTITION_KEY if by_key else None)
    if reach.counts_rows:
        frame, counted = _counting(frame)
    writer = frame.write.format(file_format.name).options(**file_format.spark_options)
    (writer.partitionBy(PARTITION_KEY) if by_key else writer).save(reach.url_of(folder))
    files = described_attempt(folder, reach, file_format)
    written = sum(file.rows for _, file in files)
    if counted is not None and (reported := counted.get["rows"]) != written:
        raise errors.AttemptIncomplete(
            folder=folder, why=f"Spark reports {reported} rows, and its files have {written}"
        )
    _remove_empty(folder, files)
    found: dict[str, list[FileEntry]] = {}
    for within, file in files:
        found.setdefault(within, []).append(file)
    return found, schema


def _remove_empty(folder: str, files: Sequence[tuple[str, FileEntry]]) -> None:
    """Remove files without rows, which no manifest lists; if no file has rows, the whole attempt with its marks."""
    empty = [os.path.join(folder, within, file.uri) for within, file in files if not file.rows]
    # They are never read, so a failed removal does not fail the write.
    with suppress(DiskTrouble, StorageTrouble):
        if len(empty) == len(files):
            storage_at(folder).remove_tree(folder)
        else:
            storage_at(folder).remove_files(empty, within=folder)


def _counting(frame: DataFrame) -> tuple[DataFrame, Any]:
    """The frame with a count of the rows that reach its end, behind every shuffle."""
    import pyspark.sql.functions as F
    from pyspark.sql import Observation

    counted = Observation()
    return frame.observe(counted, F.count(F.lit(1)).alias("rows")), counted


def described_attempt(folder: str, reach: Reach, file_format: FileFormat) -> list[tuple[str, FileEntry]]:
    """Each data file of a finished attempt with the name of its folder. Costs one listing, and the footer of each file.

    The files of a disk are also read and synced. Raises `AttemptIncomplete`, `DiskTrouble`, `StorageTrouble`,
    `UnreadableFile`.
    """
    storage = storage_at(folder)
    try:
        listed = storage.list_files(folder, deep=True)
    except FileNotFoundError:
        listed = []
    if reach.leaves_mark and not any(file.path == f"{folder}/{_MARK}" for file in listed):
        raise errors.AttemptIncomplete(folder=folder, why=f"Spark has left no {_MARK} there")

    data = [file for file in listed if _is_data(file.path.removeprefix(f"{folder}/"), file_format)]
    if reach.names_committed:
        data = _committed(folder, listed, data)
    data.sort(key=lambda file: file.path)
    rows = _rows_of(storage, data, file_format)
    described = []
    for file, n_rows, checksum in zip(data, rows, storage.seal(data, folder), strict=True):
        within, _, name = file.path.removeprefix(f"{folder}/").rpartition("/")
        described.append((within, FileEntry(uri=name, bytes=file.bytes, rows=n_rows, checksum=checksum)))
    return described


def _rows_of(storage: Storage, files: Sequence[Listed], file_format: FileFormat) -> list[int]:
    """The rows of each file, from its footer: the first file shows how long a footer is, so each further file costs one request."""
    rows: list[int] = []
    expected = 0
    for some in (files[:1], files[1:]):
        known = [max(0, file.bytes - expected) for file in some]
        wanted = [(file.path, start, file.bytes) for file, start in zip(some, known, strict=True)] if expected else []
        ends = storage.read_ranges(wanted) if wanted else [b""] * len(some)
        for file, end in zip(some, ends, strict=True):
            tail = file_format.tail(partial(_last_bytes, storage, file, end), len(end))
            expected = max(expected, len(tail) + TAILS_DIFFER_BYTES)
            rows.append(file_format.rows_in(BytesIO(tail), file.path))
    return rows


def _last_bytes(storage: Storage, file: Listed, end: bytes, length: int) -> bytes:
    """So many bytes at the end of a file, of which `end` is known."""
    if length <= len(end):
        return end[-length:]
    return storage.read_range(file.path, max(0, file.bytes - length), file.bytes)


def _committed(folder: str, listed: Collection[Listed], data: Collection[Listed]) -> list[Listed]:
    """The data files that the commits of an attempt name, each for its own folder."""
    storage, paths = storage_at(folder), {file.path for file in listed}
    commits = {path for path in paths if COMMITTED.fullmatch(path.rpartition("/")[2])}
    open_ones = {path.replace("/_started_", "/_committed_") for path in paths if "/_started_" in path} - commits
    if open_ones or (data and not commits):
        raise errors.AttemptIncomplete(
            folder=folder, why=f"Spark has left no {min(open_ones, default='_committed_<id>')}"
        )
    added: set[str] = set()
    for path in commits:
        try:
            commit = _commit_of(storage.read_bytes(path))
        except msgspec.DecodeError as error:
            raise errors.AttemptIncomplete(folder=folder, why=f"{path} cannot be read: {error}") from error
        within = path.rpartition("/")[0]
        added |= {f"{within}/{name}" for name in set(commit.added) - set(commit.removed)}
    if lost := added - paths:
        raise errors.AttemptIncomplete(folder=folder, why=f"{min(lost)} is committed and is not there")
    return [file for file in data if file.path in added]


def _is_data(name: str, file_format: FileFormat) -> bool:
    """Whether a file has rows that count: a task that has not committed writes below `_temporary`."""
    folders: Collection[str] = name.split("/")
    return name.endswith(file_format.suffix) and all(is_data(folder) for folder in folders)
