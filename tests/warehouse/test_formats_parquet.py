"""Files described by their footers, and read back as a manifest lists them."""

from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pytest

from databuild_dagster.warehouse.errors import NotParquet
from databuild_dagster.warehouse.files import describe_files, publish_files, read_table
from databuild_dagster.warehouse.formats import WRITTEN
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Column, Manifest, ManifestState

UUID = "5e0002a1-0f3d-bd95-db63-b1ac4bedec0f"


def a_table(*numbers):
    return pa.table({"n": pa.array(numbers, pa.int64())})


def published(warehouse, staging):
    files, schema = describe_files(str(staging))
    publish_files(str(staging), warehouse.instance_dir("a", UUID), files)
    return Manifest(
        dataset="a",
        ref="a",
        instance_uuid=UUID,
        job_run="j",
        attempt=1,
        state=ManifestState.COMPLETE,
        files=files,
        created_at=datetime(2013, 1, 2, tzinfo=UTC),
        schema=schema,
    )


def test_a_file_is_described_by_its_footer_and_its_bytes(tmp_path):
    path = tmp_path / "part-0.parquet"
    WRITTEN.write(a_table(1, 2, 3), str(path))

    (file,), schema = describe_files(str(tmp_path))

    assert (file.uri, file.rows, file.bytes) == ("part-0.parquet", 3, path.stat().st_size)
    assert file.checksum == f"sha256:{sha256(path.read_bytes()).hexdigest()}"
    assert schema.columns == (Column("n", "int64", True),)


def test_markers_checksums_links_and_folders_are_not_data(tmp_path):
    WRITTEN.write(a_table(1), str(tmp_path / "part-0.parquet"))
    for name in ("_SUCCESS", ".part-0.parquet.crc", "notes.parquet", "part-1.csv"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "part-2.parquet").symlink_to(tmp_path / "part-0.parquet")
    (tmp_path / "part-3.parquet").mkdir()

    files, _ = describe_files(str(tmp_path))

    assert [file.uri for file in files] == ["part-0.parquet"]


def test_a_file_planted_later_changes_no_answer(tmp_path):
    warehouse, staging = Warehouse(str(tmp_path / "warehouse")), tmp_path / "staging"
    staging.mkdir()
    WRITTEN.write(a_table(1, 2), str(staging / "part-0.parquet"))
    manifest = published(warehouse, staging)

    folder = Path(warehouse.instance_dir("a", UUID))
    WRITTEN.write(a_table(99), str(folder / "part-1.parquet"))
    (folder / "_SUCCESS").touch()

    assert read_table(warehouse, [manifest]).to_pydict() == {"n": [1, 2]}


def test_a_look_at_a_few_rows_reads_no_more(tmp_path):
    warehouse, staging = Warehouse(str(tmp_path / "warehouse")), tmp_path / "staging"
    staging.mkdir()
    for number in range(3):
        WRITTEN.write(a_table(number, number), str(staging / f"part-{number}.parquet"))

    table = read_table(warehouse, [published(warehouse, staging)], limit=3)

    assert table.to_pydict() == {"n": [0, 0, 1]}


def test_a_file_that_is_no_parquet_is_named(tmp_path):
    (tmp_path / "part-0.parquet").write_bytes(b"PAR1 but not really PAR1")

    with pytest.raises(NotParquet, match=r"part-0.parquet is no readable Parquet file"):
        describe_files(str(tmp_path))
