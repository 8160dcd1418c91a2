"""`check` finds and names every change that was not made by the engine (rules 3.4, 12).

What to change is computed from the schema and from the log, so that a new table, column or field of an event is asked
about without being listed. What cannot be found is listed, and `docs/concepts.md` says so to those who rely on it.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from databuild_dagster.cli.main import cli
from databuild_dagster.model.coordination import Answer, DelegationOutcome
from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.states import InstanceState, JobRunState, WantState
from databuild_dagster.store import schema
from databuild_dagster.store.check import check
from databuild_dagster.store.invariants import Violation
from databuild_dagster.store.rebuild import rebuild
from databuild_dagster.store.store import Store, open_store
from tests.support import story
from tests.support.world import World

#: What is damaged is a file, which is copied for each test. On a server a test would have to repeat the whole story, so there
#: every table is damaged at once, and not every column.
DATABASES = ("sqlite",)

COLUMNS = [(table.name, column.name) for table in schema.PROJECTIONS for column in table.columns]
TABLES = [table.name for table in schema.PROJECTIONS]
#: Texts that a column with a CHECK may hold.
WORDS = [word.value for words in (InstanceState, JobRunState, WantState, Answer, DelegationOutcome) for word in words]

EVENTS = schema.events.name
GUARDS = ("no_update", "no_delete", "only_next")


@pytest.fixture(scope="module")
def story_file(tmp_path_factory) -> Path:
    """A database in which everything has happened, and which no process has open."""
    path = tmp_path_factory.mktemp("story_file") / "build.db"
    world = World(story.DATASETS, url=f"sqlite:///{path}")
    story.tell(world)
    assert world.check() == []
    world.store.close()
    return path


@pytest.fixture
def path(story_file, tmp_path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copy(story_file, tmp_path / "build.db"))


def opened(path: Path) -> closing[sqlite3.Connection]:
    """Open the database without the engine."""
    return closing(sqlite3.connect(path, isolation_level=None))


def damage(path: Path, statement: str, *parameters: object) -> None:
    with opened(path) as connection:
        if EVENTS in statement:
            for guard in GUARDS:
                connection.execute(f"DROP TRIGGER {EVENTS}_{guard}")
        assert connection.execute(statement, parameters).rowcount != 0


def found_in(path: Path, *, deep: bool = False) -> list[Violation]:
    """The findings of `check`, but for the triggers that the damage itself had to take away."""
    store = open_store(f"sqlite:///{path}")
    try:
        return [violation for violation in check(store, deep=deep) if not violation.entity.startswith(f"{EVENTS}_")]
    finally:
        store.close()


def repaired(path: Path) -> list[Violation]:
    store = open_store(f"sqlite:///{path}")
    try:
        rebuild(store)
        return check(store, deep=True)
    finally:
        store.close()


def entities(found: list[Violation]) -> set[str]:
    return {violation.entity for violation in found}


# The tables


def test_the_story_has_a_row_in_every_table_and_a_value_in_every_column(story_file):
    with opened(story_file) as connection:
        empty = [
            f"{table}.{column}"
            for table, column in COLUMNS
            if not connection.execute(f"SELECT count({column}) FROM {table}").fetchone()[0]
        ]

    assert empty == []


@pytest.mark.parametrize("place", range(max(len(table.columns) for table in schema.PROJECTIONS)))
def test_a_changed_value_is_found(path, place):
    """Rules 12, I5: in the column at this place of each table, which is named; of the column's own type."""
    changed = {
        table.name: list(table.columns)[place].name for table in schema.PROJECTIONS if place < len(table.columns)
    }
    for table, column in changed.items():
        change(path, table, column)

    assert changed.keys() - entities(found_in(path)) == set()


def lose_a_row(path: Path, table: str) -> None:
    key = key_of(table)
    damage(path, f"DELETE FROM {table} WHERE ({key}) = (SELECT {key} FROM {table} LIMIT 1)")


def add_a_row(path: Path, table: str) -> None:
    """Like one that is there, under another key."""
    columns = schema.metadata.tables[table].columns
    unique = [column for column in columns if column.unique]
    first = next(iter(schema.metadata.tables[table].primary_key.columns))
    values = ", ".join(
        column.name if column not in (first, *unique) else f"{column.name} || '-2'" if is_text(column) else "1 << 50"
        for column in columns
    )
    damage(path, f"INSERT INTO {table} SELECT {values} FROM {table} LIMIT 1")


@pytest.mark.parametrize("harm", [lose_a_row, add_a_row])
def test_a_lost_row_and_a_row_too_many_are_found_and_repaired(path, harm):
    """Rules 3.4, 12, I5: each table is named."""
    for table in TABLES:
        harm(path, table)

    assert set(TABLES) - entities(found_in(path)) == set()
    assert repaired(path) == []


def change(path: Path, table: str, name: str) -> None:
    """The first row that has a value gets the first other one that the database takes."""
    column = schema.metadata.tables[table].columns[name]
    key = key_of(table)
    with opened(path) as connection:
        row = connection.execute(f"SELECT {name}, {key} FROM {table} WHERE {name} IS NOT NULL LIMIT 1").fetchone()
        before, place = row[0], row[1:]
        for after in others(column, before):
            marks = ", ".join("?" * len(place))
            try:
                done = connection.execute(f"UPDATE {table} SET {name} = ? WHERE ({key}) = ({marks})", (after, *place))
            except sqlite3.IntegrityError:
                continue
            assert done.rowcount == 1
            return
    pytest.fail(f"{table}.{name} takes nothing but {before!r}")


def others(column: sa.Column, before: object) -> Iterator[object]:
    if is_text(column):
        yield f"{before}x"
        yield from (word for word in WORDS if word != before)
    elif before == float("inf"):
        yield 1.0
    else:
        yield from (before + 1, before + (1 << 50))


def key_of(table: str) -> str:
    return ", ".join(column.name for column in schema.metadata.tables[table].primary_key.columns)


def is_text(column: sa.Column) -> bool:
    return isinstance(column.type, sa.Text)


# The log


@pytest.mark.parametrize(
    ("statement", "entity", "detail"),
    [
        ("DELETE FROM {events} WHERE seq = 30", "seq 31", "the seq before it is missing"),
        ("DELETE FROM {events} WHERE seq = {last}", "log", "its end is lost"),
        ("DELETE FROM {events} WHERE seq > 100", "log", "ends at seq 100, and the tables know of seq"),
        ("DELETE FROM {events}", "log", "ends at seq 0"),
        ("UPDATE {events} SET at = at - 100000 WHERE seq = 30", "seq 30", "its time is before"),
        ("UPDATE {events} SET at = at + 100000 WHERE seq = 30", "seq 31", "its time is before"),
        ("UPDATE {events} SET at = at + 1 WHERE seq = {last}", "databuild_", "only in the tables"),
        ("UPDATE {events} SET type = 'WantForgotten' WHERE seq = 2", "seq 2", "no event of this type is known here"),
        ("UPDATE {events} SET type = 'WantCanceled' WHERE seq = 2", "seq 2", "cannot be read"),
        ("UPDATE {events} SET version = 3 WHERE seq = 2", "seq 2", "the newest version known here is 2"),
        ("UPDATE {events} SET payload = substr(payload, 2) WHERE seq = 2", "seq 2", "cannot be read"),
        ("UPDATE {events} SET payload = '' WHERE seq = {last}", "seq {last}", "cannot be read"),
        ("UPDATE {events} SET payload = replace(payload, 'source', 'sauce') WHERE seq = 2", "seq 2", "cannot be read"),
        ("UPDATE {events} SET payload = replace(payload, 'ttl_s', 'ttlis') WHERE seq = 13", "seq 13", "'ttliseconds'"),
        ("UPDATE {events} SET payload = replace(payload, 'total', 'totally') WHERE seq = 2", "seq 2", "not registered"),
        (
            "UPDATE {events} SET payload = replace(payload, 'months/total', 'left') WHERE seq = 2",
            "databuild_wants",
            "only in the tables",
        ),
        ("INSERT INTO {events} SELECT {last} + 1, at, type, version, 'x', actor, payload FROM {events} WHERE seq = 2",
         "seq {next}", "the log does not fold: WantCreated at seq {next} stops it"),
        ("INSERT INTO {events} SELECT {last} + 2, at, type, version, 'x', actor, payload FROM {events} WHERE seq = {last}",
         "seq {over}", "the seq before it is missing"),
    ],
)  # fmt: skip
def test_a_log_changed_by_hand_is_found(path, statement, entity, detail):
    """Rules 3.1, I5: by seq and type, with the reason, and without a traceback."""
    with opened(path) as connection:
        (last,) = connection.execute(f"SELECT max(seq) FROM {EVENTS}").fetchone()
    names = {"events": EVENTS, "last": last, "next": last + 1, "over": last + 2}

    damage(path, statement.format(**names))

    found = found_in(path)
    assert any(
        violation.entity.startswith(entity.format(**names)) and detail.format(**names) in violation.detail
        for violation in found
    ), found


@pytest.mark.parametrize("change", ["payload = x'ff7b'", "version = 'x'"])
def test_a_rebuild_names_the_event_that_no_one_can_read(path, change):
    """Rule 3.4: a payload that is no UTF-8, and a version that is no number."""
    damage(path, f"UPDATE {EVENTS} SET {change} WHERE seq = 2")
    store = open_store(f"sqlite:///{path}")

    with pytest.raises(IllegalMove, match=r"seq 2.*cannot be read"):
        rebuild(store)
    store.close()


def test_two_events_that_changed_places_are_found(path):
    """Rule 3.1: they stop the fold, or make other tables, or their times go back."""
    with opened(path) as connection:
        for guard in GUARDS:
            connection.execute(f"DROP TRIGGER {EVENTS}_{guard}")
        connection.execute(f"UPDATE {EVENTS} SET seq = -1 WHERE seq = 20")
        connection.execute(f"UPDATE {EVENTS} SET seq = 20 WHERE seq = 21")
        connection.execute(f"UPDATE {EVENTS} SET seq = 21 WHERE seq = -1")

    found = found_in(path)

    assert entities(found) & {"seq 20", "seq 21", "databuild_history"}, found


@pytest.mark.parametrize("column", ["actor", "command_id"])
def test_who_gave_a_command_of_one_event_is_known_from_the_log_alone(path, column):
    """Rule 3.1: written here and in docs/concepts.md, so that no user relies on more."""
    with opened(path) as connection:
        (seq,) = connection.execute(
            f"""SELECT seq FROM {EVENTS} e WHERE type = 'JobRunStarted' AND command_id NOT LIKE '%#%' AND NOT EXISTS
            (SELECT 1 FROM {EVENTS} n WHERE n.seq = e.seq + 1 AND n.command_id LIKE e.command_id || '#%')"""
        ).fetchone()

    damage(path, f"UPDATE {EVENTS} SET {column} = 'another user' WHERE seq = ?", seq)

    assert found_in(path, deep=True) == []


@pytest.mark.parametrize("column", ["at", "actor", "command_id"])
def test_within_a_command_its_events_vouch_for_each_other(path, column):
    """Rule 3.1: events of one command are counted up in their command ids, and have one time and one actor."""
    with opened(path) as connection:
        (seq,) = connection.execute(f"SELECT seq FROM {EVENTS} WHERE command_id LIKE '%#1' LIMIT 1").fetchone()
    other = "at + 0.001" if column == "at" else f"{column} || 'x'"

    damage(path, f"UPDATE {EVENTS} SET {column} = {other} WHERE seq = ?", seq - 1)

    assert f"seq {seq}" in entities(found_in(path))


#: What an event says and the tables do not repeat, so that no other place tells that it was changed.
SAID_ONCE = {
    "WantCreated.ttl_seconds",
    "WantCreated.sla_seconds",
    "WantCanceled.reason",
    "TaintCanceled.reason",
    "CanonicalReverted.reason",
    "ManifestRemoved.reason",
    "ManifestRemoved.erasure.where_sha256",
    "ManifestRemoved.erasure.reason",
    "InstancesBorrowed.births.inputs.elsewhere",
    "JobRunSkipped.message",
    "JobRunStarted.made_with.config.ops.days.limit",
    "JobRunStarted.made_with.tags.databuild/spark",
    "JobRunStarted.made_with.versions.python",
    "DatasetRegistered.location",
    "JobRunDepMissed.retry_at",
    "PartitionDelegated.delegations.job_run_id",
    "ArcFired.up_to_seq",
    "ArcFired.firings.lots",
    # The instance has its manifest already.
    *(
        f"{event}.returns.manifest.{fact}"
        for event in ("InstancesPromoted", "InstancesReturned")
        for fact in ("bytes", "files", "rows", "state", "uri")
    ),
}


def leaves(said: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to each value of a payload; of a list, to those of its first entry."""
    if isinstance(said, dict):
        for key, item in said.items():
            yield from leaves(item, (*path, key))
    elif isinstance(said, list):
        for place, item in enumerate(said[:1]):
            yield from leaves(item, (*path, place))
    else:
        yield path


def turned(said: object) -> object:
    """Another value of the same type."""
    match said:
        case bool():
            return not said
        case int() | float():
            return said + 1
        case str():
            return f"{said}x"
    return "x"


@pytest.mark.long("it folds the log once for each field of each event")
def test_every_field_of_an_event_shows_in_the_tables_but_for_a_short_list(path):
    """Rules 3.1, I5: each field of each type of event, changed where it is first said."""
    with opened(path) as connection:
        rows = connection.execute(f"SELECT seq, type, payload FROM {EVENTS} ORDER BY seq").fetchall()
        for guard in GUARDS:
            connection.execute(f"DROP TRIGGER {EVENTS}_{guard}")
        first: dict[str, tuple[int, tuple[str | int, ...], str]] = {}
        for seq, name, payload in rows:
            for way in leaves(json.loads(payload)):
                field = ".".join([name, *(step for step in way if isinstance(step, str))])
                if way != ("type",):
                    first.setdefault(field, (seq, way, payload))
        unseen = set()
        for field, (seq, way, payload) in first.items():
            said = json.loads(payload)
            inner = said
            for step in way[:-1]:
                inner = inner[step]
            inner[way[-1]] = turned(inner[way[-1]])
            connection.execute(f"UPDATE {EVENTS} SET payload = ? WHERE seq = ?", (json.dumps(said), seq))
            if not found_in(path):
                unseen.add(field)
            connection.execute(f"UPDATE {EVENTS} SET payload = ? WHERE seq = ?", (payload, seq))

    assert sorted(unseen) == sorted(SAID_ONCE)


# The structure


def parts() -> list[tuple[str, str]]:
    store = open_store("sqlite://")
    with store.reading() as connection:
        found = connection.execute("SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
    store.close()
    return sorted((kind, name) for kind, name in found if name not in (EVENTS, schema.meta.name))


@pytest.mark.parametrize("kind", ["index", "view", "trigger", "table"])
def test_an_index_view_trigger_or_table_that_is_gone_is_found_and_put_back(path, kind):
    """Rules 3.1, 3.4"""
    names = [name for kind_of_part, name in parts() if kind_of_part == kind]
    with opened(path) as connection:
        for name in names:
            connection.execute(f"DROP {kind} {name}")
    store = open_store(f"sqlite:///{path}")

    found = check(store)
    store.close()

    assert sorted(item.entity for item in found) == names
    assert all("databuild log rebuild" in item.detail for item in found)
    assert repaired(path) == []


def test_columns_that_are_gone_are_found_and_put_back_by_a_rebuild(path):
    """Rule 3.4: each with its table."""
    gone = {table: list(schema.metadata.tables[table].columns)[-1].name for table in TABLES}
    with opened(path) as connection:
        for table, column in gone.items():
            connection.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO another")

    found = found_in(path)

    for table, column in gone.items():
        assert any(violation.entity == table and column in violation.detail for violation in found), table
    assert repaired(path) == []


def test_a_trigger_that_was_made_to_do_nothing_is_found(path):
    """Rule 3.1"""
    name = f"{EVENTS}_no_update"
    with opened(path) as connection:
        connection.execute(f"DROP TRIGGER {name}")
        connection.execute(f"CREATE TRIGGER {name} BEFORE UPDATE ON {EVENTS} BEGIN SELECT 1; END")
    store = open_store(f"sqlite:///{path}")

    (found,) = check(store)

    assert (found.entity, "was changed" in found.detail) == (name, True)
    store.close()


def test_a_log_that_is_gone_is_said_to_be_past_help(path):
    """Rule 3.4: all else can be computed, the log cannot."""
    with opened(path) as connection:
        connection.execute(f"DROP TABLE {EVENTS}")
    store = open_store(f"sqlite:///{path}")

    found = check(store)

    assert EVENTS in entities(found)
    assert any("the last copy" in violation.detail for violation in found)
    store.close()


# The file


def page_of(path: Path, name: str) -> tuple[int, int]:
    """(where the root page of a table or index begins, how long a page is)"""
    with opened(path) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    return (page - 1) * size, size


def scribble(path: Path, at: int, size: int) -> None:
    """As a disk that gives zeros for what it has lost."""
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(bytes(size))


@pytest.mark.parametrize("table", [*TABLES, EVENTS])
def test_a_page_that_the_disk_lost_is_found_and_named(path, table):
    """Rule 3.4: by the table that lies on it, without a traceback."""
    scribble(path, *page_of(path, table))

    found = found_in(path, deep=True)

    what_to_do = "the last copy" if table == EVENTS else "the log alone"
    assert any(violation.entity == table and what_to_do in violation.detail for violation in found), found


@pytest.mark.parametrize("table", ["databuild_refs", "databuild_datasets"])
def test_the_command_line_prints_what_a_damaged_store_can_still_tell(story_file, tmp_path, monkeypatch, table):
    """Rules 3.4, 15: also when it cannot tell which files there should be."""
    path = Path(shutil.copy(story_file, tmp_path / "databuild.db"))
    scribble(path, *page_of(path, table))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.delenv("DATABUILD_DB_URL", raising=False)

    done = CliRunner().invoke(cli, ["log", "check", "--deep", "--json"])

    reported = {violation["entity"] for violation in json.loads(done.stdout)["violations"]}
    assert (done.exit_code, table in reported) == (1, True), done.output


def test_the_log_alone_in_a_new_file_is_enough(path, tmp_path):
    """Rule 3.4: what docs/how-to/find-out-why.md tells to do with sqlite3's `.dump`, when a page is past help."""
    scribble(path, *page_of(path, "databuild_refs"))
    saved = tmp_path / "saved.db"
    with opened(path) as old, opened(saved) as new:
        for name in (schema.meta.name, EVENTS):
            for (sql,) in old.execute("SELECT sql FROM sqlite_master WHERE tbl_name = ? AND type = 'table'", (name,)):
                new.execute(sql)
            rows = old.execute(f"SELECT * FROM {name}").fetchall()
            new.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)

    assert repaired(saved) == []


def test_an_index_that_lies_is_found_by_a_deep_check(path):
    """Rule 3.4: the table itself is sound, so only the file tells."""
    with opened(path) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'due = 1', 'due = 0') WHERE name = 'databuild_refs_at_hand'"
        )

    assert any("databuild_refs_at_hand" in violation.detail for violation in found_in(path, deep=True))
    assert repaired(path) == []


def test_a_text_that_is_none_is_named_and_no_traceback(path):
    """Rule 3.4: a flipped bit may leave something that is not UTF-8."""
    damage(path, "UPDATE databuild_wants SET comment = CAST(x'ff41' AS TEXT)")

    found = found_in(path)

    assert any(
        violation.entity == "databuild_wants" and "databuild log rebuild" in violation.detail for violation in found
    )
    assert repaired(path) == []


# On a server


@pytest.fixture
def served(database, shared_url) -> Iterator[tuple[Store, sa.Connection]]:
    """The store in which everything has happened, and the server without our engine between."""
    world = World(story.DATASETS, url=shared_url)
    story.tell(world)
    engine = sa.create_engine(shared_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield world.store, connection
        connection.exec_driver_sql(f"ALTER TABLE {EVENTS} ENABLE TRIGGER USER")
    engine.dispose()


def lose_a_row_on(server: sa.Connection, table: sa.Table, first: str) -> int:
    return server.exec_driver_sql(f"DELETE FROM {table.name} WHERE {first}").rowcount


def change_a_row_on(server: sa.Connection, table: sa.Table, first: str) -> int:
    """Keys are texts or numbers, and both can be written behind what is there."""
    name = next(iter(table.primary_key.columns)).name
    other = f"{name} || 'x'" if is_text(table.columns[name]) else f"{name} + (1::bigint << 50)"
    return server.exec_driver_sql(f"UPDATE {table.name} SET {name} = {other} WHERE {first}").rowcount


@pytest.mark.databases("postgres")
def test_a_server_with_damage_in_all_tables_is_reported_and_repaired(served):
    """Rules 3.4, 12, I5"""
    store, server = served
    for harm in (lose_a_row_on, change_a_row_on):
        for table in schema.PROJECTIONS:
            key = key_of(table.name)
            first = f"({key}) = (SELECT {key} FROM {table.name} ORDER BY {key} LIMIT 1)"
            assert harm(server, table, first) == 1, table.name

        found = check(store)

        assert set(TABLES) <= entities(found)
        rebuild(store)
        assert check(store, deep=True) == []


@pytest.mark.databases("postgres")
def test_a_log_on_a_server_that_was_changed_is_found_by_its_events(served):
    """Rules 3.1, 3.4: by a user who may switch its guards off."""
    store, server = served
    server.exec_driver_sql(f"ALTER TABLE {EVENTS} DISABLE TRIGGER USER")
    damages = [
        (f"DELETE FROM {EVENTS} WHERE seq = 30", "seq 31", "the seq before it is missing"),
        (f"UPDATE {EVENTS} SET at = at + 100000 WHERE seq = 40", "seq 41", "its time is before"),
        (f"UPDATE {EVENTS} SET type = 'WantForgotten' WHERE seq = 2", "seq 2", "no event of this type is known here"),
        (f"UPDATE {EVENTS} SET payload = substr(payload, 2) WHERE seq = 3", "seq 3", "cannot be read"),
    ]
    for statement, *_ in damages:
        assert server.exec_driver_sql(statement).rowcount == 1

    found = check(store)

    for _, entity, detail in damages:
        assert any(violation.entity == entity and detail in violation.detail for violation in found), (entity, found)
    assert {f"{EVENTS}_{guard}" for guard in GUARDS} <= entities(found)
