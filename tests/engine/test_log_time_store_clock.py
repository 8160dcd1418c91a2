"""The clock that several hosts share (decision 0061)."""

from __future__ import annotations

import logging
import time

import pytest

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.log_time import AGAIN_SECONDS, TOLERATED_SECONDS, StoreClock
from databuild_dagster.store.backends.heartbeats import Heartbeats
from databuild_dagster.store.errors import StoreSilent
from tests.support.clock import NOON, Clock


class Server(Heartbeats):
    """Heartbeats on a server with a clock of its own."""

    on_server = True

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.n_readings = 0
        self.is_away = False

    def server_time(self) -> float:
        self.n_readings += 1
        if self.is_away:
            raise StoreSilent(url="a server", why="no answer")
        return self.clock()


@pytest.fixture
def server():
    return Server(Clock(NOON))


def clock_of(server, machine):
    return StoreClock(server, "a server", wall=machine, steady=machine.steady)


@pytest.mark.parametrize("wrong_by", [-600.0, 0.5, 600.0])
def test_a_host_with_a_wrong_clock_has_the_time_of_the_server(server, wrong_by):
    machine = Clock(NOON + wrong_by)
    clock = clock_of(server, machine)

    for passed in (0.0, 100.0, AGAIN_SECONDS + 1):
        for one in (machine, server.clock):
            one.turn(passed)
        assert clock() == pytest.approx(server.clock(), abs=TOLERATED_SECONDS)

    assert server.n_readings == 2, "not for each command"


def test_the_server_is_read_again_when_the_clock_was_set(server):
    machine = Clock(NOON + 600)
    clock = clock_of(server, machine)
    clock()
    machine.set(-600)

    assert clock() == server.clock()


def test_a_server_that_does_not_answer_leaves_the_last_known_difference(server):
    machine = Clock(NOON + 600)
    clock = clock_of(server, machine)
    clock()
    server.is_away = True
    machine.turn(AGAIN_SECONDS + 1)

    assert clock() == NOON + AGAIN_SECONDS + 1


def test_a_host_with_a_wrong_clock_is_told_once(server, caplog, monkeypatch):
    monkeypatch.setattr("databuild_dagster.engine.log_time._warned_of_clock", set())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            clock_of(server, Clock(NOON + 600))()

    (said,) = [record.getMessage() for record in caplog.records]
    assert (
        "This machine's clock shows 2023-11-14T22:23:20Z, and that of the database server 2023-11-14T22:13:20Z" in said
    )


def test_an_engine_has_the_time_of_its_server_and_of_this_machine_for_a_file(world):
    engine = Engine(world.store, world.catalog)

    assert engine.clock() == pytest.approx(time.time(), abs=60)
    assert engine.heartbeats.on_server == (world.store.database.dialect == "postgresql")
