"""What is said of a deployment that is well, and of one that is not (rule 11.8)."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing

import pytest

from databuild_dagster.engine.orchestrator_notes import RESTART_SECONDS, note_tick
from databuild_dagster.engine.outages import begin_outage, hold
from databuild_dagster.engine.tick_pass import TickLimits
from databuild_dagster.features.health.checks import NAMES, Finding, Status, failed, look, worst
from databuild_dagster.model.surroundings import Surrounding
from databuild_dagster.store.errors import LogWentBack, NewerStore, StoreAway, StoreReplaced
from tests.support.catalog import HERE, dataset
from tests.support.lost_events import lose_last_event
from tests.support.world import World


def findings(world: World, *only: str) -> dict[str, Finding]:
    return {finding.check: finding for finding in look(world.engine, only)}


def orchestrator_ticks(world: World) -> None:
    note_tick(world.engine, HERE, TickLimits(), 5.0)


def other_code_on(world: World, host: str) -> None:
    """A note as `note_process` leaves it, of a process on another host."""
    noted = json.dumps([f"{host}/boot/namespace/1/0", "9.9.9", f"code of {host}", True])
    world.engine.heartbeats.beat([f"process with code of {json.dumps(HERE)}: {noted}"], world.clock.now)


def nothing(world: World) -> None:
    orchestrator_ticks(world)


def wants_without_an_orchestrator(world: World) -> None:
    world.want("a")


def no_wants_and_no_orchestrator(world: World) -> None:
    pass


def other_versions(world: World) -> None:
    other_code_on(world, "w1")
    other_code_on(world, "w2")
    orchestrator_ticks(world)


def other_versions_before_an_update(world: World) -> None:
    other_code_on(world, "w1")
    world.clock.turn(RESTART_SECONDS + 1)
    other_code_on(world, "w2")
    orchestrator_ticks(world)


def outage(world: World) -> None:
    orchestrator_ticks(world)
    begin_outage(world.engine, HERE, Surrounding.SPARK, "no answer", "tester")


def held(world: World) -> None:
    orchestrator_ticks(world)
    hold(world.engine, HERE, Surrounding.SPARK, "a new cluster", "tester")


@pytest.mark.parametrize(
    ("plant", "check", "status", "words"),
    [
        (nothing, "orchestrators", Status.OK, f"The orchestrator of {HERE} ticks."),
        (nothing, "versions", Status.OK, "All hosts have the same versions."),
        (nothing, "outages", Status.OK, "Nothing is out of reach."),
        (no_wants_and_no_orchestrator, "orchestrators", Status.OK, "and no want is open there."),
        (wants_without_an_orchestrator, "orchestrators", Status.WARNING, "Wants are open, and no orchestrator of"),
        (other_versions, "versions", Status.WARNING, "the orchestrator on w2: databuild_dagster 9.9.9, code code of"),
        (other_versions_before_an_update, "versions", Status.OK, "All hosts have the same versions."),
        (outage, "outages", Status.WARNING, "no answer"),
        (held, "outages", Status.OK, "a new cluster"),
    ],
)
def test_each_check_says_what_is_there(
    world: World, plant: Callable[[World], None], check: str, status: Status, words: str
) -> None:
    plant(world)

    found = findings(world)

    assert list(found) == list(NAMES)
    assert (found[check].status, words in found[check].says) == (status, True), found[check]
    assert {finding.status for name, finding in found.items() if name != check} == {Status.OK}
    assert worst(found.values()) is status


def test_a_check_that_fails_leaves_the_others_unknown(shared_url: str) -> None:
    with closing(World([dataset("a")], url=shared_url)) as world:
        world.want("a")
        lose_last_event(world)
        with pytest.raises(LogWentBack) as went_back:
            findings(world)

    found = failed(went_back.value, "It went back.")

    assert found[0] == Finding("history", Status.FAILED, "It went back.")
    assert [finding.check for finding in found if finding.status is Status.UNKNOWN] == [*NAMES[:2], *NAMES[3:]]
    assert worst(found) is Status.FAILED


def test_the_check_that_fails_is_that_of_the_error() -> None:
    errors = (StoreAway(url="x", why="y"), NewerStore(url="x", found="1", known="0"), StoreReplaced(url="x"))

    assert [failed(error, "")[0].check for error in errors] == ["log", "schema", "history"]


def test_what_is_not_chosen_is_left_out(world: World) -> None:
    world.want("a")

    assert list(findings(world, "log", "outages")) == ["log", "outages"]
