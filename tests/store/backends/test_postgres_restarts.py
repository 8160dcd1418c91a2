"""A PostgreSQL server that restarts or fails over: commands wait for it, and each is recorded once (rule 3.3)."""

from __future__ import annotations

import signal
import threading
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.store.errors import StoreAway, StoreUnusable
from databuild_dagster.store.store import open_store
from tests.support.catalog import dataset
from tests.support.postgres import PostgresServer
from tests.support.world import World

DATABASES = ("postgres",)

#: A server is away for so long.
SECONDS_AWAY = 2.0


@pytest.fixture(scope="module")
def server():
    with closing_server(PostgresServer(durable=True)) as found:
        yield found


@contextmanager
def closing_server(server):
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def url(server):
    return server.fresh_url()


@pytest.fixture
def world(url):
    with closing(World([dataset("a"), dataset("b")], url=url)) as found:
        yield found


@contextmanager
def restarting(server, how):
    """In the block the server is gone, and starts again after `SECONDS_AWAY`."""
    server.shut_down(how)
    starter = threading.Timer(SECONDS_AWAY, server.start_again)
    starter.start()
    try:
        yield
    finally:
        starter.join()


@pytest.mark.parametrize("how", [signal.SIGQUIT, signal.SIGINT], ids=["immediate", "fast"])
def test_a_command_waits_for_a_server_that_restarts(world, server, how):
    with restarting(server, how):
        world.want("a")

    assert len(world.open_wants("a")) == 1


def test_questions_and_heartbeats_wait_for_a_server_that_restarts(world, server):
    with restarting(server, signal.SIGQUIT):
        head = world.queries.events.head()
        world.engine.beat(["launch"])

    assert head.seq == world.seq
    assert world.engine.heartbeats.last(["launch"])


def test_a_process_begins_while_its_server_restarts(world, url, server):
    with restarting(server, signal.SIGQUIT), closing(open_store(url)) as store:
        assert store.versions() == store.known_versions


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_command_whose_connection_is_cut_at_its_commit_is_recorded_once(world, server, monkeypatch, is_committed):
    """Rule 3.3: the answer of a commit is lost with its connection."""
    commit, cut = world.store.database.commit, []

    def cut_once(connection):
        if cut:
            return commit(connection)
        cut.append(connection.raw.info.backend_pid)
        if is_committed:
            commit(connection)
        with psycopg.connect(server.admin_url, autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(%s, 10000)", (cut[0],))
        return connection.raw.execute("SELECT 1").fetchall()

    monkeypatch.setattr(world.store.database, "commit", cut_once)
    wanted = world.handle(c.CreateWants(wants=(("a",),)))

    assert cut
    assert not wanted.repeated
    assert [want.id for want in world.open_wants("a")] == list(wanted.want_ids)
    assert wanted.events[-1].seq == world.seq


@contextmanager
def failing_over(server):
    """In the block the server is a replica, and writes again after `SECONDS_AWAY`."""
    server.shut_down(signal.SIGINT)
    (Path(server.folder) / "standby.signal").touch()
    server.start_again()
    promotion = threading.Timer(SECONDS_AWAY, server.promote)
    promotion.start()
    try:
        yield
    finally:
        promotion.join()


def test_a_command_waits_until_a_replica_becomes_the_server(world, server):
    """A replica accepts connections, and only reads until it is promoted."""
    with failing_over(server):
        world.want("a")

    assert len(world.open_wants("a")) == 1


def test_a_url_for_a_server_that_writes_waits_for_the_promotion(world, url, server):
    """libpq refuses a replica for it, although the replica admits others."""
    with failing_over(server), closing(open_store(f"{url}&target_session_attrs=read-write")) as store:
        assert store.url


def test_the_patience_with_a_server_that_is_away_ends():
    with pytest.raises(StoreAway, match=r"is away: .*No such file.*connect_timeout") as away:
        open_store("postgresql+psycopg://postgres@/postgres?host=/nowhere&connect_timeout=1")

    assert isinstance(away.value, StoreUnusable)
