"""Rows that match a condition leave every kept instance, a killed erasure continues, and no other row is lost (rule 10.11)."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from databuild_dagster import read
from databuild_dagster.data.ownership import Ownership
from databuild_dagster.data.read_plan import DataErased
from databuild_dagster.engine.engine import Engine, Outcome
from databuild_dagster.engine.holders import new_id
from databuild_dagster.features.erase.erasing import Eraser, Receipt
from databuild_dagster.features.erase.erasing_leftovers import clear_killed
from databuild_dagster.model import commands as c
from databuild_dagster.model.events import Arrival
from databuild_dagster.model.states import InstanceState
from databuild_dagster.warehouse.files import read_table
from databuild_dagster.warehouse.filters import BadFilter
from databuild_dagster.warehouse.manifest import Manifest, UriType, file_paths, read_manifest
from tests.features.clean.test_cleaning import killed_at_step
from tests.support.object_store import S3Server
from tests.support.published import DAYS, ICEBERG, PublishedWorld

ADA = {"name": ["ada", "bob", None], "n": [1, 2, 3]}
BOB = {"name": ["bob", "cy"], "n": [4, 5]}
WHERE = "name = 'ada'"
#: More steps than any erasure of these has.
MOST_STEPS = 400


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PublishedWorld]:
    """A dataset whose table nothing publishes."""
    made = PublishedWorld(tmp_path / "home", ICEBERG)
    yield made
    assert made.check() == []
    made.close()


def build_superseded(world: PublishedWorld) -> str:
    """The uuid of an instance with such a row that another one without it replaced."""
    uuid = world.build(DAYS[0], ADA)
    world.taint(world.ref(DAYS[0]))
    world.build(DAYS[0], BOB)
    return uuid


def eraser(world: PublishedWorld) -> Eraser:
    return Eraser(world.engine, world.warehouse.root)


def erase(world: PublishedWorld, where: str = WHERE) -> Receipt:
    return eraser(world).erase("sales", where, "ticket 7")


def manifest(world: PublishedWorld, key: str) -> Manifest:
    return read_manifest(world.warehouse, "sales", world.uuid(world.ref(key)))


def rows(world: PublishedWorld, key: str) -> list[dict[str, Any]]:
    return read_table(world.warehouse, [manifest(world, key)]).to_pylist()


def data_files(world: PublishedWorld) -> list[Path]:
    return sorted(Path(world.warehouse.root).rglob("*.parquet"))


def names_in_files(world: PublishedWorld) -> set[str | None]:
    return {name for path in data_files(world) for name in pq.read_table(path, partitioning=None)["name"].to_pylist()}


def kept_files(world: PublishedWorld) -> list[str]:
    """The files that an instance lists whose data is there."""
    instances = [
        one
        for day in DAYS
        for one in world.queries.instances.history(world.ref(day))
        if one.manifest_state == "complete"
    ]
    manifests = [read_manifest(world.warehouse, "sales", instance.uuid) for instance in instances]
    return sorted(path for one in manifests for path in file_paths(world.warehouse, one))


# Instances


def test_a_live_instance_is_written_again_without_the_rows(world: PublishedWorld) -> None:
    first = world.build(DAYS[0], ADA, BOB)
    untouched = world.build(DAYS[1], BOB)

    receipt = erase(world)

    assert receipt.is_complete
    assert [(one.ref, one.uuid, one.rows_before, one.rows_after) for one in receipt.rewritten] == [
        (world.ref(DAYS[0]), first, 5, 4)
    ]
    assert [match.uuid for match in receipt.removed] == [first]
    assert [row["n"] for row in rows(world, DAYS[0])] == [2, 3, 4, 5]
    assert world.uuid(world.ref(DAYS[1])) == untouched
    assert "ada" not in names_in_files(world)
    proof = receipt.proof
    assert proof is not None
    assert (proof.instances, proof.files, proof.rows, proof.matched) == (2, 3, 6, 0)


def test_columns_compression_and_row_groups_stay_and_a_file_without_a_match_is_linked(world: PublishedWorld) -> None:
    world.build(DAYS[0], BOB, ADA)
    before = manifest(world, DAYS[0])
    same, changed = (Path(path) for path in file_paths(world.warehouse, before))
    table = pq.read_table(changed, partitioning=None)
    pq.write_table(table, changed, compression="zstd", row_group_size=1)
    kept = os.stat(same).st_ino

    erase(world)

    after = manifest(world, DAYS[0])
    linked, written = (Path(path) for path in file_paths(world.warehouse, after))
    assert os.stat(linked).st_ino == kept
    assert (after.files[0], after.schema, after.inputs) == (before.files[0], before.schema, before.inputs)
    footer = pq.read_metadata(written)
    assert footer.schema.to_arrow_schema().equals(table.schema, check_metadata=True)
    assert {footer.row_group(0).column(place).compression for place in range(2)} == {"ZSTD"}
    assert [footer.row_group(group).num_rows for group in range(footer.num_row_groups)] == [1, 1]


def test_an_instance_of_which_no_row_stays_is_live_and_empty(world: PublishedWorld) -> None:
    world.build(DAYS[0], {"name": ["ada", "ada"], "n": [1, 2]})

    erase(world)

    assert world.state(world.ref(DAYS[0])) is InstanceState.LIVE
    assert (manifest(world, DAYS[0]).state.value, manifest(world, DAYS[0]).files) == ("empty", ())


def test_the_rows_then_cannot_be_read_and_the_error_gives_the_reason(world: PublishedWorld) -> None:
    world.build(DAYS[0], ADA)
    then = world.seq
    erase(world)

    with pytest.raises(DataErased, match=r"its data was erased since, at .*: ticket 7\.") as refused:
        read(world.ref(DAYS[0]), as_of=then, format="pandas", home=world.home)

    assert "ada" not in str(refused.value)
    assert list(read(world.ref(DAYS[0]), format="pandas", home=world.home)["n"]) == [2, 3]


def test_the_log_has_the_reason_and_a_hash_and_no_text_of_the_condition(world: PublishedWorld) -> None:
    world.build(DAYS[0], ADA)
    before = world.seq

    receipt = erase(world)

    events = world.queries.events.after(before)
    assert [type(event.fact).__name__ for event in events] == ["LotArrived", "ManifestRemoved", "RemovalFinished"]
    assert events[1].fact.erasure == receipt.erasure
    assert "ada" not in "".join(str(raw) for raw in world.queries.events.raw(before))


def test_what_was_built_from_such_rows_is_listed_and_does_not_become_stale(world: PublishedWorld) -> None:
    world.build(DAYS[0], ADA)
    consumer = world.build(DAYS[1], BOB, inputs=[DAYS[0]])

    planned = eraser(world).survey("sales", WHERE)
    receipt = erase(world)

    assert planned.downstream == receipt.downstream == [world.ref(DAYS[1])]
    assert world.queries.instances.stale([consumer]) == set()


# What stays, and is named


def test_a_file_of_another_program_is_named_and_readers_get_the_rows_that_stay(
    world: PublishedWorld, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs" / "1.parquet"
    first = world.adopt(DAYS[0], theirs, ADA)

    receipt = erase(world)

    assert [(one.path, one.matched) for one in receipt.outside] == [(str(theirs), 1)]
    assert not receipt.is_complete
    assert theirs.exists()
    assert manifest(world, DAYS[0]).uri_type is UriType.PATH
    assert [row["n"] for row in rows(world, DAYS[0])] == [2, 3]
    assert world.queries.instances.removed([first]) == {first}
    again = Arrival(job_run_id=world.ids(), ref=world.ref(DAYS[0]), origin=str(theirs))
    assert world.handle(c.ArriveLots(arrivals=(again,))).events == ()
    assert erase(world).outside == receipt.outside
    theirs.unlink()
    assert erase(world).is_complete


def test_data_that_a_job_run_may_be_reading_stays_until_the_same_request_finds_it_ended(world: PublishedWorld) -> None:
    first = world.build(DAYS[0], ADA)
    world.start(world.ref(DAYS[1]))

    receipt = erase(world)

    assert not receipt.is_complete
    assert len(receipt.rewritten) == 1
    assert {one.what for one in receipt.not_done} == {world.ref(DAYS[0]), world.ref(DAYS[1])}
    assert any("may be reading it" in one.why for one in receipt.not_done)
    world.fail(world.ref(DAYS[1]))
    again = erase(world)
    assert again.is_complete
    assert (again.rewritten, [match.uuid for match in again.removed]) == ([], [first])


def test_the_rest_of_a_failed_attempt_is_removed(world: PublishedWorld) -> None:
    world.build(DAYS[0], BOB)
    world.fail_after_writing(DAYS[1], ADA)

    receipt = erase(world)

    assert receipt.is_complete
    assert [one.what for one in receipt.leftovers] == [world.ref(DAYS[1])]
    assert "ada" not in names_in_files(world)


def test_a_folder_of_no_known_instance_is_named_if_rows_in_it_match(world: PublishedWorld) -> None:
    uuid = world.build(DAYS[0], BOB)
    folder = Path(world.warehouse.instance_dir("sales", uuid))
    for number, contents in enumerate((ADA, BOB)):
        unknown = folder.parent / f"instance=00000000-0000-0000-0000-00000000000{number}"
        unknown.mkdir()
        pq.write_table(pa.table(contents), unknown / "part-0.parquet")
    world.clock.turn(10 * 365 * 86400)

    receipt = erase(world)

    (named,) = receipt.not_done
    assert named.what.endswith("000000000000/part-0.parquet")
    assert "gc --leftovers --orphans" in named.why


class Interrupting:
    """The engine, before whose next pointer move another process does something."""

    def __init__(self, world: PublishedWorld, act: Callable[[], object]) -> None:
        self._engine, self._acts = world.engine, [act]

    def handle(self, command: c.Command, **options: Any) -> Outcome:
        if isinstance(command, c.ReplaceFiles) and self._acts:
            self._acts.pop()()
        return self._engine.handle(command, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def interrupted(world: PublishedWorld, act: Callable[[], object]) -> Receipt:
    return Eraser(cast("Engine", Interrupting(world, act)), world.warehouse.root).erase("sales", WHERE, "ticket 7")


def test_a_partition_that_is_rebuilt_meanwhile_is_read_and_written_again(world: PublishedWorld) -> None:
    world.build(DAYS[0], BOB, ADA)

    def rebuild() -> None:
        world.taint(world.ref(DAYS[0]))
        world.build(DAYS[0], ADA)

    receipt = interrupted(world, rebuild)

    assert receipt.is_complete
    assert [row["n"] for row in rows(world, DAYS[0])] == [2, 3]
    assert len(data_files(world)) == 1


def test_a_rewrite_whose_files_another_erasure_removed_never_becomes_live(world: PublishedWorld) -> None:
    """Its process was only asleep, and the other one took it for killed."""
    world.build(DAYS[0], BOB, ADA)

    receipt = interrupted(world, lambda: clear_killed(world.engine, "sales", [world.warehouse]))

    assert receipt.is_complete is False
    assert "another process that erases" in receipt.not_done[0].why.lower()
    assert [row["n"] for row in rows(world, DAYS[0])] == [4, 5, 1, 2, 3]
    assert erase(world).is_complete


def test_the_files_of_a_rewrite_that_ctrl_c_ended_are_removed_by_the_next_one(world: PublishedWorld) -> None:
    world.build(DAYS[0], BOB, ADA)

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted(world, stop)

    assert erase(world).is_complete
    assert [str(path) for path in data_files(world)] == kept_files(world)


def test_data_that_cannot_be_removed_is_named_until_it_is_gone(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    """Its removal is recorded, so that no survey reads it again."""
    world = PublishedWorld(tmp_path, ICEBERG, warehouse=f"s3://{bucket}/warehouse")
    Ownership(world.store).claim(world.warehouse)
    build_superseded(world)

    for _ in range(2):
        s3.refusals += [(403, "AccessDenied", "DELETE")]
        receipt = erase(world)

        assert not receipt.is_complete
        assert [one.what for one in receipt.not_done] == [world.ref(DAYS[0])]
        assert "AccessDenied" in receipt.not_done[0].why
        assert eraser(world).survey("sales", WHERE).not_done_yet
    assert erase(world).is_complete
    assert eraser(world).survey("sales", WHERE).not_done_yet == []


def test_data_in_a_warehouse_of_another_build_state_is_named(tmp_path: Path) -> None:
    world = PublishedWorld(tmp_path / "home", ICEBERG, warehouse=str(tmp_path / "elsewhere"))
    build_superseded(world)

    receipt = erase(world)

    assert not receipt.is_complete
    assert [f"does not own {world.warehouse.root}" in one.why for one in receipt.not_done] == [True]


def test_in_a_bucket_as_on_a_disk(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    world = PublishedWorld(tmp_path, ICEBERG, warehouse=f"s3://{bucket}/warehouse")
    world.build(DAYS[0], BOB, ADA)
    read_table(world.warehouse, [manifest(world, DAYS[0])])

    receipt = erase(world)

    assert receipt.is_complete
    assert [row["n"] for row in rows(world, DAYS[0])] == [4, 5, 2, 3]
    assert sum(key.endswith(".parquet") for key in s3.keys(bucket)) == 2


# Refused


@pytest.mark.parametrize(
    "where",
    [
        "",
        "name",
        "nome = 'ada'",
        "name like 'a%'",
        "lower(name) = 'ada'",
        "name = 'a' limit 1",
        "1 = 1",
        "n = 'x'",
        r"name = 'a\b'",
    ],
)
def test_a_condition_that_cannot_be_decided_is_refused_before_anything_changes(
    world: PublishedWorld, where: str
) -> None:
    world.build(DAYS[0], ADA)
    before = world.seq, data_files(world)

    with pytest.raises(BadFilter):
        erase(world, where)

    assert (world.seq, data_files(world)) == before


def test_the_partition_key_is_a_column(world: PublishedWorld) -> None:
    world.build(DAYS[0], BOB)
    world.build(DAYS[1], BOB)

    erase(world, f"partition_key = '{DAYS[0]}' and name = 'bob'")

    assert ([row["n"] for row in rows(world, DAYS[0])], [row["n"] for row in rows(world, DAYS[1])]) == ([5], [4, 5])


def test_a_column_that_an_earlier_instance_lacks_is_null_there(world: PublishedWorld) -> None:
    world.build(DAYS[0], BOB)
    world.build(DAYS[1], {**BOB, "mail": ["b@x", None]})

    receipt = erase(world, "mail is null")

    assert sorted((one.ref, one.rows_after) for one in receipt.rewritten) == [
        (world.ref(DAYS[0]), 0),
        (world.ref(DAYS[1]), 1),
    ]


# Killed anywhere


@pytest.mark.long("each step of an erasure kills its process once")
def test_an_erasure_killed_at_any_step_is_finished_by_the_same_command(tmp_path: Path) -> None:
    """Each time from the same beginning, so that no step is passed over."""
    there, before = tmp_path / "there", tmp_path / "before"
    world = PublishedWorld(there, ICEBERG)
    world.build(DAYS[0], BOB)
    world.taint(world.ref(DAYS[0]))
    world.build(DAYS[0], ADA, BOB)
    world.build(DAYS[1], ADA)
    world.store.close()
    shutil.copytree(there, before)

    def act(world: PublishedWorld) -> None:
        world.engine.new_id = new_id
        erase(world)

    for step in range(1, MOST_STEPS):
        shutil.rmtree(there)
        shutil.copytree(before, there)
        world = PublishedWorld(there, ICEBERG, first_id=10_000)
        was_killed = killed_at_step(step, partial(act, world))
        assert world.check() == []
        assert [row["n"] for row in rows(world, DAYS[0])][-4:] == [2, 3, 4, 5], "no other row is lost, at no time"
        receipt = erase(world)
        assert receipt.is_complete, (step, receipt.not_done)
        assert world.check() == []
        assert [row["n"] for row in rows(world, DAYS[0])] == [2, 3, 4, 5]
        assert [row["n"] for row in rows(world, DAYS[1])] == [2, 3]
        assert "ada" not in names_in_files(world)
        assert [str(path) for path in data_files(world)] == kept_files(world), "nothing of a killed erasure is left"
        assert not list(Path(world.warehouse.root, ".staging").glob("erase-*"))
        world.store.close()
        if not was_killed:
            break
    else:
        raise AssertionError(f"not done after {MOST_STEPS} steps")
    assert step > 20


# Against another SQL engine

VALUES = st.one_of(st.none(), st.integers(-2, 2))
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "ä"]))
FLOATS = st.one_of(st.none(), st.sampled_from([-1.5, 0.0, 2.0, float("nan")]))
FILES = st.lists(st.lists(st.tuples(VALUES, TEXTS, FLOATS), min_size=1, max_size=6), min_size=1, max_size=3)
ATOMS = st.sampled_from(
    [
        "n = 1",
        "n <> 0",
        "n < 0",
        "n in (1, 2)",
        "n is null",
        "t = 'a'",
        "t >= 'b'",
        "t is not null",
        "x > 1",
        "x <= 0.0",
        "n between -1 and 1",
    ]
)
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda of: f"({of[0]} {of[1]} {of[2]})"),
        inner.map(lambda one: f"not ({one})"),
    ),
    max_leaves=4,
)


def kept_by_sqlite(files: list[list[tuple[Any, ...]]], where: str) -> list[tuple[Any, ...]]:
    """The rows for which the condition is not true; NaN is above every number, as in Spark."""
    listed = [row for file in files for row in file]
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE rows (n INTEGER, t TEXT, x REAL)")
        database.executemany(
            "INSERT INTO rows VALUES (?, ?, ?)",
            [(n, t, 1e300 if x is not None and x != x else x) for n, t, x in listed],
        )
        kept = database.execute(f"SELECT rowid FROM rows WHERE NOT coalesce(({where}), 0) ORDER BY rowid").fetchall()
    return [listed[number - 1] for (number,) in kept]


@settings(max_examples=30, deadline=None)
@given(files=FILES, where=CONDITIONS)
def test_the_rows_that_stay_are_those_of_another_sql_engine_in_their_order(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[tuple[Any, ...]]], where: str
) -> None:
    world = PublishedWorld(tmp_path_factory.mktemp("any") / "home", ICEBERG)
    world.build(DAYS[0], *(_columns(file) for file in files))

    receipt = erase(world, where)

    expected = kept_by_sqlite(files, where)
    found = [(row["n"], row["t"], row["x"]) for row in rows(world, DAYS[0])]
    assert repr(found) == repr(expected)
    n_rows = sum(map(len, files))
    assert sum(one.rows_before - one.rows_after for one in receipt.rewritten) == n_rows - len(expected)
    assert receipt.is_complete
    world.close()


def _columns(file: list[tuple[Any, ...]]) -> pa.Table:
    values, texts, floats = zip(*file, strict=True)
    return pa.table(
        {"n": pa.array(values, pa.int64()), "t": pa.array(texts, pa.string()), "x": pa.array(floats, pa.float64())}
    )
