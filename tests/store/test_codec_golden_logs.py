"""A log replays to the same state for ever: each version's log, and the tables that it computed (rules 3.2, 3.4, 3.7).

tests/golden/README.md says where the recordings come from, and what to do when one of these tests fails.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from databuild_dagster.cli.main import cli
from databuild_dagster.model.events import EVENT_TYPES
from databuild_dagster.store import schema
from databuild_dagster.store.check import check
from databuild_dagster.store.codec import decode, encode
from databuild_dagster.store.errors import OlderProjection
from databuild_dagster.store.format import LOG_VERSION, PROJECTION_VERSION
from databuild_dagster.store.rebuild import migrate, rebuild
from databuild_dagster.store.store import Store, open_store
from tests.support import golden, story
from tests.support.golden import Golden, Row
from tests.support.walk import Walk
from tests.support.world import World
from tools.golden import main as record_golden
from tools.golden import present_version

#: A recording is a SQLite file; only its log is folded on PostgreSQL too.
DATABASES = ("sqlite",)

CHANGELOG = Path(__file__).parent.parent.parent / "CHANGELOG.md"

#: Before the first release: all event types of that commit.
FIRST = "0.1.0.dev1+gd63fdb8"


@pytest.fixture(params=golden.versions(), scope="module")
def recorded(request) -> Golden:
    return golden.read(request.param)


@pytest.fixture
def left_behind(recorded, tmp_path) -> Path:
    """The database as that version left it."""
    path = tmp_path / "databuild.db"
    golden.restore(recorded, path)
    return path


@pytest.fixture
def with_older_tables(left_behind) -> Path:
    """The same log below tables of an earlier version, in another shape."""
    with closing(sqlite3.connect(left_behind)) as connection, connection:
        connection.execute("UPDATE databuild_meta SET value = value - 1")
        connection.execute("DROP TABLE databuild_arcs")
        connection.execute("ALTER TABLE databuild_launches RENAME COLUMN owner TO owned_by")
    return left_behind


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
    """Row for row, in the tables and columns that the version had; later ones are not compared."""
    for table, rows in recorded.tables.items():
        columns = rows[0].keys() if rows else set()
        found = [{name: value for name, value in row.items() if name in columns} for row in today[table]]
        assert sorted(map(text, found)) == sorted(map(text, rows)), table


def text(row: Row) -> str:
    return json.dumps(row, sort_keys=True)


# What is recorded


def test_every_released_version_has_its_golden_log():
    released = re.findall(r"^## \[?(\d[\w.+]*)", CHANGELOG.read_text(), re.MULTILINE)

    assert {FIRST, *released} <= set(golden.versions())


def test_the_first_golden_log_has_all_24_event_types_of_its_commit():
    """Rule 3.7"""
    assert len({event["type"] for event in golden.read(FIRST).log}) == 24


def test_a_golden_log_has_every_event_that_its_version_knew(recorded):
    assert sorted({event["type"] for event in recorded.log}) == recorded.about["event_types"]
    assert len(recorded.log) == recorded.about["events"]


def test_no_type_of_event_is_forgotten_later(recorded):
    """Rule 3.1: a stored name lives for ever."""
    assert set(recorded.about["event_types"]) <= {str(cls.__struct_config__.tag) for cls in EVENT_TYPES}


# What today's code makes of it


def test_every_event_of_a_golden_log_is_the_same_after_it_is_written_again(recorded):
    """Rule 3.1: also after it was raised to today's shape."""
    for event in recorded.log:
        fact = decode(event["type"], event["version"], event["payload"])

        assert decode(*encode(fact)) == fact


@pytest.mark.databases("sqlite", "postgres")
def test_a_golden_log_folds_to_exactly_the_tables_of_its_version(recorded, shared_url):
    """Rules 3.2, 3.4: in a database of today that has nothing but the log."""
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


def test_the_database_that_a_version_left_behind_is_brought_to_today(recorded, left_behind):
    """Rule 3.4: its own tables, in its own shape, with its own triggers."""
    assert_migrated(recorded, left_behind)


def assert_migrated(recorded: Golden, path: Path) -> None:
    store = Store(f"sqlite:///{path}", check_projections=False)
    migrate(store)
    store.close()
    store = open_store(f"sqlite:///{path}")
    found, today = check(store, deep=True), state_of(store)
    store.close()
    assert found == []
    assert_same(recorded, today)


@pytest.mark.parametrize("seed", range(3))
def test_a_golden_log_is_continued_by_a_random_walk(recorded, left_behind, seed):
    """Rules 3.4, 3.7"""
    store = Store(f"sqlite:///{left_behind}", check_projections=False)
    migrate(store)
    store.close()
    world = World(story.DATASETS, url=f"sqlite:///{left_behind}", first_id=1_000_000)
    world.clock.turn(24 * 3600.0)
    before = world.seq

    Walk(world, seed).take(500)

    types = Counter(world.log(before))
    found = world.check()
    world.store.close()
    assert found == []
    assert len(types) >= 20, types


def test_the_command_line_brings_an_older_home_to_today(recorded, with_older_tables, monkeypatch):
    """Rule 3.4: as docs/how-to/versions.md says."""
    monkeypatch.setenv("DAGSTER_HOME", str(with_older_tables.parent))
    monkeypatch.delenv("DATABUILD_DB_URL", raising=False)
    run = CliRunner()

    refused = run.invoke(cli, ["log", "check"])
    migrated = run.invoke(cli, ["log", "migrate", "--json"])
    again = run.invoke(cli, ["log", "migrate", "--json"])
    checked = run.invoke(cli, ["log", "check", "--json"])
    printed = run.invoke(cli, ["log", "events"])

    assert isinstance(refused.exception, OlderProjection)
    assert "databuild log migrate" in str(refused.exception)
    versions = [LOG_VERSION, PROJECTION_VERSION]
    answer = json.loads(migrated.output)
    assert (answer["events"], answer["after"]) == (len(recorded.log), versions)
    assert json.loads(again.output) == {"before": versions, "after": versions, "events": None}
    sound = json.loads(checked.output)
    assert (sound["ok"], sound["violations"]) == (True, [])
    assert [json.loads(line)["seq"] for line in printed.output.splitlines()] == [e["seq"] for e in recorded.log]


# Recording


def test_the_story_records_every_event_type_of_today_and_is_the_same_every_time(tmp_path):
    """A new event type is added to the story."""
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
    log = world.queries.events.raw(0, 10_000)
    world.store.close()

    golden.record(path, "1.2.3", tmp_path)
    golden.restore(golden.read("1.2.3", tmp_path), copy)

    assert state(copy) == state(path)
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT * FROM databuild_events ORDER BY seq").fetchall() == log
