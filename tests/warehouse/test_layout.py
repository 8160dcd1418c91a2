"""From asset and uuid to a folder: nothing leaves the warehouse, and no two assets meet."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.refs import PartitionRef
from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.errors import InvalidInstanceUuid
from databuild_dagster.warehouse.layout import MAX_NAME_LENGTH, Warehouse, encode_segment

UUID = "5e0002a1-0f3d-bd95-db63-b1ac4bedec0f"

TRICKY = [
    "..",
    ".",
    "%2E%2E",
    "a b",
    "_x",
    "a=b",
    "*",
    "[a]",
    "{b}",
    "a\\b",
    "é",
    "instance=1",
    "~",
    "data",
    "%",
    "-rf",
]
segments = st.text(min_size=1, max_size=300) | st.sampled_from(TRICKY)


def is_asset(text: str) -> bool:
    try:
        PartitionRef(text)
    except DatabuildError:
        return False
    return True


assets = st.lists(segments, min_size=1, max_size=3).map("/".join).filter(is_asset)


def test_an_instance_lies_below_its_asset_in_a_folder_named_after_its_uuid():
    warehouse = Warehouse("/data/warehouse")

    folder = warehouse.instance_dir("raw/flights", UUID)

    assert folder == f"/data/warehouse/raw/flights/data/instance={UUID}"


@given(assets)
def test_no_asset_leaves_the_warehouse(asset):
    warehouse = Warehouse("/data/warehouse")

    folder = warehouse.instance_dir(asset, UUID)

    assert os.path.normpath(folder) == folder
    assert folder.startswith("/data/warehouse/")
    assert all(len(name) <= max(MAX_NAME_LENGTH, len(f"instance={UUID}")) for name in folder.split("/"))


@given(assets, assets)
def test_two_assets_never_share_a_folder(one, other):
    warehouse = Warehouse("/data/warehouse")

    folders = warehouse.instance_dir(one, UUID), warehouse.instance_dir(other, UUID)

    assert (folders[0] == folders[1]) == (one == other)


@given(st.text(min_size=1, max_size=100).filter(lambda text: "/" not in text and is_asset(text)))
def test_an_encoded_name_means_nothing_to_a_shell_to_spark_or_to_hive(segment):
    name = encode_segment(segment)

    assert not set(name) & set("/\\*?[]{}= \n\"'$:")
    assert name[0] not in "._-"


@pytest.mark.parametrize(
    "uuid", ["", "..", "../../etc", "5E0002A1-0F3D-BD95-DB63-B1AC4BEDEC0F", f"{UUID}\n", f"{UUID}/.."]
)
def test_what_is_no_instance_uuid_is_refused(uuid):
    with pytest.raises(InvalidInstanceUuid):
        Warehouse("/data").instance_dir("a", uuid)


def test_a_relative_warehouse_is_where_the_process_stood_when_it_was_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    warehouse = Warehouse("warehouse")

    assert warehouse.root == str(tmp_path / "warehouse")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("EROFS", "may not write"),
        ("EACCES", "may not write"),
        ("ENOSPC", "the disk is full"),
        ("EIO", "input/output error"),
    ],
)
def test_a_refusal_of_the_disk_is_one_sentence_with_what_to_do(number, words):
    import errno

    code = getattr(errno, number)

    with pytest.raises(DatabuildError, match=words) as caught, disk.explained("/data/x", "written"):
        raise OSError(code, os.strerror(code))

    assert "/data/x could not be written" in caught.value.message
    assert caught.value.advice
