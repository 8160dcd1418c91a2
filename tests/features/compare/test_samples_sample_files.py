"""A sample reads a bounded number of bytes of a file of any size."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from databuild_dagster.features.compare import samples as samples
from databuild_dagster.features.compare.samples import Sample, sample_of_file
from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.errors import DiskTrouble, NotParquet
from tests.support.object_store import S3Server


def written(path: Path, table: pa.Table, **options: Any) -> str:
    pq.write_table(table, path, **options)
    return str(path)


def sample(path: str) -> Sample:
    return sample_of_file(path, os.path.getsize(path))


@pytest.fixture
def n_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by the bytes of each read."""
    found: list[int] = []
    read_range = disk.read_range

    def read_and_count(path: str, start: int, end: int) -> bytes:
        found.append(end - start)
        return read_range(path, start, end)

    monkeypatch.setattr(disk, "read_range", read_and_count)
    return found


def test_the_first_rows_come_in_the_order_of_the_columns(tmp_path: Path) -> None:
    table = pa.table({"n": list(range(100)), "a.b": [1.5] * 100, "deep": [{"x": [n]} for n in range(100)]})
    path = written(tmp_path / "x.parquet", table)

    found = sample(path)

    assert found.columns == ("n", "a.b", "deep")
    assert (len(found.rows), found.rows[3], found.left_out) == (samples.MAX_ROWS, (3, 1.5, {"x": [3]}), ())


def test_a_row_group_without_rows_is_passed_over(tmp_path: Path) -> None:
    path = str(tmp_path / "x.parquet")
    schema = pa.schema([("n", pa.int64())])
    with pq.ParquetWriter(path, schema) as writer:
        writer.write_table(pa.table({"n": []}, schema))
        writer.write_table(pa.table({"n": [7]}, schema))
    no_rows = written(tmp_path / "none.parquet", pa.table({"n": pa.array([], pa.int64())}))

    assert sample(path).rows == [(7,)]
    assert sample(no_rows) == Sample(("n",), [], ())


def test_a_large_file_is_not_read_as_a_whole(tmp_path: Path, n_read: list[int]) -> None:
    n = 2_000_000
    path = written(tmp_path / "x.parquet", pa.table({"n": list(range(n))}), use_dictionary=False, compression="none")

    found = sample(path)

    assert found.rows[0] == (0,)
    assert os.path.getsize(path) > 15_000_000
    assert sum(n_read) < 3_000_000


def test_a_column_whose_first_values_are_too_large_is_left_out(tmp_path: Path, n_read: list[int]) -> None:
    blobs = [os.urandom(3 << 20) for _ in range(3)]
    path = written(tmp_path / "x.parquet", pa.table({"blob": blobs, "n": [1, 2, 3]}))

    found = sample(path)

    assert (found.columns, found.rows, found.left_out) == (("n",), [(1,), (2,), (3,)], ("blob",))
    assert sum(n_read) < samples.MAX_COLUMN_BYTES + 1_000_000


def test_all_columns_together_have_a_bound(tmp_path: Path, n_read: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MAX_BYTES", 200_000)
    wide = {f"c{n}": [os.urandom(60_000)] for n in range(10)}
    path = written(tmp_path / "x.parquet", pa.table(wide), use_dictionary=False)

    found = sample(path)

    assert found.columns
    assert len(found.columns) + len(found.left_out) == 10
    assert found.left_out
    assert sum(n_read) <= 200_000


def test_a_column_that_unpacks_to_too_much_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_read: list[int]
) -> None:
    monkeypatch.setattr(samples, "MAX_CHUNK_BYTES", 1_000_000)
    path = written(tmp_path / "x.parquet", pa.table({"zeros": ["0" * 2_000_000], "n": [1]}), compression="zstd")

    assert sample(path) == Sample(("n",), [(1,)], ("zeros",))


def test_only_some_columns_of_a_wide_table_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "x.parquet", pa.table({f"c{n:03}": [n] for n in range(100)}))

    found = sample(path)

    assert (len(found.columns), len(found.left_out)) == (samples.MAX_COLUMNS, 70)


def test_a_sample_whose_time_is_over_leaves_columns_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "x.parquet", pa.table({"a": [1], "b": [2]}))
    # Its start, and the read of the footer.
    times = iter([0.0, 1.0])
    monkeypatch.setattr(samples, "time", SimpleNamespace(monotonic=lambda: next(times, samples.MAX_SECONDS + 1)))

    assert sample(path) == Sample((), [], ("a", "b"))


@pytest.mark.parametrize("size", [1 << 10, 0])
def test_a_file_that_is_no_parquet_is_an_error(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(os.urandom(size))

    with pytest.raises(NotParquet):
        sample(str(path))


def test_values_that_python_has_no_type_for_are_text(tmp_path: Path) -> None:
    far = pa.array([10**15], pa.timestamp("s"))
    path = written(tmp_path / "x.parquet", pa.table({"far": far}))

    ((value,),) = sample(path).rows

    assert isinstance(value, str)


def test_a_file_in_a_bucket_is_read_by_ranges(tmp_path: Path, s3: S3Server, bucket: str) -> None:
    path = written(tmp_path / "x.parquet", pa.table({"n": list(range(1_000))}))
    s3.client().upload_file(path, bucket, "a/x.parquet")

    found = sample_of_file(f"s3://{bucket}/a/x.parquet", os.path.getsize(path))

    assert found == sample(path)
    with pytest.raises(FileNotFoundError):
        sample_of_file(f"s3://{bucket}/a/y.parquet", os.path.getsize(path))


def test_a_named_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    """A thread of the web server would wait for a writer without end."""
    path = tmp_path / "x.parquet"
    os.mkfifo(path)

    with pytest.raises((DiskTrouble, NotParquet)):
        sample_of_file(str(path), 1_000)
