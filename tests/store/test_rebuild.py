"""All state is a fold of the log: at its end, and at every place before (rules 3.2, 3.4, I5)."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
import sqlalchemy as sa

from databuild_dagster.model.commands import ChangeSetAside, RevertCanonical
from databuild_dagster.model.events import AsideFact
from databuild_dagster.model.fold.evolve import fold
from databuild_dagster.model.meta_storage import Put, Remove, do
from databuild_dagster.store.check import check
from databuild_dagster.store.log import all_events
from databuild_dagster.store.rebuild import _only_in_one, rebuild
from databuild_dagster.store.store import open_store
from databuild_dagster.store.unit_of_work import UnitOfWork
from tests.store.tables import rows_of
from tests.support.catalog import HERE, dataset


@pytest.fixture
def eventful(make_world, shared_url):
    """A world in a file where everything has happened once."""
    world = make_world(
        *(dataset(name) for name in "abcde"),
        dataset("left", job="pair"),
        dataset("right", job="pair"),
        dataset("woken", subscribe=["e"]),
        url=shared_url,
    )
    wants = [world.want("a", "b", priority=3), world.want("a", sla=60.0), world.want("e", ttl=None)]
    world.miss("a", "b", "c")
    world.miss("b", "c")
    world.live("c", "b", "a")
    taint = world.taint("b", "c")
    world.untaint(taint)
    world.clock.turn(60)
    world.fail("e", kind="transient")
    world.taint("a")
    world.cancel_want(wants[1])
    world.miss("a", "d", "left")
    world.fail("d")
    world.taint("d")
    world.claim("a", "c", "d")
    world.lose("d")
    world.start("left", "right", together=True)
    world.succeed("left", "right", inputs=["b"])
    world.arrive("e", "file:///drop/1")
    world.start("d")
    world.cancel("d")
    first = world.uuid("left")
    world.taint("left")
    world.live("left")
    world.handle(RevertCanonical(ref="left", uuid=first))
    world.fire()
    world.invoke(do(Put("a", b"1"), Put("b", b"2")))
    world.compact_meta()
    world.invoke(do(Put("a", b"2"), Remove("b")))
    world.pause("a", "b")
    world.resume("b")
    world.handle(ChangeSetAside(location=HERE, changes=(AsideFact(kind="ref", names=("a",), reason="it raised"),)))
    return world


def events_of(store):
    with store.reading() as connection:
        return list(all_events(connection))


def test_a_rebuild_gives_the_live_tables_row_for_row(eventful):
    """Rule 3.4"""
    before = rows_of(eventful.store)
    assert not [name for name, rows in before.items() if not rows], "something of every table must have happened"

    n_events = rebuild(eventful.store)

    assert n_events == eventful.seq
    assert rows_of(eventful.store) == before


def test_a_rebuild_that_fails_changes_nothing(eventful):
    """Rules 3.3, 3.4: it is one transaction as well."""
    with eventful.store.writing() as work:
        work.connection.execute(
            "INSERT INTO databuild_events SELECT seq + 1, at, 'JobRunStarted', 1, 'forged', 'x',"
            ' \'{"type":"JobRunStarted","launch_id":"l","dagster_run_id":"d","holder":"h","job_run_ids":[]}\''
            " FROM databuild_events ORDER BY seq DESC LIMIT 1"
        )
    before = rows_of(eventful.store)

    with pytest.raises(Exception, match="launch l.*does not exist"):
        rebuild(eventful.store)

    assert rows_of(eventful.store) == before
    assert [violation.invariant for violation in check(eventful.store)] == ["I5"]
    eventful.store.close()
    eventful.store = open_store("sqlite://")  # The world above was broken for good; nothing is left to check.


def test_every_prefix_of_the_log_folds_and_history_tells_its_states(eventful):
    """Rules 3.2, I5: what was the state of X at a seq is one indexed read."""
    keys = {"instances": "uuid", "wants": "want_id", "job_runs": "job_run_id"}
    prefix = open_store("sqlite://")
    events = events_of(eventful.store)

    for event in events:
        with prefix.writing() as work:
            fold(work, event)
        for kind, key in keys.items():
            with prefix.reading() as connection:
                folded = dict(connection.execute(f"SELECT {key}, state FROM databuild_{kind}"))
            with eventful.store.reading() as connection:
                answer = dict(
                    connection.execute(
                        f"""SELECT e.{key}, (SELECT h.to_state FROM databuild_history h WHERE h.kind = '{kind}'
                            AND h.entity_id = e.id AND h.seq <= ? ORDER BY h.seq DESC, h.place DESC LIMIT 1) AS state
                        FROM databuild_{kind} e WHERE state IS NOT NULL""",
                        (event.seq,),
                    )
                )
            assert {entity: state for entity, state in answer.items() if state is not None} == folded, event

    prefix.close()


def test_an_event_that_cannot_be_stops_the_fold_with_all_that_is_known(eventful):
    """Rule 3.5"""
    events = events_of(eventful.store)
    started = next(event for event in events if type(event.fact).__name__ == "JobRunSucceeded")
    again = started._replace(seq=len(events) + 1)

    store = open_store("sqlite://")
    with store.writing() as work:
        for event in events:
            fold(work, event)
    with pytest.raises(Exception, match=rf"seq {again.seq}.*job run .*Succeeded"), store.writing() as work:
        fold(work, again)

    store.close()


def test_a_unit_of_work_that_raises_leaves_no_trace(eventful):
    """Rule 3.3"""
    before = rows_of(eventful.store)

    with pytest.raises(KeyboardInterrupt), eventful.store.writing() as work:
        ref = work.refs(["a"])["a"]
        ref.priority = 99
        work.flush()
        raise KeyboardInterrupt

    assert rows_of(eventful.store) == before
    assert isinstance(work, UnitOfWork)


@pytest.mark.parametrize(
    ("one", "other"), [(-1, -2), ("", 0), ("live", b"live"), (5, 5 + 2**61 - 1), (1.5, 2.5), (None, "")]
)
def test_rows_of_one_hash_are_told_apart(one, other):
    table = sa.Table("facts", sa.MetaData(), sa.Column("name"), sa.Column("value"))
    with closing(sqlite3.connect(":memory:")) as here, closing(sqlite3.connect(":memory:")) as there:
        for connection, value in ((here, one), (there, other)):
            connection.execute("CREATE TABLE facts (name, value)")
            connection.executemany("INSERT INTO facts VALUES (?, ?)", [("same", 1), ("changed", value)])

        assert _only_in_one(here, there, table) == ([("changed", one)], [("changed", other)])
        assert _only_in_one(here, here, table) == ([], [])
