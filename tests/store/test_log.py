"""The log is append-only, gapless and in order; what was stored is read as it was (rule 3.1)."""

from __future__ import annotations

import json
import sqlite3

import psycopg
import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.events import EVENT_TYPES
from databuild_dagster.store import codec
from tests.support import golden
from tests.support.catalog import dataset
from tests.support.world import World

REFUSED = (sqlite3.IntegrityError, psycopg.IntegrityError)


@pytest.fixture
def on_disk(make_world, shared_url):
    """A world in a file, with a little history."""
    world = make_world(*(dataset(name) for name in "abc"), url=shared_url)
    world.want("a")
    world.miss("a", "b")
    world.live("b", "a")
    world.taint("a")
    return world


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE databuild_events SET actor = 'another user'",
        "UPDATE databuild_events SET payload = '{}' WHERE seq = 1",
        "DELETE FROM databuild_events",
        "DELETE FROM databuild_events WHERE seq = 1",
        "INSERT OR REPLACE INTO databuild_events SELECT seq, at, type, version, command_id, 'me', payload FROM databuild_events",
        "INSERT OR REPLACE INTO databuild_events SELECT seq + 1, at, type, version, command_id, 'me', payload FROM databuild_events ORDER BY seq DESC LIMIT 1",
        "INSERT INTO databuild_events SELECT seq + 2, at, type, version, 'a gap', 'me', payload FROM databuild_events ORDER BY seq DESC LIMIT 1",
    ],
)
def test_the_database_itself_refuses_to_change_the_log(on_disk, database, statement):
    """Rule 3.1: for every user and every tool."""
    before = on_disk.queries.events.raw(0, 1000)
    if database == "postgres" and "OR REPLACE" in statement:
        statement = statement.replace(" OR REPLACE", "") + " ON CONFLICT (seq) DO UPDATE SET actor = 'me'"

    with pytest.raises(REFUSED, match="append-only"), on_disk.store.writing() as work:
        work.connection.execute(statement).fetchall()

    assert on_disk.queries.events.raw(0, 1000) == before


def test_seqs_have_no_gap_and_refused_commands_leave_none(on_disk):
    """Rule 3.1"""
    with pytest.raises(Exception, match="nowhere"):
        on_disk.want("nowhere")
    on_disk.want("c")

    seqs = [event.seq for event in on_disk.queries.events.after(0, 1000)]

    assert seqs == list(range(1, len(seqs) + 1))


def test_the_log_can_be_tailed(on_disk):
    """Rule 3.1: readers ask for what came after a seq."""
    seen = on_disk.seq
    on_disk.want("c")

    assert [event.seq for event in on_disk.queries.events.after(seen)] == [seen + 1]
    assert on_disk.queries.events.after(seen + 1) == []
    assert len(on_disk.queries.events.after(0, most=2)) == 2


def test_what_was_recorded_is_read_by_another_process_as_it_was(on_disk):
    """Rule 3.1"""
    outcome = on_disk.handle(c.CreateWants(wants=(("c",),), comment="für Zoë 🛫", priority=3, ttl_seconds=None))
    elsewhere = World(url=on_disk.store.url)

    assert tuple(elsewhere.queries.events.after(on_disk.seq - 1)) == outcome.events
    elsewhere.store.close()


def test_an_event_names_its_type_and_version_beside_its_payload(on_disk):
    """Rule 3.1, HOUSE_STYLE 9: the stored shape lives for ever."""
    for _, _, name, version, _, _, payload in on_disk.queries.events.raw(0, 1000):
        assert json.loads(payload)["type"] == name
        later = dict.fromkeys(
            ("JobRunCanceled", "JobRunDepMissed", "JobRunSucceeded", "WantCanceled", "WantCreated"), 2
        )
        assert version == (later | {"DatasetRegistered": 3}).get(name, 1)


#: Types of events that no golden log has, in their first version. A line is never changed, because it is to be read for ever.
STORED = [
    ("WantKept", '{"type":"WantKept","keepings":[{"want_ids":["w"],"made_for":["v"]}]}'),
    (
        "JobRunDepMissed",
        '{"type":"JobRunDepMissed","misses":[{"job_run_id":"j","impacted":[{"ref":"a","missing":["b"],"verdict":"cycle","cycle":["a","b"]}]}],"retry_at":1005.0}',
    ),
    ("PartitionsPaused", '{"type":"PartitionsPaused","refs":["a","days@1"],"reason":"wrong","until":1060.0}'),
    ("PartitionsResumed", '{"type":"PartitionsResumed","refs":["a"],"reason":"mended"}'),
    (
        "SetAsideChanged",
        '{"type":"SetAsideChanged","location":"here","changes":[{"kind":"ref","names":["a"],"reason":"it raised"},{"kind":"arc","names":["arc b"]}]}',
    ),
]


@pytest.mark.parametrize(("name", "payload"), STORED, ids=[name for name, _ in STORED])
def test_what_the_first_version_stored_can_be_read(name, payload):
    """Rule 3.6, HOUSE_STYLE 9"""
    fact = codec.decode(name, 1, payload)

    assert json.loads(payload).items() <= json.loads(codec.encode(fact)[2]).items()


def test_a_text_that_is_not_utf8_is_stored_escaped(on_disk):
    """Rule 3.1: such as the error of a function that met a file name in Latin-1."""
    error = "cannot read file caf\udce9.csv"
    on_disk.start("a")
    job_run = on_disk.canonical("a").job_run

    outcome = on_disk.handle(
        c.FailJobRuns(failures=(c.RunFailure(job_run_id=job_run, error=error, kind="hard"),)), actor="Zo\udceb"
    )

    assert on_disk.canonical("a").reason == "cannot read file caf\\udce9.csv"
    assert outcome.events[0].actor == "Zo\\udceb"
    assert tuple(on_disk.queries.events.after(on_disk.seq - 1)) == outcome.events


def test_the_second_version_of_a_dep_miss_is_known_by_its_cycles():
    """Rules 3.6, 6.7: the fold treats version 1 as it did."""
    first = dict(STORED)["JobRunDepMissed"]
    second = '{"type":"JobRunDepMissed","misses":[{"job_run_id":"j","impacted":[{"ref":"a","missing":["b"],"verdict":"cycle","learned":["b"]}]}],"retry_at":1005.0,"cycles":{"b":"a → b → a"}}'

    assert codec.decode("JobRunDepMissed", 1, first).cycles is None
    assert codec.encode(codec.decode("JobRunDepMissed", 2, second)) == ("JobRunDepMissed", 2, second)


def test_every_event_type_has_a_stored_example():
    """HOUSE_STYLE 9: here or in a golden log, which `test_codec_golden_logs` folds."""
    in_golden_logs = {name for version in golden.versions() for name in golden.read(version).about["event_types"]}

    assert {name for name, _ in STORED} | in_golden_logs == {cls.__struct_config__.tag for cls in EVENT_TYPES}
