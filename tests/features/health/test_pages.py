"""What a web server answers to the probes of Kubernetes (rule 11.8, decision 0064)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from starlette.testclient import TestClient

from databuild_dagster.bindings.registry.instance import UnsupportedInstance
from databuild_dagster.data.ownership import take_over
from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.health import pages as module
from databuild_dagster.store.store import open_store
from databuild_dagster.web.application import make_application
from databuild_dagster.web.state import State
from tests.support.catalog import dataset
from tests.support.lost_events import lose_last_event
from tests.support.postgres import PostgresServer
from tests.support.world import World


@pytest.fixture(autouse=True)
def on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look has more time here than a probe of Kubernetes gives it."""
    for name in ("READY_SECONDS", "LIVE_SECONDS"):
        monkeypatch.setattr(module, name, 250.0)


@contextmanager
def pages(open_engine: Callable[[], Engine]) -> Iterator[TestClient]:
    """The application over a build state. Its probes ask for one look each."""
    with TestClient(make_application(State(open_engine, None)), raise_server_exceptions=False) as client:
        yield client


def statuses(client: TestClient) -> dict[str, int]:
    return {path: client.get(path).status_code for path in ("/health/live", "/health/ready")}


def test_a_web_server_over_a_log_is_live_and_ready(world: World) -> None:
    world.want("a")

    with pages(lambda: world.engine) as client:
        live, ready = client.get("/health/live"), client.get("/health/ready")
        head = client.head("/health/ready")
        posted = client.post("/health/ready")

    assert (live.status_code, live.json()["status"]) == (200, "ok")
    assert (ready.status_code, ready.json()["status"]) == (200, "warning"), "nobody builds what is wanted"
    assert (head.status_code, head.content) == (200, b"")
    assert ready.headers["cache-control"] == "no-store"
    assert posted.status_code == 405


def test_a_log_that_went_back_is_live_until_a_person_accepts_it(shared_url: str) -> None:
    """A restart would forget what was seen; after a take-over it is what is needed."""
    with closing(World([dataset("a")], url=shared_url)) as world, pages(lambda: world.engine) as client:
        world.want("a")
        assert statuses(client) == {"/health/live": 200, "/health/ready": 200}

        lose_last_event(world)
        assert statuses(client) == {"/health/live": 200, "/health/ready": 503}

        with closing(open_store(shared_url)) as other:
            take_over(other, [])
        assert statuses(client) == {"/health/live": 503, "/health/ready": 503}


def test_an_answer_comes_within_a_bound_and_a_silent_log_keeps_one_thread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("READY_SECONDS", "LIVE_SECONDS"):
        monkeypatch.setattr(module, name, 0.1)
    silent, n_asked = threading.Event(), 0

    def open_engine() -> Engine:
        nonlocal n_asked
        n_asked += 1
        silent.wait(250)
        return world.engine

    with pages(open_engine) as client:
        answers = [client.get("/health/ready") for _ in range(3)]
        assert client.get("/health/live").status_code == 200
        assert n_asked == 1
        silent.set()
        monkeypatch.setattr(module, "READY_SECONDS", 250.0)
        assert client.get("/health/ready").status_code == 200

    assert [answer.status_code for answer in answers] == [503] * 3
    assert "has not answered within 0.1 s" in answers[0].json()["checks"][0]["says"]


@pytest.mark.parametrize("error", [UnsupportedInstance("at db:5432"), OSError("db:5432: no route")])
def test_what_cannot_be_opened_is_said_without_its_place(error: Exception) -> None:
    def open_engine() -> Engine:
        raise error

    with pages(open_engine) as client:
        ready = client.get("/health/ready")

    assert ready.status_code == 503
    assert "cannot be" in ready.json()["checks"][0]["says"]
    assert "5432" not in ready.text


@pytest.mark.long("a PostgreSQL server of its own, which is stopped")
def test_a_stopped_database_takes_the_web_server_out_of_service_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    server = PostgresServer()
    try:
        url = f"{server.fresh_url()}&connect_timeout=2"
        with closing(World([dataset("a")], url=url)) as world, pages(lambda: world.engine) as client:
            assert statuses(client) == {"/health/live": 200, "/health/ready": 200}

            server.shut_down(signal.SIGINT)
            with monkeypatch.context() as patch:
                for name in ("READY_SECONDS", "LIVE_SECONDS"):
                    patch.setattr(module, name, 0.5)
                assert statuses(client) == {"/health/live": 200, "/health/ready": 503}
                assert os.fspath(server.folder) not in client.get("/health/ready").text

            server.start_again()
            assert statuses(client) == {"/health/live": 200, "/health/ready": 200}
    finally:
        server.stop()
