"""Files of others are found and described alike, on a disk and in a bucket, and read from any warehouse."""

from __future__ import annotations

from collections.abc import Callable

import fsspec
import pytest

from databuild_dagster.warehouse.errors import ListedFileLost, UnreadableFile
from databuild_dagster.warehouse.files import describe_each, find_files, read_table, table_schema, whole_pattern
from databuild_dagster.warehouse.formats import WRITTEN
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    UriType,
    file_paths,
    local_paths,
    missing_files,
    read_manifest,
    with_whole_uris,
    write_manifest,
)
from tests.support.written import ASSET, UUID, manifest_of, numbers, publish


@pytest.fixture(params=["disk", "s3"])
def root(request, tmp_path):
    return str(tmp_path / "theirs") if request.param == "disk" else f"s3://{request.getfixturevalue('bucket')}/theirs"


@pytest.fixture(params=["disk", "s3"])
def warehouse(request, tmp_path):
    folder = str(tmp_path / "ours") if request.param == "disk" else f"s3://{request.getfixturevalue('bucket')}/ours"
    return Warehouse(folder)


@pytest.fixture
def put(root, tmp_path) -> Callable[..., str]:
    """Write a file of some numbers, as another program does."""
    file_system, _ = fsspec.core.url_to_fs(root)

    def put(name: str, *values: int, contents: bytes | None = None) -> str:
        staged = tmp_path / "staged"
        WRITTEN.write(numbers(*values), str(staged))
        file_system.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
        file_system.pipe_file(f"{root}/{name}", staged.read_bytes() if contents is None else contents)
        return f"{root}/{name}"

    return put


def listed(warehouse, pattern):
    found = describe_each(find_files(pattern))
    files, schema = tuple(file.entry for file in found), table_schema(found[0].schema)
    write_manifest(warehouse, manifest_of(uri_type=UriType.IDENTIFIER, files=files, schema=schema))
    return read_manifest(warehouse, ASSET, UUID)


def test_a_pattern_finds_data_and_nothing_that_only_looks_like_it(root, put):
    """Spark leaves markers, checksums and half of what it was about to write."""
    wanted = [put("day=1/a.parquet", 1), put("day=1/b c.parquet", 2)]
    for name in ("day=1/_SUCCESS", "day=1/.a.parquet.crc", "day=1/_temporary/0/a.parquet", "day=2/a.parquet"):
        put(name, 3)

    by_files = find_files(f"{root}/day=1/*.parquet")
    by_folder = find_files(f"{root}/day=1")
    by_names = find_files(f"{root}/day=1/*")

    assert [path for path, _ in by_files] == wanted
    assert by_folder == by_names == by_files
    assert all(size_bytes > 100 for _, size_bytes in by_files)
    assert find_files(f"{root}/day=3/*.parquet") == []


def test_a_file_is_described_where_it_lies(root, put):
    path = put("a.parquet", 1, 2, 3)

    (file,) = describe_each(find_files(path))

    assert (file.entry.uri, file.entry.rows, file.schema.names) == (path, 3, ["n"])
    # Of its bytes, or as its store gives it: the footer of a rewritten file may be the same.
    assert file.entry.checksum.startswith("etag:" if root.startswith("s3:") else "sha256:")


def test_a_file_that_is_no_data_is_named_by_its_path(root, put):
    path = put("a.parquet", contents=b"PAR1 but not really PAR1")

    (found,) = describe_each(find_files(f"{root}/*"))

    assert isinstance(found, UnreadableFile)
    assert found.facts["path"] == path


def test_it_is_read_from_any_warehouse(root, put, warehouse):
    put("a.parquet", 1, 2)
    put("b.parquet", 3)

    manifest = listed(warehouse, f"{root}/*.parquet")

    assert file_paths(warehouse, manifest) == [f"{root}/a.parquet", f"{root}/b.parquet"]
    assert read_table(warehouse, [manifest]).to_pydict() == {"n": [1, 2, 3]}
    assert missing_files(warehouse, manifest) == ()


def test_a_file_that_has_changed_is_missing_and_never_read_as_another(root, put, warehouse):
    put("a.parquet", 1, 2)
    manifest = listed(warehouse, f"{root}/*.parquet")

    path = put("a.parquet", *range(5000))

    assert missing_files(warehouse, manifest) == (path,)
    if "://" in path:
        with pytest.raises(ListedFileLost, match="instead of"):
            local_paths(warehouse, [manifest])


def test_an_instance_of_one_warehouse_is_read_from_another(warehouse, tmp_path):
    elsewhere = Warehouse(str(tmp_path / "elsewhere"))

    whole = with_whole_uris(warehouse, publish(warehouse, numbers(1)))

    assert read_table(elsewhere, [whole]).to_pydict() == {"n": [1]}
    assert read_table(elsewhere, [whole, whole]).to_pydict() == {"n": [1, 1]}


def test_a_pattern_is_whole_wherever_it_is_said(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    assert whole_pattern("data/*.parquet") == f"{tmp_path}/data/*.parquet"
    assert whole_pattern("file:///data/*.parquet") == "/data/*.parquet"
    assert whole_pattern("s3://bucket/*.parquet") == "s3://bucket/*.parquet"
