"""From a frame to the files of one attempt, where Spark writes them itself: no byte of them comes to this process.

An attempt has a folder of its own in the warehouse. Its files stay there, and manifests list them; so a writer that comes
late, or twice, has written beside what readers see (decision 0038)."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

import msgspec

from databuild_dagster.model.refs import PARTITION_KEY
from databuild_dagster.spark.errors import AttemptIncomplete
from databuild_dagster.spark.reach import COMMITTED, Reach
from databuild_dagster.spark.schemas import as_written
from databuild_dagster.warehouse.disk import Listed, is_data
from databuild_dagster.warehouse.errors import DiskTrouble, StorageTrouble
from databuild_dagster.warehouse.formats import FileFormat
from databuild_dagster.warehouse.manifest import FileEntry, TableSchema
from databuild_dagster.warehouse.storage import Storage, storage_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class _Commit(msgspec.Struct):
    """The contents of Databricks' `_committed_<id>`: names in its folder."""

    added: list[str]
    removed: list[str] = []


#: The file that Hadoop's committer leaves when all tasks are committed.
_MARK = "_SUCCESS"
#: Footers of one attempt differ by the texts of their smallest and largest values.
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
        raise AttemptIncomplete(folder=folder, why=f"Spark reports {reported} rows, and its files have {written}")
    _remove_empty(folder, files)
    found: dict[str, list[FileEntry]] = {}
    for within, file in files:
        found.setdefault(within, []).append(file)
    return found, schema


def _remove_empty(folder: str, files: Sequence[tuple[str, FileEntry]]) -> None:
    """Files without rows are in no manifest; without another file, the marks of the attempt go with them."""
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
    """Each data file of a finished attempt with the name of its folder. One listing, and the footer of each file.

    The files of a disk are also read and synced. Raises `AttemptIncomplete`, `DiskTrouble`, `StorageTrouble`,
    `UnreadableFile`.
    """
    storage = storage_at(folder)
    try:
        listed = storage.list_files(folder, deep=True)
    except FileNotFoundError:
        listed = []
    if reach.leaves_mark and not any(file.path == f"{folder}/{_MARK}" for file in listed):
        raise AttemptIncomplete(folder=folder, why=f"Spark has left no {_MARK} there")

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
    """The rows of each file, from its footer: the first file tells how long a footer is, then one request for each."""
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
        raise AttemptIncomplete(folder=folder, why=f"Spark has left no {min(open_ones, default='_committed_<id>')}")
    added: set[str] = set()
    for path in commits:
        try:
            commit = msgspec.json.decode(storage.read_bytes(path), type=_Commit)
        except msgspec.DecodeError as error:
            raise AttemptIncomplete(folder=folder, why=f"{path} cannot be read: {error}") from error
        within = path.rpartition("/")[0]
        added |= {f"{within}/{name}" for name in set(commit.added) - set(commit.removed)}
    if lost := added - paths:
        raise AttemptIncomplete(folder=folder, why=f"{min(lost)} is committed and is not there")
    return [file for file in data if file.path in added]


def _is_data(name: str, file_format: FileFormat) -> bool:
    """No file of a task that has not committed: those are below `_temporary`."""
    folders: Collection[str] = name.split("/")
    return name.endswith(file_format.suffix) and all(is_data(folder) for folder in folders)
