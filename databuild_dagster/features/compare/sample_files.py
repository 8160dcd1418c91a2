"""A few rows of a Parquet file of any size: the footer, and the first pages of some columns of one row group.

Each read asks for a range of bytes, and all ranges together have a bound, as has their time. A column that does not fit is left out.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from databuild_dagster.warehouse.errors import NotParquet
from databuild_dagster.warehouse.storage import Storage, storage_at

if TYPE_CHECKING:
    import pyarrow.parquet as pq

MAX_ROWS: Final = 20
MAX_COLUMNS: Final = 30
#: Of one column, and of all of them with the footer.
MAX_COLUMN_BYTES: Final = 4 << 20
MAX_BYTES: Final = 16 << 20
#: A column chunk that has more bytes before compression is not opened: a small page may hold any number of them.
MAX_CHUNK_BYTES: Final = 512 << 20
MAX_SECONDS: Final = 5.0
#: Bytes of one read.
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
