"""Whether an orchestrator ticks, by the notes that its ticks leave (rule 11.1)."""

from databuild_dagster.engine.judge import LEASE_SECONDS
from databuild_dagster.engine.orchestrator_notes import absence_of, note_tick
from databuild_dagster.engine.tick_pass import TickLimits

HERE = "shop"
INTERVAL_SECONDS = 30.0


def test_an_orchestrator_that_never_ticked_is_absent(world):
    absence = absence_of(world.engine, HERE)

    assert absence.last_tick_at is None
    assert absence.sentence == "no orchestrator of location 'shop' has ticked here: `databuild dev` runs one"


def test_an_orchestrator_may_be_late_by_a_lease(world):
    note_tick(world.engine, HERE, TickLimits(), INTERVAL_SECONDS)

    world.clock.turn(INTERVAL_SECONDS + LEASE_SECONDS)

    assert absence_of(world.engine, HERE) is None


def test_an_orchestrator_that_is_later_than_a_lease_is_absent(world):
    begun = world.clock.now
    note_tick(world.engine, HERE, TickLimits(), INTERVAL_SECONDS)

    world.clock.turn(INTERVAL_SECONDS + LEASE_SECONDS + 1)

    absence = absence_of(world.engine, HERE)
    assert absence.last_tick_at == begun
    assert "it is not running (`databuild dev` runs it), or busy with a launch of its own" in absence.sentence
