"""A log replays to the same state for ever: what each version recorded, and what it saw in it (SPEC 3.2, 3.4).

tests/golden/README.md tells where the recordings come from, and what to do when one of these fails.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from databuild_dagster.cli.main import cli
from databuild_dagster.model.events import EVENT_TYPES
from databuild_dagster.store import Store, check, migrate, open_store, rebuild, schema
from databuild_dagster.store.codec import decode, encode
from databuild_dagster.store.errors import OlderProjection
from tests.support import golden, story
from tests.support.golden import Golden, Row
from tests.support.world import World
from tools.golden import main as record_golden
from tools.golden import present_version

#: What a version left behind is a file; its log alone is folded on each database.
DATABASES = ("sqlite",)

CHANGELOG = Path(__file__).parent.parent.parent / "CHANGELOG.md"

#: Columns that are in another table by now.
MOVED = {("databuild_want_refs", "open"): "databuild_holds"}
#: Rows that a later version has beside those recorded, on purpose.
ADDED: dict[str, Callable[[Row], bool]] = {
    # What was live by the time that it was said to be missing is remembered; nobody waits for it.
    "databuild_missing": lambda row: row["active"] == 0,
}


@pytest.fixture(params=golden.versions(), scope="module")
def recorded(request) -> Golden:
    return golden.read(request.param)


@pytest.fixture
def left_behind(recorded, tmp_path) -> Path:
    """The database as that version left it."""
    path = tmp_path / "databuild.db"
    golden.restore(recorded, path)
    return path


def state(path: Path) -> dict[str, list[Row]]:
    """Every row of every table of today."""
    store = open_store(f"sqlite:///{path}")
    try:
        return state_of(store)
    finally:
        store.close()


def state_of(store: Store) -> dict[str, list[Row]]:
    with store.reading() as connection:
        return {
            table.name: [
                dict(zip(table.columns.keys(), row, strict=True))
                for row in connection.execute(f"SELECT {', '.join(table.columns.keys())} FROM {table.name}")
            ]
            for table in schema.PROJECTIONS
        }


def assert_same(recorded: Golden, today: dict[str, list[Row]]) -> None:
    """Row for row and column for column; what has come since is not asked about."""
    for table, rows in recorded.tables.items():
        moved = [column for column in (rows[0] if rows else ()) if (table, column) in MOVED]
        for column in moved:
            now = MOVED[table, column]
            assert_rows(now, [only(row, {*key_of(table), column}) for row in rows], today[now])
        assert_rows(table, [only(row, row.keys() - set(moved)) for row in rows], today[table])


def assert_rows(table: str, expected: list[Row], rows: list[Row]) -> None:
    columns = expected[0].keys() if expected else set()
    is_added = ADDED.get(table, lambda row: False)
    wanted = {text(row) for row in expected}
    found = {text(only(row, columns)) for row in rows}
    added = {text(only(row, columns)) for row in rows if is_added(row)}
    assert (table, sorted(wanted - found), sorted(found - wanted - added)) == (table, [], [])


def only(row: Row, columns: Any) -> Row:
    return {name: value for name, value in row.items() if name in columns}


def key_of(table: str) -> list[str]:
    return [column.name for column in schema.metadata.tables[table].primary_key]


def text(row: Row) -> str:
    """A registration is compared by the fields that were known: later ones have their defaults."""
    if "spec" in row:
        known = golden_fields(row["spec"])
        row = {**row, "spec": known}
    return json.dumps(row, sort_keys=True)


FIRST_FIELDS = (
    "asset", "job", "location", "kind", "partitions", "inputs", "code_version", "max_partitions_per_launch", "concurrency",
)  # fmt: skip


def golden_fields(spec: str) -> Row:
    return {name: value for name, value in json.loads(spec).items() if name in FIRST_FIELDS}


# What is recorded


def test_every_released_version_has_its_golden_log():
    released = re.findall(r"^## \[?(\d[\w.+]*)", CHANGELOG.read_text(), re.MULTILINE)

    assert {*released, present_version()} <= set(golden.versions())


def test_a_golden_log_has_every_event_that_its_version_knew(recorded):
    assert sorted({event["type"] for event in recorded.log}) == recorded.about["event_types"]
    assert len(recorded.log) == recorded.about["events"]


def test_no_type_of_event_is_forgotten_later(recorded):
    """SPEC 3.1: a stored name lives for ever."""
    assert set(recorded.about["event_types"]) <= {str(cls.__struct_config__.tag) for cls in EVENT_TYPES}


# What becomes of it today


def test_every_event_of_a_golden_log_is_read_and_says_what_it_said(recorded):
    """SPEC 3.1: also after it was raised to today's shape and written anew."""
    for event in recorded.log:
        fact = decode(event["type"], event["version"], event["payload"])

        assert decode(*encode(fact)) == fact


@pytest.mark.databases("sqlite", "postgres")
def test_a_golden_log_folds_to_exactly_the_state_that_its_version_saw(recorded, shared_url):
    """SPEC 3.2, 3.4: in a database of today's that has nothing but the log, whichever it was recorded in."""
    store = open_store(shared_url)
    names, marks = ", ".join(golden.ENVELOPE), ", ".join("?" for _ in golden.ENVELOPE)
    with store.writing() as work:
        events = [[event[name] for name in golden.ENVELOPE] for event in recorded.log]
        work.connection.executemany(f"INSERT INTO databuild_events ({names}) VALUES ({marks})", events)

    assert rebuild(store) == len(recorded.log)

    found, today = check(store, deep=True), state_of(store)
    store.close()
    assert found == []
    assert_same(recorded, today)


def is_older(recorded):
    """The newest recording may be of today's tables."""
    return recorded.about["projection_version"] < schema.PROJECTION_VERSION


def test_the_database_that_a_version_left_behind_is_brought_to_today(recorded, left_behind):
    """SPEC 3.4: its own tables, in its own shape, with its own triggers."""
    url = f"sqlite:///{left_behind}"
    if is_older(recorded):
        with pytest.raises(OlderProjection, match="databuild migrate"):
            open_store(url)

    store = Store(url, check_projections=False)
    migrate(store)
    store.close()

    store = open_store(url)
    found = check(store, deep=True)
    store.close()
    assert found == []
    assert_same(recorded, state(left_behind))


def test_what_was_wanted_of_an_older_version_is_built_by_today_s(recorded, left_behind):
    """SPEC 3.4: the log goes on where it was left."""
    store = Store(f"sqlite:///{left_behind}", check_projections=False)
    rebuild(store)
    store.close()
    world = World(story.DATASETS, url=f"sqlite:///{left_behind}", first_id=1_000_000)
    world.clock.turn(24 * 3600.0)
    before = world.seq

    world.taint("b")
    world.live("b", "k", "months/total")
    world.want("a", "g")

    assert world.seq > before
    assert world.check() == []
    world.store.close()


@pytest.mark.long
def test_the_command_line_brings_an_older_home_to_today(recorded, left_behind, monkeypatch):
    """SPEC 3.4: as docs/how-to/upgrading.md says."""
    monkeypatch.setenv("DAGSTER_HOME", str(left_behind.parent))
    monkeypatch.delenv("DATABUILD_DB_URL", raising=False)
    run = CliRunner()
    if is_older(recorded):
        refused = run.invoke(cli, ["check"])
        assert isinstance(refused.exception, OlderProjection)
        assert "databuild migrate" in str(refused.exception)

    migrated = run.invoke(cli, ["migrate", "--json"])
    again = run.invoke(cli, ["migrate", "--json"])
    checked = run.invoke(cli, ["check", "--json"])
    printed = run.invoke(cli, ["events"])

    versions = [schema.LOG_VERSION, schema.PROJECTION_VERSION]
    assert (json.loads(migrated.output)["events"], json.loads(migrated.output)["after"]) == (
        len(recorded.log) if is_older(recorded) else None,
        versions,
    )
    assert json.loads(again.output) == {"before": versions, "after": versions, "events": None}
    assert json.loads(checked.output) == {"ok": True, "violations": []}
    assert [json.loads(line)["seq"] for line in printed.output.splitlines()] == [e["seq"] for e in recorded.log]


# Recording


def test_the_story_is_ready_to_be_recorded_and_told_the_same_way_every_time(tmp_path):
    """With every event that today's code knows: whoever adds one adds it to the story."""
    for name in ("one", "two"):
        done = CliRunner().invoke(record_golden, ["--into", str(tmp_path / name)])
        assert done.exit_code == 0, done.output
    one, two = (golden.read(present_version(), tmp_path / name) for name in ("one", "two"))

    assert one == two
    assert set(one.about["event_types"]) == {str(cls.__struct_config__.tag) for cls in EVENT_TYPES}


def test_a_recorded_version_is_never_recorded_again(tmp_path):
    CliRunner().invoke(record_golden, ["--into", str(tmp_path)])
    before = golden.read(present_version(), tmp_path)

    again = CliRunner().invoke(record_golden, ["--into", str(tmp_path)])

    assert again.exit_code == 1
    assert "stays as it is" in again.output
    assert golden.read(present_version(), tmp_path) == before


def test_a_recording_is_the_database_that_it_was_made_from(tmp_path):
    """Byte for byte in the log, row for row in the tables."""
    path, copy = tmp_path / "build.db", tmp_path / "copy.db"
    world = World(story.DATASETS, url=f"sqlite:///{path}")
    story.tell(world)
    log = world.queries.raw_events(0, 10_000)
    world.store.close()

    golden.record(path, "1.2.3", tmp_path)
    golden.restore(golden.read("1.2.3", tmp_path), copy)

    assert state(copy) == state(path)
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT * FROM databuild_events ORDER BY seq").fetchall() == log
