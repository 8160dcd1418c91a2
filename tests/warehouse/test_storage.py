"""Which place a text means, and that none of them is left."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fsspec.registry import _registry as file_systems
from hypothesis import given
from hypothesis import strategies as st

from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.refs import PartitionRef
from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.errors import (
    DiskTrouble,
    InvalidWarehouse,
    ManifestMissing,
    NotCreateOnly,
    StorageLibraryMissing,
)
from databuild_dagster.warehouse.files import publish_files
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import FileEntry, read_manifest
from databuild_dagster.warehouse.object_store import forget_connections

UUID = "5e0002a1-0f3d-bd95-db63-b1ac4bedec0f"


def is_asset(text: str) -> bool:
    try:
        PartitionRef(text)
    except DatabuildError:
        return False
    return True


@pytest.mark.parametrize(
    ("given_root", "root"),
    [
        ("/data/warehouse/", "/data/warehouse"),
        ("file:///data/warehouse", "/data/warehouse"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("S3://Bucket/a prefix/[b]/", "s3://Bucket/a prefix/[b]"),
        ("gs://bucket/prefix", "gs://bucket/prefix"),
        ("abfss://box@us.dfs.core.windows.net/prefix/", "abfss://box@us.dfs.core.windows.net/prefix"),
    ],
)
def test_a_root_is_a_folder_or_a_url(given_root, root):
    assert Warehouse(given_root).root == root


@pytest.mark.parametrize(
    "root",
    [
        "s3://",
        "s3:///prefix",
        "s3://bucket//prefix",
        "s3://bucket/../other",
        "s3://bucket/./prefix",
        "s3://bucket/prefix?versionId=1",
        "s3://bucket/prefix#1",
        "simplecache::s3://bucket/prefix",
        "ftp://server/prefix",
        "https://server/prefix",
        str(Path("s3://bucket/prefix")),
    ],
)
def test_what_is_no_plain_url_is_refused(root):
    with pytest.raises(InvalidWarehouse, match=r"is no place for a warehouse: .*s3://bucket/prefix"):
        Warehouse(root)


@pytest.mark.parametrize(
    "root",
    [
        "s3://me:secret@bucket/prefix",
        "s3://secret@bucket/prefix",
        "abfss://me:secret@us.dfs.core.windows.net/prefix",
        "abfss://secretEby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUz==@us.dfs.core.windows.net/prefix",
        "abfss://box@us.dfs.core.windows.net/prefix?sig=secret",
    ],
)
def test_a_password_in_a_url_is_refused_and_not_repeated(root):
    with pytest.raises(InvalidWarehouse) as caught:
        Warehouse(root)

    assert "secret" not in str(caught.value)


@given(st.lists(st.text(min_size=1, max_size=300), min_size=1, max_size=3).map("/".join).filter(is_asset))
def test_no_key_leaves_the_prefix(asset):
    warehouse = Warehouse("s3://bucket/prefix")

    key = warehouse.manifest_path(asset, UUID)

    assert key.startswith("s3://bucket/prefix/")
    names = key.removeprefix("s3://bucket/prefix/").split("/")
    assert not {"", ".", ".."} & set(names)
    assert not set("".join(names)) & set("\\*?[]{}#")
    assert Warehouse.of_manifest(key, asset) == warehouse


def test_the_warehouse_of_a_manifest_is_found_in_a_folder_too(tmp_path):
    warehouse = Warehouse(str(tmp_path))

    assert Warehouse.of_manifest(warehouse.manifest_path("raw/flights", UUID), "raw/flights") == warehouse


@pytest.mark.long("a process has imported nothing else")
def test_a_local_warehouse_imports_no_object_store_and_no_frames():
    program = (
        "import sys, databuild_dagster.model.refs; before = set(sys.modules); import databuild_dagster.warehouse.manifest;"
        "from databuild_dagster.warehouse.layout import Warehouse; Warehouse('/tmp').storage;"
        "print({'fsspec', 's3fs', 'botocore', 'pyarrow', 'pyspark', 'pandas'} & (set(sys.modules) - before))"
    )

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)

    assert answer.stdout.strip() == "set()"


def test_a_url_whose_library_is_not_installed_says_what_to_install(monkeypatch):
    monkeypatch.delitem(file_systems, "s3", raising=False)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    forget_connections()

    with pytest.raises(
        StorageLibraryMissing, match="A warehouse on s3:// needs a library that is not installed"
    ) as missing:
        Warehouse("s3://bucket/prefix").new_staging_dir("x")

    assert missing.value.advice.endswith("[s3]'")


def test_an_unknown_protocol_is_refused():
    with pytest.raises(InvalidWarehouse, match="nope"):
        Warehouse("nope://bucket/prefix").new_staging_dir("x")


def test_a_protocol_that_needs_more_than_a_url_says_is_refused():
    with pytest.raises(InvalidWarehouse, match="host"):
        Warehouse("webhdfs://namenode/prefix").new_staging_dir("x")


def test_a_store_that_cannot_write_create_only_is_refused_before_anything_is_written():
    with pytest.raises(NotCreateOnly, match="can hold no warehouse"):
        Warehouse("data://bucket/prefix").new_staging_dir("x")


def test_a_local_warehouse_that_disappears_between_writing_and_publishing_is_named(tmp_path):
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    staging = warehouse.new_staging_dir(UUID)
    disk.make_dirs(staging)
    disk.create_only(os.path.join(staging, "part-0.parquet"), b"abc")
    disk.remove_tree(warehouse.root)

    with pytest.raises(DiskTrouble, match=r"part-0.parquet could not be written: no such file or directory"):
        publish_files(staging, warehouse.instance_dir("a", UUID), [FileEntry("part-0.parquet", 3, 1, "sha256:00")])


def test_a_local_warehouse_that_has_disappeared_is_named_to_readers(tmp_path):
    with pytest.raises(ManifestMissing, match="or it was built in another warehouse"):
        read_manifest(Warehouse(str(tmp_path / "gone")), "a", UUID)


def test_many_files_are_created_at_once_and_what_is_there_stays(tmp_path, monkeypatch):
    """Rule 10.2: create-only, each of them; no temporary file is left, however many are open at once."""
    monkeypatch.setattr(disk, "MAX_OPEN", 3)
    paths = [str(tmp_path / "new" / f"instance={number}" / "manifest.json") for number in range(8)]
    assert disk.create_only(paths[4], b"first")

    created = disk.create_each([(path, path.encode()) for path in paths])

    assert created == [True] * 4 + [False] + [True] * 3
    assert [Path(path).read_bytes() for path in paths] == [
        b"first" if path == paths[4] else path.encode() for path in paths
    ]
    assert sorted(str(path) for path in tmp_path.rglob("*") if path.is_file()) == sorted(paths)


def test_of_many_that_cannot_be_created_nothing_half_written_is_left(tmp_path):
    (tmp_path / "taken").write_text("no folder can be made here")
    paths = [str(tmp_path / folder / "manifest.json") for folder in ("a", "b", "taken")]

    with pytest.raises(DiskTrouble, match="taken"):
        disk.create_each([(path, b"abc") for path in paths])

    assert all(
        isinstance(answer, DiskTrouble) for answer in disk.try_to_create_each([(path, b"abc") for path in paths])
    )
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["taken"]
