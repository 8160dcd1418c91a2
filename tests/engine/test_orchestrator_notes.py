"""Whether an orchestrator ticks, by the notes that its ticks leave (rule 11.4)."""

import pytest

from databuild_dagster.engine.orchestrator_notes import (
    MIN_SILENCE_SECONDS,
    absence_of,
    absences_of,
    last_tick,
    note_tick,
)
from databuild_dagster.engine.tick_pass import TickLimits
from tests.support.catalog import dataset

HERE = "shop"


@pytest.mark.parametrize(("interval_seconds", "silence"), [(5.0, MIN_SILENCE_SECONDS), (300.0, 600.0)])
def test_an_orchestrator_is_absent_after_two_intervals_and_a_minute(world, interval_seconds, silence):
    begun = world.clock.now
    note_tick(world.engine, HERE, TickLimits(), interval_seconds)

    world.clock.turn(silence)
    assert absence_of(world.engine, HERE) is None
    world.clock.turn(1)

    assert last_tick(world.engine, HERE).at == begun
    assert "it is not running (`databuild dev` runs it), or busy" in absence_of(world.engine, HERE).sentence


def test_absences_are_those_of_the_locations_that_build_the_assets(make_world):
    world = make_world(dataset("sales"), dataset("report"), dataset("else", location="there"))
    note_tick(world.engine, "there", TickLimits(), 5.0)

    assert [absence.location for absence in absences_of(world.engine, ["sales", "report", "else"])] == ["here"]
    assert absences_of(world.engine, ["else"]) == []
