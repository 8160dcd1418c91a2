"""Manifests: written once, refused when they lie, cheap to read."""

import json
import multiprocessing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from databuild_dagster.warehouse.errors import (
    EscapingFile,
    ManifestConflict,
    ManifestDamaged,
    ManifestMissing,
    NewerManifest,
)
from databuild_dagster.warehouse.files import read_table
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    Column,
    FileEntry,
    TableSchema,
    UriType,
    local_paths,
    missing_files,
    read_manifest,
    write_manifest,
)
from tests.support import written
from tests.support.command import run_python
from tests.support.written import UUID, winners_of_a_race


@pytest.fixture
def warehouse(tmp_path):
    return Warehouse(str(tmp_path))


def manifest_of(*uris, **changes):
    facts = {
        "files": tuple(FileEntry(uri=uri, bytes=3, rows=1, checksum="sha256:00") for uri in uris),
        "schema": TableSchema((Column("carrier", "string", True),)),
        "inputs": {"raw/days@2013-01-01": UUID},
    }
    return written.manifest_of(**facts | changes)


def damage(warehouse, change):
    path = Path(warehouse.manifest_path("raw/flights", UUID))
    path.write_bytes(change(path.read_bytes()))


#: As many as write one manifest at once.
PROCESSES = 3


def write_in_processes(root):
    """The outcome of each writer, by its number; all begin together."""
    context = multiprocessing.get_context("spawn")
    together, outcomes = context.Barrier(PROCESSES), context.Queue()
    writers = [
        context.Process(target=write_one, args=(root, number, together, outcomes)) for number in range(PROCESSES)
    ]
    for writer in writers:
        writer.start()
    found = dict(outcomes.get(timeout=120) for _ in writers)
    for writer in writers:
        writer.join(240)
        assert writer.exitcode == 0, "a writer did not end within 240 s after its report"
    return [found[number] for number in range(PROCESSES)]


def write_one(root, number, together, outcomes):
    manifest = manifest_of(*(f"part-{n}.parquet" for n in range(200)), attempt=number)
    together.wait(120)
    try:
        write_manifest(Warehouse(root), manifest)
        outcomes.put((number, "wrote"))
    except ManifestConflict:
        outcomes.put((number, "conflict"))
    except Exception as error:
        outcomes.put((number, repr(error)))


def test_what_was_written_is_read(warehouse):
    manifest = manifest_of("part-0.parquet")

    write_manifest(warehouse, manifest)

    assert read_manifest(warehouse, "raw/flights", UUID) == manifest


def test_the_record_has_the_fields_that_others_were_promised(warehouse):
    path = write_manifest(warehouse, manifest_of("part-0.parquet"))

    record = json.loads(Path(path).read_text())

    assert set(record) == {
        *(
            "schema_version",
            "dataset",
            "ref",
            "lot_id",
            "instance_uuid",
            "job_run",
            "attempt",
            "state",
            "uri_type",
        ),
        *("files", "created_at", "schema", "inputs", "comment", "children", "format", "adopted_from"),
    }
    assert set(record["files"][0]) == {"uri", "bytes", "rows", "checksum"}


def test_writing_the_same_again_changes_nothing(warehouse):
    write_manifest(warehouse, manifest_of("part-0.parquet"))

    write_manifest(warehouse, manifest_of("part-0.parquet"))

    assert [path.name for path in Path(warehouse.instance_dir("raw/flights", UUID)).iterdir()] == ["manifest.json"]


def test_of_two_writers_one_wins_and_the_other_is_refused(warehouse):
    winners = winners_of_a_race(warehouse, 2, manifest_of)

    assert [read_manifest(warehouse, "raw/flights", UUID).attempt] == winners


def test_an_instance_without_a_manifest_is_not_found(warehouse):
    with pytest.raises(ManifestMissing, match=r"has no manifest at .*Its data was removed"):
        read_manifest(warehouse, "raw/flights", UUID)


def test_a_manifest_of_a_newer_version_asks_for_an_upgrade_in_any_shape(warehouse):
    write_manifest(warehouse, manifest_of())
    damage(warehouse, lambda _: b'{"schema_version": 2, "files": "elsewhere"}')

    with pytest.raises(NewerManifest, match="schema version 2, newer than 1"):
        read_manifest(warehouse, "raw/flights", UUID)


def test_the_manifest_of_another_instance_is_damage(warehouse):
    write_manifest(warehouse, manifest_of())
    damage(warehouse, lambda contents: contents.replace(b"5e0002a1", b"00000000"))

    with pytest.raises(ManifestDamaged, match="it is that of instance 00000000"):
        read_manifest(warehouse, "raw/flights", UUID)


@pytest.mark.parametrize("uri_type", [UriType.PATH, UriType.PREFIX])
@pytest.mark.parametrize(
    "uri", ["../other/part-0.parquet", "/etc/passwd", "..", "", "sub/part-0.parquet", "a\\b", "a\0b"]
)
def test_a_file_outside_of_the_instance_is_neither_written_down_nor_read(warehouse, uri, uri_type):
    """Rule 10.2: nor can the beginning of names leave the instance."""
    with pytest.raises(EscapingFile):
        write_manifest(warehouse, manifest_of(uri, uri_type=uri_type))

    write_manifest(warehouse, manifest_of("part-0.parquet", uri_type=uri_type))
    damage(warehouse, lambda contents: contents.replace(b'"part-0.parquet"', json.dumps(uri).encode()))
    with pytest.raises(EscapingFile):
        read_manifest(warehouse, "raw/flights", UUID)


def parquet(warehouse, name, n_rows):
    """A file in the instance's folder; its size."""
    path = Path(warehouse.instance_dir("raw/flights", UUID), name)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"carrier": ["LH"] * n_rows}), path)
    return path.stat().st_size


def test_the_files_of_a_prefix_are_those_whose_names_begin_with_it(warehouse):
    """Rule 10.2: a manifest of another program."""
    sizes = [parquet(warehouse, name, n) for n, name in enumerate(("part-0.parquet", "part-1.parquet"), 1)]
    parquet(warehouse, "other.parquet", 5)
    prefix = FileEntry(uri="part-", bytes=sum(sizes), rows=3, checksum="")
    write_manifest(warehouse, manifest_of(uri_type=UriType.PREFIX, files=(prefix,)))

    manifest = read_manifest(warehouse, "raw/flights", UUID)

    assert [(file.uri, file.bytes, file.rows) for file in manifest.files] == [
        ("part-0.parquet", sizes[0], 1),
        ("part-1.parquet", sizes[1], 2),
    ]
    assert missing_files(warehouse, manifest) == ()
    assert read_table(warehouse, [manifest], limit=2).num_rows == 2
    assert read_table(warehouse, [manifest]).num_rows == 3


def test_a_prefix_whose_files_have_other_bytes_is_lost(warehouse):
    """Rule 10.2"""
    size = parquet(warehouse, "part-0.parquet", 1)
    prefix = FileEntry(uri="part-", bytes=size + 1, rows=1, checksum="")
    write_manifest(warehouse, manifest_of(uri_type=UriType.PREFIX, files=(prefix,)))

    manifest = read_manifest(warehouse, "raw/flights", UUID)

    assert manifest.uri_type is UriType.PREFIX
    assert missing_files(warehouse, manifest) == ("part-",)


@pytest.mark.parametrize("uri", ["part-0.parquet", "../part-0.parquet", "/data/../etc/passwd", "s3://bucket/../x", ""])
def test_a_file_outside_is_named_whole_or_not_at_all(warehouse, uri):
    """Rule 10.2: uri type identifier."""
    with pytest.raises(ManifestDamaged, match="no whole path or url"):
        write_manifest(warehouse, manifest_of(uri, uri_type=UriType.IDENTIFIER))


def test_a_listed_name_that_leads_elsewhere_is_missing_and_is_not_read(warehouse, tmp_path):
    """A link leaves the folder as a way up does."""
    write_manifest(warehouse, manifest := manifest_of("part-0.parquet"))
    (tmp_path / "secret").write_bytes(b"abc")
    Path(warehouse.instance_dir("raw/flights", UUID), "part-0.parquet").symlink_to(tmp_path / "secret")

    assert missing_files(warehouse, manifest) == ("part-0.parquet",)
    with pytest.raises(EscapingFile, match=r"lists 'part-0.parquet', which is not in the folder"):
        local_paths(warehouse, [manifest])


@pytest.mark.parametrize(
    "change",
    [
        *(lambda contents, kept=kept: contents[:kept] for kept in (0, 1, 100, 300)),
        lambda _: b'{"schema_version": 1}',
        lambda _: b'{"schema_version": "1"}',
        lambda _: b"[]",
        lambda _: b"null",
        lambda _: b"\xff\xfe",
        lambda _: b'{"schema_version": 1, "state": "half"}',
    ],
)
def test_what_is_no_manifest_or_the_beginning_of_one_is_damaged(warehouse, change):
    write_manifest(warehouse, manifest_of("part-0.parquet"))
    damage(warehouse, change)

    with pytest.raises(ManifestDamaged, match="cannot be read"):
        read_manifest(warehouse, "raw/flights", UUID)


@pytest.mark.long("processes race for one manifest")
@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_of_many_processes_that_write_one_manifest_one_wins_and_it_is_whole(tmp_path, request, place):
    """Rule 10.2: written create-only, in a bucket with `If-None-Match`."""
    warehouse = Warehouse(str(tmp_path) if place == "disk" else f"s3://{request.getfixturevalue('bucket')}/wh")

    outcomes = write_in_processes(warehouse.root)

    assert outcomes.count("wrote") == 1, outcomes
    assert outcomes.count("conflict") == PROCESSES - 1
    assert read_manifest(warehouse, "raw/flights", UUID).attempt == outcomes.index("wrote")
    folder = warehouse.instance_dir("raw/flights", UUID)
    assert [file.path for file in warehouse.all_files(folder)] == [f"{folder}/manifest.json"]


FIRST_READERS = """
import sys
from pathlib import Path
from threading import Barrier, Thread

from databuild_dagster.warehouse import manifest

sys.setswitchinterval(1e-6)
contents, barrier = Path(sys.argv[1]).read_bytes(), Barrier(16)


def read():
    barrier.wait()
    assert manifest._decode(contents, "m").ref


threads = [Thread(target=read) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.long("a process that reads its first manifests ended by a segmentation fault")
def test_threads_that_read_the_first_manifests_at_once_read_them(warehouse):
    """Without decoders that are made at import, five of six such processes crashed in msgspec."""
    path = write_manifest(warehouse, manifest_of("part-0.parquet"))

    ended = [run_python(Path(), "-c", FIRST_READERS, path, seconds=60) for _ in range(8)]

    assert [(done.returncode, done.stderr[-300:]) for done in ended] == [(0, "")] * 8


def test_files_that_are_gone_or_cut_short_are_missing(warehouse):
    write_manifest(warehouse, manifest := manifest_of("part-0.parquet", "part-1.parquet", "part-2.parquet"))
    folder = Path(warehouse.instance_dir("raw/flights", UUID))
    (folder / "part-0.parquet").write_bytes(b"abc")
    (folder / "part-1.parquet").write_bytes(b"ab")

    missing = missing_files(warehouse, manifest)

    assert missing == ("part-1.parquet", "part-2.parquet")
