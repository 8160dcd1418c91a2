"""One contract, and every format that keeps it can hold instances."""

from __future__ import annotations

from datetime import datetime
from io import BytesIO
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from databuild_dagster.warehouse.errors import UnknownFormat, UnreadableFile
from databuild_dagster.warehouse.files import describe_each, find_files, fingerprint_of, read_table
from databuild_dagster.warehouse.formats import READABLE, WRITTEN, FileFormat, format_named
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import missing_files, read_manifest
from tests.support.instances import write_instance
from tests.support.orc import Orc

UUIDS = ["5e0002a1-0f3d-bd95-db63-b1ac4bedec0f", "579bd65c-4ec2-280d-148b-69c8ddecd1b2"]


@pytest.fixture(params=[WRITTEN, Orc()], ids=lambda kind: kind.name)
def file_format(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FileFormat:
    monkeypatch.setitem(READABLE, request.param.name, request.param)
    return request.param


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path / "warehouse"))


def a_table(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64()), "word": [str(number) for number in numbers]})


def written(frame: pd.DataFrame, warehouse: Warehouse, file_format: FileFormat, ref: str, uuid: str):
    return write_instance(frame, warehouse, ref=ref, uuid=uuid, job_run="j", file_format=file_format)


def test_a_file_tells_its_rows_and_columns_from_a_path_and_from_an_open_file(file_format, tmp_path):
    path = str(tmp_path / f"part-0{file_format.suffix}")
    file_format.write(a_table(1, 2, 3), path)

    facts = file_format.describe(path, path)
    with open(path, "rb") as opened:
        of_open_file = file_format.describe(opened, path)

    assert (facts.rows, facts.schema.names) == (3, ["n", "word"])
    assert facts == of_open_file


def test_the_tail_of_a_file_tells_the_same_as_the_file(file_format, tmp_path):
    path = str(tmp_path / f"part-0{file_format.suffix}")
    file_format.write(a_table(1, 2, 3), path)
    contents = Path(path).read_bytes()

    tail = file_format.tail(lambda length: contents[-length:], 0)

    assert file_format.describe(BytesIO(tail), path) == file_format.describe(path, path)


def test_a_footer_is_read_without_data_and_by_one_read_if_its_length_is_expected(tmp_path):
    path = str(tmp_path / "part-0.parquet")
    WRITTEN.write(a_table(*range(100_000)), path)
    contents, read = Path(path).read_bytes(), []

    def read_last(length: int) -> bytes:
        read.append(length)
        return contents[-length:]

    tail = WRITTEN.tail(read_last, 0)
    WRITTEN.tail(read_last, len(tail))

    assert len(read) == 3
    assert max(read) == len(tail) < len(contents) / 100


@pytest.mark.parametrize("contents", [b"", b"PAR1 but not really PAR1", b"ORC"])
def test_a_file_of_another_format_is_named_by_its_path(file_format, tmp_path, contents):
    path = tmp_path / f"part-0{file_format.suffix}"
    path.write_bytes(contents)

    with pytest.raises(UnreadableFile, match=path.name):
        file_format.describe(str(path), str(path))
    with pytest.raises(UnreadableFile, match=path.name):
        file_format.read(str(path))


def test_an_instance_is_written_published_and_read_in_the_format(file_format, warehouse):
    frame = pd.DataFrame({"n": [1, 2], "word": ["a", None]})

    written(frame, warehouse, file_format, "numbers@1", UUIDS[0])

    manifest = read_manifest(warehouse, "numbers", UUIDS[0])
    assert (manifest.format, manifest.rows) == (file_format.name, 2)
    assert [file.uri.endswith(file_format.suffix) for file in manifest.files] == [True]
    assert [(column.name, column.type) for column in manifest.schema.columns] == [("n", "long"), ("word", "string")]
    assert missing_files(warehouse, manifest) == ()
    assert read_table(warehouse, [manifest]).to_pydict() == {"n": [1, 2], "word": ["a", None]}


def test_an_instance_without_rows_has_its_columns(file_format, warehouse):
    manifest = written(pd.DataFrame({"n": pd.Series([], dtype="int64")}), warehouse, file_format, "numbers", UUIDS[0])

    assert manifest.files == ()
    assert [(column.name, column.type) for column in manifest.schema.columns] == [("n", "long")]


def test_instances_of_several_formats_are_read_together(file_format, warehouse):
    """The format of new instances does not decide how an older one is read."""
    old = written(pd.DataFrame({"n": [1]}), warehouse, WRITTEN, "numbers@1", UUIDS[0])
    new = written(pd.DataFrame({"n": [2]}), warehouse, file_format, "numbers@2", UUIDS[1])

    assert read_table(warehouse, [old, new]).to_pydict() == {"n": [1, 2]}


def test_files_outside_are_described_in_the_format(file_format, tmp_path):
    for number in (1, 2):
        file_format.write(a_table(number), str(tmp_path / f"{number}{file_format.suffix}"))

    found = describe_each(find_files(str(tmp_path / "*")), file_format)

    assert [file.entry.rows for file in found] == [1, 1]
    assert fingerprint_of([found[0].entry]) != fingerprint_of([file.entry for file in found])


def test_a_format_that_is_not_known_here_is_refused_with_what_to_do():
    with pytest.raises(UnknownFormat, match="'arrow', which this version cannot read. Upgrade"):
        format_named("arrow")


def test_a_timestamp_of_12_bytes_is_one_of_microseconds_in_any_year(tmp_path):
    """As Spark reads INT96, which Hive, Impala and older tools write: nanoseconds end in the year 2262."""
    at = [datetime(1, 1, 1), datetime(2024, 1, 1, 10, 30), datetime(9999, 12, 31)]
    path = str(tmp_path / "at.parquet")
    table = pa.table({"at": pa.array(at, pa.timestamp("us"))})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, store_schema=False)

    assert WRITTEN.describe(path, path).schema.field("at").type == pa.timestamp("us")
    assert WRITTEN.read(path).column("at").to_pylist() == at
