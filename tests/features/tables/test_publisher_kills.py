"""A publisher that is killed at any moment, or that is not alone, repeats nothing, leaves out nothing, and is never ahead (rule 10.10)."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.features.tables.catalogs import in_python, settings_of
from tests.support.published import DAYS, DELTA, ICEBERG, PublishedWorld
from tests.support.publisher_processes import Publishers, publishers
from tests.support.table_readers import newest_snapshot, rows_as_of, rows_by_reader, snapshots

#: More calls than a publication makes.
MOST_CALLS = 400
#: Publications that are killed at a random moment, and rounds of two publishers at once.
ROUNDS, PAIRS = 10, 5
KILLED = -signal.SIGKILL
SEED = 20

pytestmark = pytest.mark.long("publishers are killed, and race, as processes")


@pytest.fixture(params=[msgspec.structs.replace(ICEBERG, catalog="databuild"), DELTA], ids=["iceberg", "delta"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> PublishedWorld:
    return PublishedWorld(tmp_path / "home", request.param)


@pytest.fixture
def server(world: PublishedWorld) -> Iterator[Publishers]:
    """Publishers whose calls are seen."""
    with publishers(world.home, **settings_of("databuild", **in_python(world.home))) as server:
        yield server


def move(world: PublishedWorld, number: int) -> None:
    """One partition is replaced, and another one appears or is replaced, too."""
    for day in (DAYS[0], DAYS[1 + number % 3]):
        if world.state(world.ref(day)) is not None:
            world.taint(world.ref(day))
        world.build(day, {"x": [number]})


def assert_right(world: PublishedWorld, *, is_up_to_date: bool) -> None:
    """No snapshot is there twice or ahead of the log, and the newest one has the rows as of its seq."""
    found = snapshots(world)
    assert sorted(found.values()) == sorted(set(found.values()))
    newest = newest_snapshot(world)
    assert max(found.values()) == found[newest] <= world.seq
    seq = world.seq if is_up_to_date else found[newest]
    for reader, rows in rows_by_reader(world, newest).items():
        assert rows == rows_as_of(world, seq), reader


def one_snapshot(world: PublishedWorld, server: Publishers) -> float:
    """The seconds that it took."""
    move(world, 0)
    began = time.monotonic()
    assert server.run({}) == [0]
    return time.monotonic() - began


@pytest.mark.extended
def test_a_publisher_killed_at_any_call_is_followed_by_a_right_one(world: PublishedWorld, server: Publishers) -> None:
    one_snapshot(world, server)
    n_killed = 0
    for number in range(1, MOST_CALLS):
        move(world, number)

        (code,) = server.run({"at_call": number})

        assert code in (0, KILLED)
        if code == 0:
            break
        n_killed += 1
        assert_right(world, is_up_to_date=False)
        assert server.run({}) == [0]
        assert_right(world, is_up_to_date=True)

    assert code == 0, "each call was the last one once"
    assert n_killed > 5
    for snapshot, seq in snapshots(world).items():
        for reader, rows in rows_by_reader(world, snapshot).items():
            assert rows == rows_as_of(world, seq), reader


def test_publishers_that_are_killed_at_random_moments_catch_up(world: PublishedWorld, server: Publishers) -> None:
    chance = random.Random(SEED)
    one_snapshot(world, server)
    # The first one takes longer than those that follow.
    seconds = one_snapshot(world, server)
    codes = []
    for number in range(1, ROUNDS):
        move(world, number)
        codes += server.run({"after_seconds": chance.uniform(0, seconds)})
        # The one that gave the bound may have been slow or fast.
        seconds *= 0.5 if codes[-1] == 0 else 1.5
        assert_right(world, is_up_to_date=False)
    assert server.run({}) == [0]

    assert set(codes) <= {0, KILLED}
    assert KILLED in codes
    assert_right(world, is_up_to_date=True)


def test_of_two_publishers_as_processes_one_wins_each_time(world: PublishedWorld, server: Publishers) -> None:
    one_snapshot(world, server)
    for number in range(1, PAIRS):
        move(world, number)
        assert server.run({}, {}) == [0, 0]

    assert len(snapshots(world)) == PAIRS
    assert_right(world, is_up_to_date=True)
