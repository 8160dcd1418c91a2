"""One file, many processes: opening, refusing, and what a bad disk does (rules 3.1, 3.4, 3.5)."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace

import pytest

from databuild_dagster.engine.holders import new_id
from databuild_dagster.model import commands as c
from databuild_dagster.store.backends.heartbeats import FileAside, Heartbeats
from databuild_dagster.store.backends.sqlite import SqliteDatabase
from databuild_dagster.store.backends.sqlite_file import RESERVE_BYTES
from databuild_dagster.store.check import check
from databuild_dagster.store.errors import (
    BackupRefused,
    ForeignDatabase,
    NewerStore,
    OlderProjection,
    StoreLocked,
    StoreReplaced,
    StoreUnusable,
    UnsupportedDatabase,
)
from databuild_dagster.store.format import LOG_VERSION, PROJECTION_VERSION
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.rebuild import rebuild
from databuild_dagster.store.store import Store, open_store
from tests.support.catalog import dataset
from tests.support.held import held
from tests.support.world import World

DATABASES = ("sqlite",)


@pytest.fixture
def on_disk(make_world, tmp_path):
    return make_world(*(dataset(name) for name in "abc"), url=f"sqlite:///{tmp_path}/build.db")


# Another file at the path


@pytest.mark.parametrize("then", ["another file", "no file"])
def test_a_process_does_not_go_on_with_a_file_that_was_taken_from_its_path(on_disk, tmp_path, then):
    on_disk.want("a")
    n_events = on_disk.store.database.backup(f"{tmp_path}/backup.db")
    os.rename(tmp_path / "build.db", tmp_path / "moved.db")
    if then == "another file":
        os.rename(tmp_path / "backup.db", tmp_path / "build.db")

    for use in (on_disk.store.writing, on_disk.store.reading):
        with pytest.raises(StoreReplaced, match=r"build\.db was moved, replaced or written"), use():
            pytest.fail("what it records is lost")
    with ThreadPoolExecutor() as threads:
        in_another_thread = threads.submit(on_disk.want, "b")
    with pytest.raises(StoreReplaced):
        in_another_thread.result()

    # The file is back, and has lost nothing.
    os.replace(tmp_path / "moved.db", tmp_path / "build.db")
    assert Queries(on_disk.store).events.head().seq == n_events


@pytest.mark.parametrize("begins", ["beside a writer", "at rest"])
def test_a_reader_of_a_file_at_rest_notices_its_next_writer(on_disk, tmp_path, monkeypatch, begins):
    """A file may come to rest after the reader began. Its next writer may make it look damaged to the reader."""
    on_disk.want("a")
    path = f"{tmp_path}/build.db"
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    if begins == "at rest":
        on_disk.store.close()
    reader = SqliteDatabase(f"sqlite:///{path}", path)
    on_disk.store.close()
    tables = reader.ask("SELECT name FROM sqlite_master", ())
    assert not os.path.exists(f"{path}-wal")
    with sqlite3.connect(path) as writer:
        writer.execute("CREATE TABLE other (a)")
    writer.close()

    with pytest.raises(StoreReplaced):
        reader.ask("SELECT name FROM sqlite_master", ())
    with pytest.raises(StoreReplaced), reader.looking():
        raise LookupError(tables)
    reader.close()


def test_a_file_whose_path_begins_with_two_slashes_can_be_read_alone(on_disk, tmp_path, monkeypatch):
    """In a URI, the first name after two slashes is a host."""
    on_disk.want("a")
    on_disk.store.close()
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    reader = SqliteDatabase("sqlite", f"/{tmp_path}/build.db")

    assert reader.ask("SELECT count(*) FROM databuild_wants", ()) == [(1,)]
    reader.close()


# Copying


def test_a_backup_during_a_write_is_a_sound_copy_of_what_was_committed(on_disk, tmp_path):
    on_disk.want("a")
    n_events = on_disk.engine.queries.events.head().seq

    with on_disk.store.writing():
        copied = on_disk.store.database.backup(f"{tmp_path}/copy.db")
    on_disk.want("b")

    copy = open_store(f"sqlite:///{tmp_path}/copy.db")
    assert copied == n_events == Queries(copy).events.head().seq
    assert check(copy, deep=True) == []


@pytest.mark.parametrize("place", ["taken.db", "missing/copy.db"])
def test_a_backup_goes_into_a_new_file_only(on_disk, tmp_path, place):
    (tmp_path / "taken.db").write_text("precious")

    with pytest.raises(BackupRefused, match="Name a new file"):
        on_disk.store.database.backup(f"{tmp_path}/{place}")

    assert (tmp_path / "taken.db").read_text() == "precious"


# Opening


def test_a_database_of_a_newer_version_is_refused_and_left_alone(on_disk):
    """Rule 3.4: what we do not understand we do not write to."""
    on_disk.set_meta("log_version", str(LOG_VERSION + 1))

    with pytest.raises(NewerStore, match="pip install --upgrade"):
        open_store(on_disk.store.url)


def test_tables_of_another_version_are_refused_until_they_are_rebuilt(on_disk):
    """Rule 3.4"""
    on_disk.live("a")
    on_disk.set_meta("projection_version", str(PROJECTION_VERSION - 1))
    with pytest.raises(OlderProjection, match="databuild log migrate"):
        open_store(on_disk.store.url)

    rebuild(Store(on_disk.store.url, check_projections=False))

    again = World(url=on_disk.store.url)
    assert again.queries.canonical.states(["a"]) == on_disk.queries.canonical.states(["a"])
    again.store.close()


@pytest.mark.parametrize("url", ["mysql+pymysql://localhost/x", "mysql://localhost/x", "build.db", ""])
def test_a_database_of_another_kind_is_refused(url):
    with pytest.raises(UnsupportedDatabase):
        open_store(url)


def test_many_processes_open_a_new_store_at_the_same_moment(tmp_path):
    """Rule 3.1: daemon, web server and run workers start together; one makes the tables, none falls over."""
    children = []
    at = time.time() + 0.7
    for _ in range(4):
        code = (
            "import sys, time\n"
            "from databuild_dagster.store.backends.heartbeats import Heartbeats\n"
            "from databuild_dagster.store.store import open_store\n"
            f"time.sleep(max(0, {at} - time.time()))\n"
            f"Heartbeats(open_store('sqlite:///{tmp_path}/build.db').database).beat(['l'], 1.0)\n"
        )
        children.append(subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True))

    try:
        # A TimeoutExpired names the child: it did not open the store.
        errors = [child.communicate(timeout=240)[1] for child in children]
    finally:
        for child in children:
            child.kill()

    assert errors == [""] * len(children)


# Trouble with the disk


@pytest.mark.parametrize(
    "where",
    [
        "{folder}/file/build.db",
        "{folder}/file/below/build.db",
        "{folder}/file/far/below/build.db",
        "{folder}",
        "/proc/nowhere/build.db",
        "/proc/nowhere/below/build.db",
        "/proc/build.db",
    ],
)
def test_a_place_where_no_database_can_be_is_said_in_one_sentence(tmp_path, where):
    """Rule 3.5. (Root writes through permission bits; below a file, and in /proc, no user makes a folder.)"""
    (tmp_path / "file").write_text("not a folder")

    with pytest.raises(StoreUnusable, match="cannot be used"):
        open_store(f"sqlite:///{where.format(folder=tmp_path)}")


def test_a_database_of_something_else_is_refused_and_gets_no_table_of_ours(tmp_path):
    """Rule 3.5: its owner would find our tables in it."""
    path = tmp_path / "orders.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")

    with pytest.raises(ForeignDatabase, match=r"holds the tables of something else \(orders\)"):
        open_store(f"sqlite:///{path}")

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("orders",)]


def test_a_build_state_that_does_not_tell_its_version_is_refused(on_disk):
    """Rule 3.5"""
    on_disk.set_meta("projection_version", "")

    with pytest.raises(ForeignDatabase, match="does not have its version"):
        open_store(on_disk.store.url)

    on_disk.set_meta("projection_version", PROJECTION_VERSION)


def test_on_a_full_disk_nothing_is_half_recorded_and_later_all_is_well(on_disk):
    """Rule 3.5: SQLite gets the limit that no page is left, which is what it sees when the disk is full."""
    on_disk.live("a")
    before = on_disk.seq
    connection = on_disk.store._connection()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (wide,) = connection.execute("PRAGMA max_page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")

    with pytest.raises(StoreUnusable, match="full"):
        for number in range(200):
            on_disk.handle(c.CreateWants(wants=(("b",), ("c",)), comment=f"{number}" * 500))
    at_the_end = on_disk.seq
    assert on_disk.check() == []
    assert at_the_end >= before
    connection.execute(f"PRAGMA max_page_count = {wide}")

    on_disk.live("b")
    assert on_disk.seq > at_the_end


def test_a_database_that_became_read_only_is_said_and_can_still_be_read(on_disk):
    """Rule 3.5"""
    on_disk.live("a")
    connection = on_disk.store._connection()
    connection.execute("PRAGMA query_only = ON")

    with pytest.raises(StoreUnusable, match="readonly"):
        on_disk.want("b")

    assert on_disk.states("a", "b") != [None, None]
    connection.execute("PRAGMA query_only = OFF")
    on_disk.want("b")


def test_a_mistake_of_the_callers_is_not_blamed_on_the_database(on_disk):
    """Rule 3.5: an error with a file name of the caller's own is passed on as it is."""
    with pytest.raises(FileNotFoundError), on_disk.store.writing():
        open("/nowhere/at/all")
    with pytest.raises(ZeroDivisionError), on_disk.store.reading():
        1 / 0

    on_disk.want("a")


# Several at once


def test_a_reader_sees_one_state_while_a_writer_goes_on(on_disk):
    """Rule 3.1: readers never wait and are never shown half of anything."""
    elsewhere = World(url=on_disk.store.url)
    with elsewhere.store.reading() as connection:
        (before,) = connection.execute("SELECT max(seq) FROM databuild_events").fetchone()

        on_disk.live("a")

        assert connection.execute("SELECT max(seq) FROM databuild_events").fetchone() == (before,)
        assert connection.execute("SELECT count(*) FROM databuild_instances").fetchone() == (0,)
    assert elsewhere.states("a") == on_disk.states("a")
    elsewhere.store.close()


def test_threads_of_one_process_take_turns(on_disk):
    """Rule 3.3"""
    errors = []

    def work(name):
        try:
            for number in range(15):
                on_disk.engine.handle(c.CreateWants(wants=(("a",), ("b",))), command_id=f"{name}-{number}")
        except BaseException as error:
            errors.append(error)
        finally:
            on_disk.store.close()

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert on_disk.log().count("WantCreated") == 90


def test_a_thread_that_has_ended_leaves_no_open_file(on_disk):
    """Rule 3.3: a server records the wants of each request in a thread of its own."""

    def held_after(n_threads):
        for _ in range(n_threads):
            thread = threading.Thread(target=on_disk.want, args=("a",))
            thread.start()
            thread.join()
        return held()

    before = held_after(2)
    more = held_after(20) - before

    # SQLite uses descriptors of ended threads again, and the process has other threads.
    assert {kind: n for kind, n in more.items() if n > 5} == {}


def test_threads_share_a_store_in_memory(world):
    """Rule 3.3"""
    threads = [
        threading.Thread(target=lambda: [world.engine.handle(c.CreateWants(wants=(("a",),))) for _ in range(20)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert world.log().count("WantCreated") == 80


def test_a_forked_child_has_a_connection_and_a_lock_of_its_own(on_disk):
    """Rule 3.1: Dagster forks; a connection that crosses a fork corrupts the database."""
    on_disk.want("a")
    on_disk.engine.new_id = new_id
    mine = on_disk.store._connection()
    children = [in_a_fork(lambda name=name: write_in_child(on_disk, mine, name)) for name in range(4)]
    for number in range(10):
        on_disk.engine.handle(c.CreateWants(wants=(("b",),)), command_id=f"parent-{number}")

    assert [wait_for(child) for child in children] == [0] * 4
    assert on_disk.store._connection() is mine
    assert on_disk.log().count("WantCreated") == 1 + 10 + 4 * 10


def write_in_child(world, of_parent, name):
    assert world.store._connection() is not of_parent
    world.engine.new_id = new_id
    for number in range(10):
        world.engine.handle(c.CreateWants(wants=(("b",),)), command_id=f"child-{name}-{number}")


def test_a_fork_while_another_thread_writes_does_not_hold_its_lock(on_disk):
    """Rule 3.1: the child of a fork inherits descriptors, but may not hold the lock when the parent has let go of it."""
    inside, go_on = threading.Event(), threading.Event()

    def write():
        with on_disk.store.writing():
            inside.set()
            go_on.wait(250)

    thread = threading.Thread(target=write)
    thread.start()
    assert inside.wait(250), "the other thread began no transaction"
    child = in_a_fork(lambda: time.sleep(60))
    go_on.set()
    thread.join(250)

    on_disk.want("a")

    assert os.waitpid(child, os.WNOHANG) == (0, 0), "the write waited for the end of the child"
    os.kill(child, signal.SIGKILL)
    assert wait_for(child) == -signal.SIGKILL


def in_a_fork(do):
    pid = os.fork()
    if pid:
        return pid
    try:
        do()
        os._exit(0)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)


def wait_for(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# Heartbeats (rule 6.9)


def test_heartbeats_are_heard_by_other_processes_and_never_wait_for_the_log(on_disk):
    """Rule 6.9: outside the log."""
    elsewhere = Heartbeats(FileAside(f"{on_disk.store.path}.heartbeats"))
    # A beat that needed the log would fail or never return: the block holds its lock.
    with on_disk.store.writing():
        on_disk.engine.beat(["l1", "l2"])
        assert elsewhere.last(["l1", "l2", "l3"]) == {"l1": on_disk.clock.now, "l2": on_disk.clock.now}

    on_disk.clock.turn(10)
    on_disk.engine.beat(["l1"])
    assert elsewhere.last(["l1"]) == {"l1": on_disk.clock.now}


def test_heartbeats_where_none_can_be_kept_are_said_in_one_sentence(tmp_path):
    """Rule 3.5"""
    (tmp_path / "file").write_text("not a folder")

    with pytest.raises(StoreUnusable, match="cannot be used"):
        Heartbeats(FileAside(f"{tmp_path}/file/beats")).beat(["l"], 1.0)


def test_the_reserve_is_given_back_to_a_full_disk_alone(tmp_path, monkeypatch):
    """Rule 10.8: the file of the write lock holds it."""
    lock = tmp_path / "databuild.db.lock"
    store = open_store(f"sqlite:///{tmp_path}/databuild.db")

    store.database.make_room()

    assert lock.stat().st_blocks * 512 >= RESERVE_BYTES

    monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_bavail=RESERVE_BYTES // 4096 - 1, f_frsize=4096))
    store.database.make_room()

    assert lock.stat().st_size == 0
    store.close()


def test_a_disk_that_is_nearly_full_holds_no_reserve(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_bavail=RESERVE_BYTES // 1024, f_frsize=4096))

    open_store(f"sqlite:///{tmp_path}/databuild.db").close()

    assert (tmp_path / "databuild.db.lock").stat().st_size == 0


def test_a_file_that_another_program_keeps_locked_is_busy_and_not_broken(tmp_path):
    """A database browser, which does not take our lock; rule 3.5"""
    path = tmp_path / "build.db"
    world = World([dataset("a")], url=f"sqlite:///{path}")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        # The bound of the wait is not the subject.
        world.store.database.connection().execute("PRAGMA busy_timeout = 0")

        with pytest.raises(StoreLocked, match="is busy: database is locked"):
            world.want("a")

        other.execute("ROLLBACK")
    world.want("a")
    assert world.check() == []
