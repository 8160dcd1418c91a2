"""A failed attempt's parts are kept, and the next attempt takes them over (rule 10.4)."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from databuild_dagster.warehouse.errors import ManifestConflict, StorageTrouble
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    Column,
    FileEntry,
    Manifest,
    ManifestState,
    TableSchema,
    write_manifest,
)
from databuild_dagster.warehouse.parts import (
    PartManifest,
    children_of,
    is_the_same,
    kept_parts,
    lot_schema,
    lot_state,
    share_parts,
    why_columns_differ,
    write_part,
)
from databuild_dagster.warehouse.removing import remove_attempts
from tests.support.object_store import S3Server

COMPLETE, EMPTY, PARTIAL = ManifestState.COMPLETE, ManifestState.EMPTY, ManifestState.PARTIAL
FIRST, SECOND = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
COLUMNS = TableSchema((Column("n", "long", True),))
AT = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path))


def part(number: int, **changes: Any) -> PartManifest:
    entry = FileEntry(f"part-{number}.parquet", 3, 1, "sha256:0")
    facts: dict[str, Any] = {
        "dataset": "sums",
        "ref": "sums@1",
        "instance_uuid": FIRST,
        "job_run": "run",
        "attempt": 1,
        "state": COMPLETE,
        "files": (entry,),
        "created_at": AT,
        "schema": COLUMNS,
        "inputs": {"numbers@1": "a"},
        "number": number,
        "n_parts": 3,
        "part": f"{number + 1} of 3",
        "split": f"numbers by file {number}",
        "code_version": "1",
    }
    return PartManifest(**{**facts, **changes})


def failed_attempt(warehouse: Warehouse, parts: list[PartManifest], state: ManifestState = PARTIAL) -> None:
    for item in parts:
        for file in item.files:
            write_file(warehouse, FIRST, file.uri)
        write_part(warehouse, item)
    lot = {name: getattr(parts[0], name) for name in Manifest.__struct_fields__}
    files = tuple(file for item in parts for file in item.files)
    write_manifest(warehouse, Manifest(**{**lot, "state": state, "files": files, "children": children_of(parts)}))


def write_file(warehouse: Warehouse, uuid: str, name: str) -> None:
    folder = warehouse.instance_dir("sums", uuid)
    if "://" in folder:
        warehouse.storage.create_only(f"{folder}/{name}", b"abc")
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    Path(folder, name).write_bytes(b"abc")


def take_over(warehouse: Warehouse, kept: PartManifest, *, number: int) -> PartManifest | None:
    taken = share_parts(warehouse, {number: kept}, uuid=SECOND, job_run="next")
    for item in taken:
        write_part(warehouse, item)
    return taken[0] if taken else None


@pytest.mark.parametrize(
    ("states", "lot"),
    [
        ([COMPLETE, COMPLETE], COMPLETE),
        ([COMPLETE, EMPTY], COMPLETE),
        ([EMPTY, EMPTY], EMPTY),
        ([COMPLETE, None], PARTIAL),
        ([EMPTY, None], PARTIAL),
        ([None], PARTIAL),
    ],
)
def test_a_lot_is_complete_iff_its_parts_are_complete_or_empty_and_one_is_complete(
    states: list[ManifestState | None], lot: ManifestState
) -> None:
    assert lot_state(states) is lot


@pytest.mark.parametrize(("numbers", "state"), [((0,), COMPLETE), ((0,), ManifestState.REMOVED), ((0, 1, 2), PARTIAL)])
def test_what_is_not_partial_or_failed_as_a_whole_keeps_nothing_for_others(
    warehouse: Warehouse, numbers: tuple[int, ...], state: ManifestState
) -> None:
    failed_attempt(warehouse, [part(number) for number in numbers], state)

    assert kept_parts(warehouse, "sums", FIRST) == []


#: What its lot does not list.
STRAY = (FileEntry("../../other.parquet", 3, 1, "sha256:0"),)


@pytest.mark.parametrize(
    "contents",
    [
        b"",
        b'{"schema_version": 1',
        msgspec.json.encode(part(0, instance_uuid=SECOND)),
        msgspec.json.encode(part(0, files=STRAY)),
    ],
    ids=len,
)
def test_a_manifest_of_a_part_that_is_damaged_or_lists_a_stray_file_is_not_believed(
    warehouse: Warehouse, contents: bytes
) -> None:
    failed_attempt(warehouse, [part(0), part(1)])
    Path(warehouse.instance_dir("sums", FIRST), "manifest.part-0000.json").write_bytes(contents)

    assert kept_parts(warehouse, "sums", FIRST) == []


def test_a_second_writer_of_a_part_is_refused(warehouse: Warehouse) -> None:
    write_part(warehouse, part(0))

    with pytest.raises(ManifestConflict):
        write_part(warehouse, part(0, job_run="another"))


@pytest.mark.parametrize(
    "changed",
    [
        {"split": "numbers by file 1"},
        {"code_version": "2"},
        {"code_version": None},
        {"inputs": {"numbers@1": "b"}},
        {"inputs": {"numbers@1": "a", "more@1": "c"}},
    ],
    ids=str,
)
def test_a_part_is_used_again_only_for_the_same_split_code_and_inputs(changed: dict[str, Any]) -> None:
    wanted: dict[str, Any] = {"split": "numbers by file 0", "code_version": "1", "inputs": {"numbers@1": "a"}}

    assert is_the_same(part(0), **wanted)
    assert not is_the_same(part(0), **{**wanted, **changed})


@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_a_kept_part_is_taken_over_and_stays_where_it_was(
    tmp_path: Path, request: pytest.FixtureRequest, place: str
) -> None:
    root = str(tmp_path) if place == "disk" else f"s3://{request.getfixturevalue('bucket')}/warehouse"
    warehouse = Warehouse(root)
    failed_attempt(warehouse, [part(2)])

    taken = take_over(warehouse, part(2), number=1)

    assert taken is not None
    assert (taken.instance_uuid, taken.job_run, taken.number, taken.comment) == (
        SECOND,
        "next",
        1,
        f"kept from {FIRST}",
    )
    for uuid in (FIRST, SECOND):
        assert warehouse.storage.sizes(warehouse.instance_dir("sums", uuid), ["part-2.parquet"]) == {
            "part-2.parquet": 3
        }
    assert kept_parts(warehouse, "sums", FIRST) == [part(2)]


def test_taking_over_goes_on_where_it_was_interrupted(warehouse: Warehouse) -> None:
    files = (FileEntry("part-a.parquet", 3, 1, "sha256:0"), FileEntry("part-b.parquet", 3, 1, "sha256:0"))
    failed_attempt(warehouse, [part(0, files=files)])
    source, target = (warehouse.instance_dir("sums", uuid) for uuid in (FIRST, SECOND))
    warehouse.storage.share(source, target, ["part-a.parquet"])

    taken = take_over(warehouse, part(0, files=files), number=0)

    assert taken is not None
    assert sorted(path.name for path in Path(target).iterdir()) == [
        "manifest.part-0000.json",
        "part-a.parquet",
        "part-b.parquet",
    ]


def test_a_kept_part_that_is_cut_short_is_built_again(warehouse: Warehouse) -> None:
    failed_attempt(warehouse, [part(0)])
    Path(warehouse.instance_dir("sums", FIRST), "part-0.parquet").write_bytes(b"a")

    assert take_over(warehouse, part(0), number=0) is None


def test_a_copy_that_the_store_refuses_is_an_error_that_may_pass(bucket: str, s3: S3Server) -> None:
    warehouse = Warehouse(f"s3://{bucket}/warehouse")
    failed_attempt(warehouse, [part(0)])
    s3.refusals.append((404, "NoSuchKey", "PUT /"))

    with pytest.raises(StorageTrouble):
        take_over(warehouse, part(0), number=0)


def test_of_failed_attempts_in_parts_nothing_remains_and_of_others_everything(warehouse: Warehouse) -> None:
    failed_attempt(warehouse, [part(0)])
    facts = {name: getattr(part(0), name) for name in Manifest.__struct_fields__}
    write_manifest(warehouse, Manifest(**{**facts, "instance_uuid": SECOND, "state": PARTIAL}))

    remove_attempts(warehouse, "sums", [FIRST, SECOND])

    assert not Path(warehouse.instance_dir("sums", FIRST)).exists()
    assert Path(warehouse.instance_dir("sums", SECOND)).exists()


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ((Column("n", "string", True),), "its column 'n' is string, and that of part 1 of 3 is long"),
        ((), "it has no column 'n', which part 1 of 3 has"),
        ((Column("n", "long", False), Column("m", "long", True)), "it has a column 'm', which part 1 of 3 has not"),
        ((Column("n", "long", False),), None),
    ],
)
def test_the_parts_of_a_lot_have_the_same_columns(columns: tuple[Column, ...], why: str | None) -> None:
    assert why_columns_differ(part(1, schema=TableSchema(columns)), part(0)) == why


def test_a_part_without_rows_has_no_say_about_columns() -> None:
    other = part(1, schema=TableSchema((Column("x", "string", True),)), files=(), state=EMPTY)

    assert why_columns_differ(other, part(0)) is None
    assert lot_schema([other, part(0)]) == COLUMNS
    assert lot_schema([other]) == other.schema


def test_the_removal_of_a_failed_attempt_goes_on_where_it_was_interrupted(warehouse: Warehouse) -> None:
    failed_attempt(warehouse, [part(0)])
    Path(warehouse.manifest_path("sums", FIRST)).unlink()

    remove_attempts(warehouse, "sums", [FIRST])

    assert not Path(warehouse.instance_dir("sums", FIRST)).exists()
