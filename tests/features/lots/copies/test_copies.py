"""Clusterless's keys: named as other tools expect, replaced whole, on a disk and in an object store (rule 10.2)."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from databuild_dagster.features.lots.copies.copies import (
    LotFolder,
    all_copies,
    arc_folder,
    lot_folder,
    manifest_copy,
    put_all_copies,
    put_copies,
    remove_copies,
    wrong_copies,
)
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import FileEntry, ManifestState
from databuild_dagster.warehouse.threads import in_own_thread
from tests.support.object_store import own_bucket
from tests.support.written import UUID, manifest_of

LOT = "20230227PT5M287"


@pytest.fixture(params=["disk", "s3", "seaweedfs"])
def warehouse(request, tmp_path):
    if request.param == "disk":
        return Warehouse(str(tmp_path / "warehouse"))
    return Warehouse(f"s3://{own_bucket(request.getfixturevalue(request.param), request)}/pre fix")


@pytest.mark.parametrize(
    ("state", "name"),
    [
        (ManifestState.COMPLETE, "state=complete"),
        (ManifestState.EMPTY, "state=empty"),
        (ManifestState.PARTIAL, f"state=partial/attempt={UUID}"),
        (ManifestState.REMOVED, f"state=removed/attempt={UUID}"),
    ],
)
def test_the_key_says_the_state_and_of_what_may_have_several_attempts_which(state, name):
    warehouse = Warehouse("/w")
    folder = lot_folder(warehouse, "raw/flights", "20240101-00", LOT)

    path, _ = manifest_copy(warehouse, folder, manifest_of(state=state))

    assert path == f"/w/datasets/name=raw%2Fflights/version=20240101-00/lot={LOT}/{name}/manifest.json"


@pytest.mark.parametrize("text", ["..", "a/b", "../../etc", "a=b", "", "_", ".hidden", "*", "x" * 500])
def test_no_name_leaves_its_place_and_two_never_share_one(text):
    warehouse = Warehouse("/w")
    folders = [
        lot_folder(warehouse, text, "0", "a"),
        lot_folder(warehouse, "a", text, "a"),
        lot_folder(warehouse, "a", "0", text),
        lot_folder(warehouse, "a", "0", None),
        arc_folder(warehouse, text, "0", "a", "a"),
        arc_folder(warehouse, "a", "0", text, "a"),
    ]

    assert all(os.path.normpath(folder) == folder and folder.startswith("/w/") for folder in folders)
    assert len(set(folders)) == len(folders)
    assert not any(folder.startswith(f"{warehouse.dataset_dir(name)}/data") for folder in folders for name in "da")


def test_files_and_children_of_a_copy_are_named_by_their_whole_paths():
    warehouse = Warehouse("/w")
    files = (FileEntry("part-0.parquet", 3, 1, "sha256:00"),)
    manifest = manifest_of(files=files, children=("part=1/manifest.json", "s3://b/k/manifest.json"))

    _, contents = manifest_copy(warehouse, "/w/datasets/x", manifest)

    copy = json.loads(contents)
    beside = warehouse.instance_dir("raw/flights", UUID)
    assert copy["uri_type"] == "identifier"
    assert [file["uri"] for file in copy["files"]] == [f"{beside}/part-0.parquet"]
    assert copy["children"] == [f"{beside}/part=1/manifest.json", "s3://b/k/manifest.json"]


def test_a_lots_folder_holds_what_it_should_and_nothing_else(warehouse):
    folder = lot_folder(warehouse, "a", "0", LOT)
    one, two, three = (f"{folder}/state={name}/manifest.json" for name in ("complete", "empty", "partial/attempt=x"))

    assert put_copies(warehouse, folder, {one: b"1"}) == (1, 0)
    assert put_copies(warehouse, folder, {one: b"1"}) == (0, 0), "what is so already is not written again"
    assert put_copies(warehouse, folder, {one: b"2"}) == (1, 0)
    assert put_copies(warehouse, folder, {two: b"2", three: b"3"}) == (2, 1)

    assert all_copies(warehouse) == {folder: {two, three}}
    assert wrong_copies(warehouse, folder, {two: b"2", three: b"3"}) == {}
    assert wrong_copies(warehouse, folder, {one: b"1", two: b"3"}) == {
        one: "it is missing",
        two: "it differs from the record",
        three: "it should not be there any more",
    }
    assert put_copies(warehouse, folder, {}) == (0, 2)
    assert all_copies(warehouse) == {}


def test_copies_of_many_lots_are_compared_and_removed_together(s3, bucket):
    """As in a store that gives no MD5 of its objects."""
    warehouse = Warehouse(f"s3://{bucket}/pre fix")
    lots = [f"2023022{number}P1D000" for number in range(1, 5)]
    folders = []
    for lot in lots:
        folder = lot_folder(warehouse, "a", "0", lot)
        complete, empty = (f"{folder}/state={name}/manifest.json" for name in ("complete", "empty"))
        put_copies(warehouse, folder, {complete: b"1", empty: b"2"})
        folders.append(LotFolder(folder, {complete: b"1"}, {complete: None, empty: None}))
    read = [s3.hold("GET", f"lot={lot}/state=complete") for lot in lots]
    removed = [s3.hold("DELETE", f"lot={lot}/state=empty") for lot in lots]

    put = in_own_thread(lambda: put_all_copies(warehouse, folders), "put copies")
    try:
        # Each request waits until all of its kind have begun.
        for holds in (read, removed):
            assert all(hold.reached.wait(250) for hold in holds)
            for hold in holds:
                hold.answer()
        done = put.result(250)
    finally:
        for hold in (*read, *removed):
            hold.released.set()

    assert done == (0, len(lots))
    assert sorted(all_copies(warehouse)) == sorted(folder.path for folder in folders)
    assert {path for paths in all_copies(warehouse).values() for path in paths} == {
        path for folder in folders for path in folder.files
    }


def test_what_only_looks_like_a_key_is_left_alone(warehouse):
    """An asset may be named as the folder of the keys is."""
    ours = [
        f"{warehouse.root}/datasets/name=a/stray",
        f"{lot_folder(warehouse, 'a', '0', LOT)}/state=complete/manifest.json",
    ]
    others = [f"{warehouse.instance_dir('datasets', UUID)}/manifest.json", f"{warehouse.root}/arcs/notes.txt"]
    for path in (*ours, *others):
        warehouse.storage.create_only(path, b"x")

    found = sorted(path for paths in all_copies(warehouse).values() for path in paths)
    remove_copies(warehouse, found)

    assert found == sorted(ours)
    assert all_copies(warehouse) == {}
    assert [warehouse.storage.read_bytes(path) for path in others] == [b"x", b"x"]


def test_many_at_once_leave_one_whole_copy_and_no_temporary_file(tmp_path):
    """Two orchestrators' ticks may overlap; a folder may be removed, for it is empty, while another writes there."""
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    folder = lot_folder(warehouse, "a", "0", LOT)
    path = f"{folder}/state=complete/manifest.json"
    contents = [bytes([65 + number]) * 5000 for number in range(4)]

    def write(number):
        for _ in range(10):
            put_copies(warehouse, folder, {path: contents[number]})
            if number == 3:
                put_copies(warehouse, folder, {})

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    put_copies(warehouse, folder, {path: contents[0]})

    assert all_copies(warehouse) == {folder: {path}}
    assert warehouse.storage.read_bytes(path) == contents[0]
