"""A migration waits for the processes that work on the store (rule 3.4)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.judge import LEASE_SECONDS
from databuild_dagster.engine.migrating import OthersAtWork, migrate
from databuild_dagster.engine.orchestrator_notes import note_tick
from databuild_dagster.engine.tick_pass import TickLimits
from databuild_dagster.store.format import PROJECTION_VERSION
from databuild_dagster.store.store import Store
from tests.support.catalog import dataset


@pytest.fixture
def older(make_world, tmp_path):
    """A world whose tables are an older version's."""
    world = make_world(dataset("a"), url=f"sqlite:///{tmp_path}/build.db")
    world.start("a")
    world.set_meta("projection_version", PROJECTION_VERSION - 1)
    yield world
    world.set_meta("projection_version", PROJECTION_VERSION)


def opened(world):
    return Store(world.store.url, check_projections=False)


def test_a_migration_is_refused_while_a_launch_sends_heartbeats(older):
    """Rule 3.4"""
    (launch,) = older.queries.launches.open()
    older.engine.beat([launch.launch_id])
    now = older.clock.now + LEASE_SECONDS - 1

    with pytest.raises(OthersAtWork, match=f"launch {launch.launch_id} .*sent a heartbeat 29 s ago"):
        migrate(opened(older), now)

    assert migrate(opened(older), now, force=True).n_events == older.seq


def test_a_migration_is_refused_while_an_orchestrator_ticks(older):
    note_tick(older.engine, "shop", TickLimits(), interval_seconds=5.0)

    with pytest.raises(OthersAtWork, match="the orchestrator of shop sent a heartbeat 0 s ago"):
        migrate(opened(older), older.clock.now)


def test_a_migration_goes_ahead_a_lease_after_the_last_heartbeat(older):
    """Rule 3.4: the note of a next tick lies in the future, and is no sign of life."""
    note_tick(older.engine, "shop", TickLimits(), interval_seconds=600.0)

    done = migrate(opened(older), older.clock.now + LEASE_SECONDS + 1)

    assert done.n_events == older.seq


def test_a_store_of_this_version_is_up_to_date_while_a_process_works_on_it(make_world, tmp_path):
    world = make_world(dataset("a"), url=f"sqlite:///{tmp_path}/build.db")
    note_tick(world.engine, "shop", TickLimits(), interval_seconds=5.0)

    assert migrate(world.store, world.clock.now).n_events is None
