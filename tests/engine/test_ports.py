"""A tick survives each call of each port, whether it raises or hangs (rule 11.5).

The walk reads the protocols, so that a new method of a port is in it. A port that never answers has no bound in the engine:
Dagster stops waiting for a sensor after a minute, and the next tick runs beside the one that hangs. `test_engine_catalog`
walks over the commands.
"""

from __future__ import annotations

import threading

import pytest

from databuild_dagster.engine.ports import Foreign, Launcher, Remains
from databuild_dagster.model.datasets import Catalog, DatasetKind
from databuild_dagster.model.states import InstanceState
from tests.support.catalog import dataset
from tests.support.orchestrator import Orchestrator
from tests.support.ports import HandForeign, HandLauncher

BUILDING = InstanceState.BUILDING
KEYS = ("1", "2")
#: `judge.gone` is a function of `engine.holders`, which reads the processes of the machine.
GONE = "gone"
#: The methods that only other callers than a tick use: readers, and the registration of other partitions.
NOT_OF_THE_TICK = {"follows_key", "left_out", "is_moved"}
CALLS = sorted(
    {name for port in (Launcher, Foreign, Remains, Catalog) for name in vars(port) if not name.startswith("_")}
    - NOT_OF_THE_TICK
    | {GONE}
)


class NothingFinished:
    def finished(self, job_runs):
        return []


class Troubled:
    """Wraps a port: one of its methods does something else, and each that is called is remembered."""

    def __init__(self, port, method, trouble, called):
        self._port, self._method, self._trouble, self._called = port, method, trouble, called

    def __getattr__(self, name):
        answer = getattr(self._port, name)
        if not callable(answer):
            return answer

        def call(*arguments):
            self._called.add(name)
            if name == self._method:
                self._trouble()
            return answer(*arguments)

        return call


def busy_world(make_world):
    """A tick here uses every method of every port: there are lost, lost at once, foreign, waiting and missing refs."""
    world = make_world(
        dataset("source", kind=DatasetKind.SOURCE),
        dataset("reader", "source"),
        dataset("lost"),
        dataset("again", keys=KEYS),
        dataset("published"),
        dataset("subscriber", subscribe=["published"]),
        dataset("input"),
        dataset("misses", "input"),
        dataset("a", keys=KEYS),
        dataset("b"),
    )
    Orchestrator(world).tick()
    world.succeed("published")
    world.start("lost")
    world.claim("lost", dagster_run_id="waits")
    world.want("again@1", "again@2")
    world.buffer("again@1", "again@2")
    world.want("reader", "misses", "a@1", "a@2", "b")
    return world


def an_orchestrator(world, method="", trouble=lambda: None, called=None):
    """Of the process that buffered `again`; one method of its ports does something else."""
    called = set() if called is None else called

    def wrapped(port):
        return Troubled(port, method, trouble, called)

    def gone(holder):
        called.add(GONE)
        if method == GONE:
            trouble()
        return holder == "somewhere"

    world.engine.catalog = wrapped(world.catalog)
    return Orchestrator(
        world,
        launcher=wrapped(HandLauncher()),
        foreign=wrapped(HandForeign()),
        remains=wrapped(NothingFinished()),
        gone=gone,
    )


def raise_it():
    raise ConnectionError("Dagster is away")


def test_the_walk_is_complete(make_world):
    called = set()

    an_orchestrator(busy_world(make_world), called=called).tick()

    assert called == set(CALLS)


@pytest.mark.parametrize("method", CALLS)
def test_no_port_that_raises_ends_a_tick(make_world, method):
    """Rule 11.5: the tick reports it, and the next one does what was left undone."""
    world = busy_world(make_world)

    report = an_orchestrator(world, method, raise_it).tick()

    assert set(report.set_aside.values()) == {"ConnectionError: Dagster is away"}
    an_orchestrator(world).tick()
    assert an_orchestrator(world).tick().set_aside == {}
    assert world.states("a@1", "a@2", "b", "input") == [BUILDING] * 4
    assert world.broken() == []


@pytest.mark.parametrize("method", CALLS)
def test_the_next_tick_runs_beside_one_whose_port_hangs(make_world, method):
    """Rules 11.1, 11.5: no port is called within a transaction, so the tick that hangs holds no lock."""
    world = busy_world(make_world)
    hangs, ends = threading.Event(), threading.Event()

    def hang():
        hangs.set()
        assert ends.wait(250)

    stuck = an_orchestrator(world, method, hang)
    thread = threading.Thread(target=stuck.tick)
    thread.start()
    try:
        assert hangs.wait(250)
        world.engine = world.process()

        an_orchestrator(world).tick()

        assert world.states("a@1", "a@2", "b", "input") == [BUILDING] * 4
    finally:
        ends.set()
        thread.join(250)
    assert not thread.is_alive()
    assert world.broken() == []
