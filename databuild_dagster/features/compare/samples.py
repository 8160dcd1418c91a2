"""A few rows of what readers of a ref see, if the author of its asset allows it (rules 15, 5.7).

Of a Parquet file of any size the footer is read, and the first pages of some columns of a row group. Each read asks for a range of
bytes, and all ranges together have a bound, as has their time. A column that does not fit is left out.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from databuild_dagster.calls.cells import cell_text
from databuild_dagster.calls.contents import NO_ROWS, allows_sample
from databuild_dagster.data.recorded_figures import check_recorded
from databuild_dagster.model.errors import DatabuildError, Refused
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.errors import NotParquet
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import FileEntry, Manifest, file_paths, read_manifest
from databuild_dagster.warehouse.storage import Storage, storage_at

if TYPE_CHECKING:
    import pyarrow.parquet as pq

#: States of an instance with data that can be looked at: a person who looks for a mistake needs tainted rows most.
_WITH_ROWS = (InstanceState.LIVE, InstanceState.TAINTED)


class SampleNotAllowed(Refused):
    """The pages show no rows of {asset}, because its author has not allowed it."""

    hint = "Write sample=True on the asset and load its code location again."


class NoRowsHere(Refused):
    """{ref} has no rows to show: {why}."""

    hint = "`databuild show {ref}` shows what readers see."


class RowsUnreadable(DatabuildError):
    """The rows of {ref} cannot be read here ({kind})."""

    hint = "`databuild read --limit 20 {ref}` says why."


class SampleColumn(msgspec.Struct, frozen=True):
    """A column of a sample, with the type that its writer gave it."""

    name: str
    type: str


class ShownSample(msgspec.Struct, frozen=True):
    """The first rows of the first file with rows; a cell is text, null for no value. `left_out` are columns that take too long."""

    ref: Ref
    uuid: str
    state: InstanceState
    n_rows: int
    n_files: int
    file: str | None
    columns: list[SampleColumn]
    left_out: Sequence[str]
    rows: list[list[str | None]]


def sample_of(queries: Queries, ref: Ref) -> ShownSample:
    """The first rows of the canonical instance. Raises `SampleNotAllowed`, `NoRowsHere`, `RowsUnreadable`."""
    asset = asset_of(ref)
    if not allows_sample(queries, asset):
        raise SampleNotAllowed(asset=asset)
    canonical = queries.canonical.of([ref])[ref]
    if why := _why_not(canonical):
        raise NoRowsHere(ref=ref, why=why)
    assert canonical.uuid is not None, "it is live or tainted"
    assert canonical.state is not None, "it is live or tainted"
    assert canonical.manifest_uri is not None, "its data is in a warehouse"
    warehouse = Warehouse.of_manifest(canonical.manifest_uri, asset)
    try:
        manifest = read_manifest(warehouse, asset, canonical.uuid)
        check_recorded(warehouse, manifest, canonical)
        file, sample = _first_rows(warehouse, manifest)
    except NO_ROWS as error:
        # The message has the path.
        raise RowsUnreadable(ref=ref, kind=type(error).__name__) from error
    types = {column.name: column.type for column in manifest.schema.columns}
    return ShownSample(
        ref,
        canonical.uuid,
        canonical.state,
        manifest.rows,
        len(manifest.files),
        None if file is None else PurePosixPath(file.uri).name,
        [SampleColumn(name, types.get(name, "")) for name in sample.columns],
        sample.left_out,
        [[cell_text(value) for value in row] for row in sample.rows],
    )


def _why_not(canonical: Canonical) -> str | None:
    if canonical.state is None:
        return "nothing has built it"
    if canonical.state not in _WITH_ROWS or canonical.live_at is None:
        return f"it is {canonical.state.in_words}, and has no data"
    if canonical.manifest_state == REMOVED:
        return "its data was removed"
    if canonical.manifest_uri is None:
        return "a plain Dagster asset or another program keeps its data in a place that is not databuild's"
    return None


def _first_rows(warehouse: Warehouse, manifest: Manifest) -> tuple[FileEntry | None, Sample]:
    if manifest.format != "parquet":
        raise NotParquet(path=manifest.ref, why=f"its format is {manifest.format}")
    listed = zip(manifest.files, file_paths(warehouse, manifest), strict=True)
    for file, path in listed:
        if file.rows:
            return file, sample_of_file(path, file.bytes)
    return None, Sample(tuple(column.name for column in manifest.schema.columns), [], ())


MAX_ROWS: Final = 20
MAX_COLUMNS: Final = 30
#: Of a column, and of all columns with the footer.
MAX_COLUMN_BYTES: Final = 4 << 20
MAX_BYTES: Final = 16 << 20
#: A column chunk that has more bytes before compression is not opened: a small page may hold any number of them.
MAX_CHUNK_BYTES: Final = 512 << 20
MAX_SECONDS: Final = 5.0
#: Bytes of a read.
READ_BYTES: Final = 256 << 10


class Sample(NamedTuple):
    """The first rows of a file, and the names of the columns that are left out."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    left_out: tuple[str, ...]


def sample_of_file(path: str, n_bytes: int) -> Sample:
    """The first rows of a Parquet file of so many bytes. Raises `NotParquet`, `StorageTrouble`, `DiskTrouble`, `FileNotFoundError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ranges = _Ranges(storage_at(path), path, n_bytes)
    try:
        with pq.ParquetFile(ranges, pre_buffer=False, buffer_size=READ_BYTES) as file:
            return _sample(file, ranges)
    except _SpentError as error:
        raise NotParquet(path=path, why="its footer is larger than a sample may be") from error
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise NotParquet(path=path, why=type(error).__name__) from error


def _sample(file: pq.ParquetFile, ranges: _Ranges) -> Sample:
    names = file.schema_arrow.names
    groups = (n for n in range(file.metadata.num_row_groups) if file.metadata.row_group(n).num_rows)
    group = next(groups, None)
    if group is None:
        return Sample(tuple(names[:MAX_COLUMNS]), [], tuple(names[MAX_COLUMNS:]))
    found: dict[str, list[Any]] = {}
    left_out = list(names[MAX_COLUMNS:])
    for name in names[:MAX_COLUMNS]:
        values = _values(file, group, name, ranges)
        if values is None:
            left_out.append(name)
        else:
            found[name] = values
    return Sample(tuple(found), list(zip(*found.values(), strict=True)), tuple(left_out))


def _values(file: pq.ParquetFile, group: int, name: str, ranges: _Ranges) -> list[Any] | None:
    """The first values of a column; None if they take more than their share."""
    chunks = file.metadata.row_group(group)
    paths = (chunks.column(n) for n in range(chunks.num_columns))
    of_column = [
        chunk for chunk in paths if chunk.path_in_schema == name or chunk.path_in_schema.startswith(f"{name}.")
    ]
    if sum(chunk.total_uncompressed_size for chunk in of_column) > MAX_CHUNK_BYTES:
        return None
    ranges.begin_column()
    try:
        batch = next(file.iter_batches(MAX_ROWS, row_groups=[group], columns=[name], use_threads=False))
    except _SpentError:
        return None
    return [_value(scalar) for scalar in batch.column(name)]


def _value(scalar: Any) -> Any:
    """The value in Python; its own text if Python has no such value, as for a time of nanoseconds or of the year 10,000."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, ImportError):
        return str(scalar.cast("string")) if not scalar.type.num_fields else "…"


class _SpentError(Exception):
    """The bytes or the seconds of a sample are spent."""


class _Ranges:
    """A file as Arrow reads it, range by range, within the bounds of a sample."""

    closed = False
    mode = "rb"

    def __init__(self, storage: Storage, path: str, n_bytes: int) -> None:
        self._storage = storage
        self._path = path
        self._n_bytes = n_bytes
        self._place = 0
        self._left = MAX_BYTES
        self._left_of_column = MAX_BYTES
        self._ends_at = time.monotonic() + MAX_SECONDS

    def begin_column(self) -> None:
        self._left_of_column = MAX_COLUMN_BYTES

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def tell(self) -> int:
        return self._place

    def seek(self, place: int, whence: int = 0) -> int:
        self._place = place + (0, self._place, self._n_bytes)[whence]
        return self._place

    def read(self, n_bytes: int = -1) -> bytes:
        end = self._n_bytes if n_bytes < 0 else min(self._place + n_bytes, self._n_bytes)
        wanted = max(end - self._place, 0)
        if wanted > min(self._left, self._left_of_column) or time.monotonic() > self._ends_at:
            raise _SpentError
        if not wanted:
            return b""
        found = self._storage.read_range(self._path, self._place, end)
        self._left -= wanted
        self._left_of_column -= wanted
        self._place += len(found)
        return found

    def close(self) -> None:
        self.closed = True
