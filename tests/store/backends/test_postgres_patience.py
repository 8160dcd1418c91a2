"""A PostgreSQL server that is silent, or busy: each wait has a bound and a sentence (docs/how-to/postgresql.md)."""

from __future__ import annotations

import math
import socket
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from databuild_dagster.model import commands as c
from databuild_dagster.store.backends.postgres_patience import CONNECTION_DEFAULTS, PATIENCE, bounded
from databuild_dagster.store.errors import StoreBusy, StoreSilent, StoreUnusable
from databuild_dagster.store.store import open_store
from tests.support.catalog import dataset
from tests.support.free_port import free_port
from tests.support.line import Line
from tests.support.postgres import postgres_server
from tests.support.world import World

DATABASES = ("postgres",)

#: The least that libpq accepts.
PATIENCE_SECONDS = 2


@pytest.fixture
def line():
    def connect():
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(Path(postgres_server().folder) / ".s.PGSQL.5432"))
        return server

    with closing(Line(connect)) as found:
        yield found


@pytest.fixture
def url(line):
    """Of an empty schema, over the line."""
    direct = postgres_server().fresh_url()
    schema = direct.rpartition("%3D")[2]
    yield (
        f"postgresql+psycopg://postgres@127.0.0.1:{line.port}/postgres"
        f"?connect_timeout={PATIENCE_SECONDS}&options=-csearch_path%3D{schema}"
    )
    postgres_server().take_back(direct)


@pytest.fixture
def world(url):
    with closing(World([dataset("a"), dataset("b")], url=url)) as found:
        yield found


def test_a_server_that_falls_silent_ends_a_command_with_a_sentence(world, line):
    """The next command works as soon as the server answers again."""
    world.want("a")

    line.carries.clear()
    began = time.monotonic()
    with pytest.raises(StoreSilent, match=r"does not answer: it accepted no connection for 2 s.*connect_timeout"):
        world.want("b")
    took = time.monotonic() - began
    line.carries.set()
    world.want("b")

    # The connection, and the one that asks for a sign of life.
    assert took < 100 * PATIENCE_SECONDS
    assert [len(world.open_wants(ref)) for ref in "ab"] == [1, 1]


def test_a_silent_server_ends_a_question_too(world, line):
    line.carries.clear()

    with pytest.raises(StoreSilent, match="does not answer"):
        world.queries.events.head()


def test_a_new_process_gives_up_on_a_silent_server(url, line):
    line.carries.clear()

    with pytest.raises(StoreSilent, match="it accepted no connection for 2 s"):
        open_store(url)


def test_a_command_that_waits_for_another_writer_is_no_silence(world, url):
    """It waits longer than the patience, and is recorded when the other one ends."""
    other = open_store(url)
    done = threading.Event()

    def want() -> None:
        world.handle(c.CreateWants(wants=(("b",),)))
        done.set()

    with closing(other):
        with other.writing():
            thread = threading.Thread(target=want)
            thread.start()
            assert not done.wait(2 * PATIENCE_SECONDS)
        thread.join(timeout=250)

    assert done.is_set()


@pytest.mark.parametrize(
    ("bound", "sentence"),
    [("lock_timeout", "canceling statement due to lock timeout"), ("statement_timeout", "due to statement timeout")],
)
def test_a_statement_beyond_a_bound_of_the_server_ends_as_busy(world, url, bound, sentence):
    """A bound in the url wins over ours."""
    with closing(open_store(f"{url}%20-c{bound}%3D200ms")) as hasty:
        with (
            world.store.writing(),
            pytest.raises(StoreBusy, match=f"is busy: .*{sentence}.*pg_stat_activity"),
            hasty.writing(),
        ):
            pass
        with hasty.writing() as work:
            assert work.refs(["a"]) == {}


def test_a_rebuild_has_no_such_bound(world):
    with world.store.writing() as work:
        world.store.database.take_time(work.connection)
        bounds = [
            work.connection.execute(f"SHOW {name}").fetchone()[0]
            for name in ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
        ]

    assert bounds == ["0", "0", "0"]


def test_the_url_wins_over_each_default(monkeypatch):
    monkeypatch.delenv("PGCONNECT_TIMEOUT", raising=False)

    assert bounded({}).items() >= CONNECTION_DEFAULTS.items()
    assert bounded(dict.fromkeys(CONNECTION_DEFAULTS, "7")).items() >= dict.fromkeys(CONNECTION_DEFAULTS, "7").items()
    assert bounded({"options": "-c statement_timeout=1s"})["options"].endswith("-c statement_timeout=1s")


def test_the_environment_of_libpq_wins_over_the_default(monkeypatch):
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "3")

    assert bounded({})[PATIENCE] == "3"
    assert bounded({PATIENCE: "4"})[PATIENCE] == "4"


@pytest.mark.parametrize(("given", "patience"), [("0", math.inf), ("-1", math.inf), ("3", 3.0)])
def test_zero_means_that_no_silence_is_too_long(given, patience):
    """As libpq reads it: a server would be asked at each look otherwise."""
    url = sa.make_url(postgres_server().fresh_url()).update_query_dict({PATIENCE: given})
    with closing(open_store(url.render_as_string(hide_password=False))) as store:
        connection = store.database.connection()

        assert connection.raw.patience_seconds == patience


def test_a_refused_connection_is_no_silence():
    with pytest.raises(StoreUnusable, match="refused") as refused:
        open_store(f"postgresql+psycopg://postgres@127.0.0.1:{free_port()}/postgres?connect_timeout=1")

    assert not isinstance(refused.value, StoreSilent)
