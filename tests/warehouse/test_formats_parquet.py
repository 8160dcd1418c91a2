"""Files described by their footers, and read back as a manifest lists them."""

from hashlib import sha256
from pathlib import Path

import pytest

from databuild_dagster.warehouse.errors import NotParquet
from databuild_dagster.warehouse.files import describe_files, read_table
from databuild_dagster.warehouse.formats import WRITTEN
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Column
from tests.support.written import ASSET, UUID, numbers, publish


def test_a_file_is_described_by_its_footer_and_its_bytes(tmp_path):
    path = tmp_path / "part-0.parquet"
    WRITTEN.write(numbers(1, 2, 3), str(path))

    (file,), schema = describe_files(str(tmp_path))

    assert (file.uri, file.rows, file.bytes) == ("part-0.parquet", 3, path.stat().st_size)
    assert file.checksum == f"sha256:{sha256(path.read_bytes()).hexdigest()}"
    assert schema.columns == (Column("n", "int64", True),)


def test_markers_checksums_links_and_folders_are_not_data(tmp_path):
    WRITTEN.write(numbers(1), str(tmp_path / "part-0.parquet"))
    for name in ("_SUCCESS", ".part-0.parquet.crc", "notes.parquet", "part-1.csv"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "part-2.parquet").symlink_to(tmp_path / "part-0.parquet")
    (tmp_path / "part-3.parquet").mkdir()

    files, _ = describe_files(str(tmp_path))

    assert [file.uri for file in files] == ["part-0.parquet"]


def test_a_file_planted_later_changes_no_answer(tmp_path):
    warehouse = Warehouse(str(tmp_path))
    manifest = publish(warehouse, numbers(1, 2))

    folder = Path(warehouse.instance_dir(ASSET, UUID))
    WRITTEN.write(numbers(99), str(folder / "part-1.parquet"))
    (folder / "_SUCCESS").touch()

    assert read_table(warehouse, [manifest]).to_pydict() == {"n": [1, 2]}


def test_a_look_at_a_few_rows_reads_no_more(tmp_path):
    warehouse = Warehouse(str(tmp_path))
    manifest = publish(warehouse, *(numbers(number, number) for number in range(3)))

    table = read_table(warehouse, [manifest], limit=3)

    assert table.to_pydict() == {"n": [0, 0, 1]}


def test_a_file_that_is_no_parquet_is_named(tmp_path):
    (tmp_path / "part-0.parquet").write_bytes(b"PAR1 but not really PAR1")

    with pytest.raises(NotParquet, match=r"part-0.parquet is no readable Parquet file"):
        describe_files(str(tmp_path))
