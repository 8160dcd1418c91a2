"""Faults of PostgreSQL alone: lines that are cut, servers that are gone, statements in another spelling (rules 3)."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading

import psycopg
import pytest

from databuild_dagster.engine.engine import Engine
from databuild_dagster.model import commands as c
from databuild_dagster.store.backends import postgres
from databuild_dagster.store.backends.heartbeats import Heartbeats, NotedSession
from databuild_dagster.store.backends.postgres import MAX_KEPT, PostgresConnection, PostgresDatabase
from databuild_dagster.store.backends.postgres_sql import in_bulk, translated
from databuild_dagster.store.check import check
from databuild_dagster.store.errors import NotOneFile, StoreUnusable
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.rebuild import rebuild
from databuild_dagster.store.store import open_store
from tests.support.catalog import dataset
from tests.support.postgres import postgres_server
from tests.support.world import World, worlds

DATABASES = ("postgres",)


@pytest.fixture
def small(make_world):
    return make_world(*(dataset(name) for name in "abc"), dataset("days", keys=[str(day) for day in range(2000)]))


def test_a_backup_of_a_server_is_left_to_its_own_tool(small, tmp_path):
    with pytest.raises(NotOneFile, match="pg_dump"):
        small.store.database.backup(f"{tmp_path}/copy.db")


def cut_all_lines(world):
    """As a server does that restarts, or a firewall that has waited long enough."""
    with psycopg.connect(postgres_server().admin_url, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'databuild'")


# Lines


def test_a_line_that_was_cut_between_two_commands_is_not_noticed(small):
    """Rule 3.5"""
    small.want("a")

    cut_all_lines(small)
    small.want("b")
    cut_all_lines(small)
    state = small.state("a")

    assert state is None
    assert [len(small.open_wants(ref)) for ref in "ab"] == [1, 1]


def test_a_line_that_is_cut_within_a_command_undoes_it_and_the_next_one_works(small):
    """Rules 3.3, 3.5"""
    before = small.seq

    with pytest.raises(StoreUnusable, match="was cut"), small.store.writing() as work:
        work.refs(["a"])
        cut_all_lines(small)
        work.connection.execute("SELECT 1").fetchone()

    assert small.seq == before
    small.want("c")
    assert len(small.open_wants("c")) == 1


def test_a_command_within_a_command_is_refused_and_the_outer_one_is_whole(small):
    """Rule 3.3: its commit would have been that of half of the outer one."""
    with small.store.writing() as work:
        work.ensure_refs(["a"])
        with pytest.raises(AssertionError, match="transaction within another"), small.store.writing():
            pass

    assert small.store.ask("SELECT ref FROM databuild_refs") == [("a",)]
    with small.store.writing() as work:
        work.connection.execute("DELETE FROM databuild_refs")


def test_a_swallowed_error_is_no_success(small):
    """Rule 3.3: PostgreSQL ends a transaction that has failed by a rollback, for any later statement."""
    before = small.seq

    with pytest.raises(StoreUnusable), small.store.writing() as work, contextlib.suppress(psycopg.Error):
        work.connection.execute("SELECT 1 / 0").fetchall()

    assert small.seq == before
    small.want("a")


def test_who_stands_still_within_a_transaction_is_ended_by_the_server(small):
    """Rules 11: the lock of a process that was stopped is not held for ever."""
    with small.store.reading() as connection:
        (allowed,) = connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()

    assert allowed == "1min"


def test_threads_share_a_few_lines(small, monkeypatch):
    """Dagster's servers have dozens of threads, PostgreSQL a hundred lines."""
    monkeypatch.setattr(postgres, "REST_SECONDS", 0.5)
    together = threading.Barrier(12)

    def look():
        together.wait(250)
        with small.store.reading():
            together.wait(250)
        small.state("a")

    threads = [threading.Thread(target=look) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(250)

    database = small.store.database
    assert isinstance(database, PostgresDatabase)
    assert database.max_at_rest < len(database._free) <= MAX_KEPT
    database._rest.join(250)
    assert len(database._free) <= database.max_at_rest


def test_what_was_asked_in_vain_is_not_the_answer_of_another_time(small):
    """Rule 3.3: a repeated command never looks at the log's end; others go on meanwhile."""
    elsewhere = Engine(open_store(small.store.url), small.catalog)
    want = c.CreateWants(wants=(("a",),))

    for number in range(3):
        small.engine.handle(want, command_id="once")
        elsewhere.handle(c.CreateWants(wants=(("b",),)), command_id=f"other {number}")
        small.engine.handle(c.CreateWants(wants=(("c",),)), command_id=f"mine {number}")

    assert [len(small.open_wants(ref)) for ref in "abc"] == [1, 3, 3]
    elsewhere.store.close()


def test_a_role_with_other_defaults_writes_as_everybody_does(small):
    """Rule 3.3: a snapshot older than the lock would not see the last event."""
    defaults = "-cdefault_transaction_isolation%3Drepeatable%5C%20read%20"
    url = small.store.url.replace("-csearch_path", f"{defaults}-csearch_path")
    elsewhere = Engine(open_store(url), small.catalog)

    def write(engine):
        for _ in range(20):
            engine.handle(c.CreateWants(wants=(("a",),)))

    threads = [threading.Thread(target=write, args=[engine]) for engine in (elsewhere, small.engine)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(250)

    assert len(small.open_wants("a")) == 40
    elsewhere.store.close()


def test_a_reader_during_a_rebuild_of_the_tables_sees_all_or_waits(small):
    """Rule 3.4"""
    small.live("a", "b")
    elsewhere = open_store(small.store.url)
    seen, stop = set(), threading.Event()

    def look():
        queries = Queries(elsewhere)
        while not stop.is_set():
            with elsewhere.reading() as connection:
                connection.execute("SELECT 1").fetchall()
                seen.update(connection.execute("SELECT count(*) FROM databuild_refs WHERE state = 'Live'").fetchone())
            seen.add(len([state for state in queries.canonical.states(["a", "b"]).values() if state is not None]))

    looker = threading.Thread(target=look)
    looker.start()
    for _ in range(8):
        rebuild(small.store)
    found = check(small.store)
    stop.set()
    looker.join(250)

    assert (seen, found) == ({2}, [])
    elsewhere.close()


def test_one_damaged_column_does_not_make_everything_unreadable(small):
    """Rule 3.4"""
    small.live("a")
    with small.store.writing() as work:
        work.connection.execute("ALTER TABLE databuild_refs ALTER COLUMN n_waiters TYPE text")

    found = check(small.store)

    assert "databuild_events" not in {violation.entity for violation in found}
    assert any(violation.entity == "databuild_refs" for violation in found)
    rebuild(small.store)
    assert check(small.store) == []


def test_an_interrupt_as_a_transaction_is_undone_blocks_no_other(small, monkeypatch):
    """Rule 3.3: a second Ctrl-C."""
    monkeypatch.setattr(PostgresConnection, "undo", interrupted)

    with pytest.raises(KeyboardInterrupt), small.store.writing():
        raise ZeroDivisionError
    monkeypatch.undo()

    small.want("a")
    assert len(small.open_wants("a")) == 1


def interrupted(_connection):
    raise KeyboardInterrupt


# Whose it is


def test_two_schemas_of_a_database_are_two_logs_that_do_not_wait_for_each_other(small):
    """Rule 3.1"""
    other = World([dataset("a")])

    with small.store.writing():
        other.want("a")

    assert small.open_wants("a") == []
    other.store.close()


def test_of_many_only_one_is_alone(small):
    elsewhere = open_store(small.store.url)

    with (
        small.store.database.alone("holding") as first,
        elsewhere.database.alone("holding") as second,
        elsewhere.database.alone("something else") as third,
    ):
        assert (first, second, third) == (True, False, True)
    with elsewhere.database.alone("holding") as again:
        assert again

    elsewhere.close()


def test_heartbeats_and_sessions_are_heard_elsewhere_and_never_wait_for_the_log(small):
    """Rule 6.9"""
    elsewhere = Heartbeats(open_store(small.store.url).database)
    session = NotedSession("run", "sc://there", "holder", 5.0)

    with small.store.writing():
        small.engine.beat(["l1"])
        small.engine.heartbeats.note_session(session)
        assert elsewhere.last(["l1", "l2"]) == {"l1": small.clock.now}
        assert elsewhere.sessions() == [session]

    elsewhere.forget_before(small.clock.now + 1)
    elsewhere.forget_session("run", "sc://there")
    assert (small.engine.heartbeats.last(["l1"]), small.engine.heartbeats.sessions()) == ({}, [])


# What is said


def test_a_server_that_is_not_there_is_said_in_one_sentence_without_the_password():
    """Rule 3.5"""
    with pytest.raises(StoreUnusable) as unusable:
        open_store("postgresql+psycopg://me:secret@127.0.0.1:1/nowhere?connect_timeout=1")

    assert "127.0.0.1" in str(unusable.value)
    assert "secret" not in str(unusable.value)


def test_a_schema_where_nothing_may_be_made_is_said_so():
    """Rule 3.5"""
    with pytest.raises(StoreUnusable, match="no schema has been selected"):
        open_store(postgres_server().url("not_there"))


def test_a_missing_psycopg_is_refused_with_what_to_install():
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from databuild_dagster.store.store import open_store\n"
        "try: open_store('postgresql://127.0.0.1/x')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)

    assert done.stdout.startswith("MissingDriver")
    assert "[postgres]'" in done.stdout


def test_a_driver_that_is_another_s_is_no_matter(small):
    """Dagster names psycopg2 in its own url, which is where we find it."""
    store = open_store(small.store.url.replace("+psycopg:", "+psycopg2:"))

    assert check(store) == []
    store.close()


# Spelling


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("SELECT a FROM t WHERE b = ? AND c = :name", "SELECT a FROM t WHERE b = %s AND c = %(name)s"),
        ("a IN (SELECT value FROM json_each(?))", "a = ANY(%s)"),
        ("a NOT IN (SELECT value FROM json_each(:keys))", "a <> ALL(%(keys)s)"),
        ("a IS NOT b AND c IS NOT NULL AND d IS NULL", "a IS DISTINCT FROM b AND c IS NOT NULL AND d IS NULL"),
        ("a IS b AND c IS 'Live'", "a IS NOT DISTINCT FROM b AND c IS NOT DISTINCT FROM 'Live'"),
        ("'is ? :here IS not it, 100 %'", "'is ? :here IS not it, 100 %%'"),
        ("a CROSS JOIN b ON c = d", "a JOIN b ON c = d"),
        ("5 % 2", "5 %% 2"),
        ("a::text", "a::text"),
    ],
)
def test_a_statement_is_spelt_as_postgresql_has_it(ours, theirs):
    assert translated(ours) == theirs


def test_rows_that_do_not_depend_on_each_other_are_written_by_one_statement():
    insert = in_bulk("INSERT INTO databuild_missing (instance_id, ref_id, active) VALUES (?, ?, 1)")
    update = in_bulk("UPDATE databuild_refs SET state = ?, retry_at = ? WHERE id = ?")

    assert insert is not None
    assert insert.types == ("bigint", "bigint")
    assert insert.sql.endswith(
        "SELECT instance_id, ref_id, 1 FROM unnest(%s::bigint[], %s::bigint[]) AS v(instance_id, ref_id)"
    )
    assert update is not None
    assert update.types == ("text", "float8", "bigint")
    hold = in_bulk("UPDATE databuild_holds SET open = ? WHERE ref_id = ? AND open = ? AND want_id = ?")
    assert hold is not None
    # Of a hold that turns twice the second turn needs the first: what names it is its ref and its want.
    assert hold.key == (1, 3)
    assert in_bulk("DELETE FROM databuild_holds WHERE ref_id = ?") is None


def test_many_rows_at_once_are_what_the_log_says(small):
    """Rules 3.4, I5"""
    refs = [f"days@{day}" for day in range(2000)]

    small.handle(c.CreateWants(wants=(tuple(refs),)))
    small.live(*refs[:50])

    assert small.check() == []


# Both databases


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ("it said \x00 and more", "it said \N{REPLACEMENT CHARACTER} and more"),
        (r"C:\u0000", r"C:\u0000"),
        ("\\\x00\x00", "\\\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_a_text_that_postgresql_has_not_is_stored_alike_everywhere(said, stored):
    """Rule 3.1: of what a failed process said, say. A NUL becomes what a letter becomes that cannot be read."""
    for url in ("sqlite://", worlds.new_url()):
        world = World([dataset("a")], url=url)
        world.want("a")
        world.fail("a", error=said)

        assert world.canonical("a").reason == stored
        assert world.check() == []
        world.store.close()
