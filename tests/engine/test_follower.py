"""A follower reads the log once, a bounded stretch at a time, and a process that dies loses nothing (rules 11.1, 11.3)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine import follower as following
from databuild_dagster.engine.follower import Cursor, LogFollower, all_touched, apart, steps
from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.rebuild import rebuild
from tests.support.catalog import dataset
from tests.support.world import World

TAINTS = ("TaintCreated",)


class SharedCursors:
    """A storage that outlives processes."""

    def __init__(self):
        self.kept: dict[str, Cursor] = {}
        self.n_loaded = 0

    def load(self, name, kind):
        self.n_loaded += 1
        return self.kept.get(name)

    def store(self, name, cursor):
        self.kept[name] = cursor


class Reader:
    """Notes each tainted ref, at most some refs a tick."""

    def __init__(self, engine, storage, name="reader", *, most=100):
        self.engine, self.storage, self.name, self.most = engine, storage, name, most
        self.read: list[str] = []
        self.dies_before_storing = False

    def tick(self):
        follower = LogFollower(self.engine, self.name, Cursor, self.storage)
        if follower.is_at_end:
            return
        cursor = follower.load() or Cursor()
        n_read = 0
        for entry, after in steps(
            follower.events(cursor, TAINTS), cursor, follower.last_seq(cursor), lambda event: event.fact.refs
        ):
            if entry is not None:
                if n_read == self.most:
                    break
                self.read.append(entry)
                n_read += 1
            cursor = after
        if self.dies_before_storing:
            raise KeyboardInterrupt
        follower.keep(cursor)
        follower.rest(cursor.seq)


@pytest.fixture
def storage():
    return SharedCursors()


@pytest.fixture
def reader(world, storage):
    world.live("a", "b", "c")
    return Reader(world.engine, storage)


def asked(store, monkeypatch):
    found = []
    ask = store.ask
    monkeypatch.setattr(store, "ask", lambda *question: found.append(question[0]) or ask(*question))
    return found


def test_a_crash_between_acting_and_storing_acts_again(world, reader, storage):
    """At least once; what was stored before is not done again."""
    world.taint("a")
    reader.tick()
    world.taint("b")
    reader.dies_before_storing = True
    with pytest.raises(KeyboardInterrupt):
        reader.tick()

    another = Reader(world.process(), storage)
    another.tick()

    assert reader.read == ["a", "b"]
    assert another.read == ["b"]


def test_a_tick_passes_a_bounded_number_of_events_and_the_next_goes_on(world, reader, monkeypatch):
    """Rule 11.1"""
    for ref in "abc":
        world.taint(ref)
    reader.tick()
    read = list(reader.read)
    monkeypatch.setattr(following, "MAX_EVENTS", 2)
    fresh = Reader(world.engine, SharedCursors(), "fresh")

    seen = []
    for _ in range(world.seq):
        fresh.tick()
        seen.append(fresh.storage.kept["fresh"].seq)

    assert fresh.read == read == ["a", "b", "c"]
    assert seen == [min(world.seq, 2 * n) for n in range(1, world.seq + 1)]


def test_a_rebuild_of_the_tables_makes_a_follower_repeat_nothing(world, reader):
    """Rule 3.4"""
    world.taint("a")
    reader.tick()

    rebuild(world.store)
    world.engine.memory.forget()
    reader.tick()

    assert reader.read == ["a"]


def test_a_cursor_beyond_the_end_is_of_another_log_and_does_not_count(world, reader, storage):
    """A store that was put back from a copy, or put in the place of another one."""
    world.taint("a")
    storage.kept["reader"] = Cursor(world.seq + 1)

    reader.tick()

    assert reader.read == ["a"]
    assert storage.kept["reader"] == Cursor(world.seq)


def test_a_process_that_came_further_meanwhile_is_not_mistaken_for_another_log(world, reader, storage):
    follower = LogFollower(world.engine, "reader", Cursor, storage)
    world.taint("a")
    reader.tick()

    assert follower.load() == Cursor(world.seq)


def add_event(world, name, version=1):
    """An event that newer code has recorded."""
    with world.store.writing() as work:
        work.connection.execute(
            f"INSERT INTO {PREFIX}events (seq, at, type, version, command_id, actor, payload) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (world.seq + 1, world.clock.now, name, version, f"newer {name}", "newer", "{}"),
        )


@pytest.fixture
def newer():
    """A world whose log newer code writes, too: no invariant of this version holds for that."""
    world = World([dataset(name) for name in "abc"])
    yield world
    world.store.close()


def test_events_of_a_kind_that_only_newer_code_knows_are_passed_over(newer, storage):
    reader = Reader(newer.engine, storage)
    newer.live("a")
    add_event(newer, "InventedLater")
    newer.taint("a")

    reader.tick()

    assert reader.read == ["a"]


def test_a_follower_that_cannot_read_its_stretch_stops_no_other(newer, storage, caplog):
    """The others do not read that type of event; it stays where it was, for the next tick or for newer code."""
    world, reader = newer, Reader(newer.engine, storage)
    world.live("a")
    world.taint("a")
    reader.tick()
    before = storage.kept["reader"]
    add_event(world, "TaintCreated", version=99)
    world.arrive("b", "file:///b")

    with pytest.raises(IllegalMove):
        reader.tick()
    with apart("taints could not be read"):
        reader.tick()
    with apart("arrivals could not be read"):
        other = LogFollower(world.engine, "other", Cursor, storage)
        refs = all_touched(world.queries, other.events(Cursor(before.seq), ("LotArrived",)))

    assert storage.kept["reader"] == before
    assert refs == {"b"}
    assert "taints could not be read" in caplog.text
    assert "arrivals could not be read" not in caplog.text


def test_an_expected_error_is_logged_by_its_message_alone(caplog):
    with apart("the log could not be read", IllegalMove):
        raise IllegalMove(seq=1, entity="log", state="-", on="x", why="it is torn")

    (record,) = caplog.records
    assert "the log could not be read: " in record.getMessage()
    assert "it is torn" in record.getMessage()
    assert record.exc_info is None


def test_what_events_name_by_job_run_or_taint_is_found(world):
    """Rule 7.3: the store knows where a downstream taint went."""
    world.live("a")
    world.succeed("b", inputs=["a"])
    seq = world.seq
    world.handle(c.TaintPartitions(refs=("a",), reason="wrong", downstream=True))
    world.fail("c")

    (taint,) = world.queries.events.named(("TaintCreated",), seq, world.seq)
    (failure,) = world.queries.events.named(("JobRunFailed",), seq, world.seq)

    assert all_touched(world.queries, [taint]) == {"a", "b"}
    assert all_touched(world.queries, [failure]) == {"c"}
    assert all_touched(world.queries, [taint, failure]) == {"a", "b", "c"}
