"""A Dagster run that is gone waits for nothing, and the ledger says so without its help (rule 8.3)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine import tick as tick_module
from databuild_dagster.engine.ports import DagsterRunState, DagsterRunStatus
from tests.support.catalog import dataset
from tests.support.orchestrator import Orchestrator
from tests.support.ports import HandLauncher

RUNNING, FAILED, CANCELED = DagsterRunStatus.RUNNING, DagsterRunStatus.FAILED, DagsterRunStatus.CANCELED


class WatchedLauncher(HandLauncher):
    """Remembers which Dagster runs it was asked about."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def dagster_runs(self, launches):
        self.asked.append(sorted(launches))
        return super().dagster_runs(launches)

    def has(self, run_id, status, holder=None):
        self.runs[run_id] = DagsterRunState(run_id, status, holder)


@pytest.fixture
def world(make_world):
    return make_world(*(dataset(name) for name in "abc"))


@pytest.fixture
def here(world):
    return Orchestrator(world, launcher=WatchedLauncher())


def ledger(world, requester):
    """Ref to the outcome, and why."""
    return {entry.ref: (entry.outcome.value, entry.reason) for entry in world.engine.ledger.of_requester(requester)}


def begin(world, here, ref):
    """A Dagster run of another user builds it, as far as Dagster knows."""
    world.claim(ref, dagster_run_id=f"builder of {ref}")
    launch = world.queries.launches.open()[-1]
    here.launcher.has(launch.launch_id, RUNNING)


@pytest.mark.parametrize("status", [FAILED, CANCELED, DagsterRunStatus.SUCCEEDED])
def test_a_dagster_run_that_has_ended_while_it_waited_waits_no_longer(world, here, status):
    begin(world, here, "a")
    world.claim("a", dagster_run_id="R")
    here.launcher.has("R", RUNNING)
    assert here.tick().given_up == []
    assert ledger(world, "R") == {"a": ("waiting", "")}

    here.launcher.has("R", status)
    report = here.tick()

    assert report.given_up == ["R"]
    assert not report.idle
    assert ledger(world, "R") == {"a": ("given up", f"its Dagster run ended: {status.value}")}
    assert here.tick().idle


def test_one_that_was_deleted_or_whose_process_is_gone_has_ended_too(world):
    here = Orchestrator(world, launcher=WatchedLauncher(), gone=lambda holder: holder == "a dead process")
    begin(world, here, "a")
    for run_id in ("deleted", "dead", "alive"):
        world.claim("a", dagster_run_id=run_id)
    here.launcher.has("dead", RUNNING, holder="a dead process")
    here.launcher.has("alive", RUNNING, holder="a living process")

    here.tick()

    assert ledger(world, "deleted") == {"a": ("given up", "its Dagster run is not there any more")}
    assert ledger(world, "dead") == {"a": ("given up", "the process of its Dagster run is gone")}
    assert ledger(world, "alive") == {"a": ("waiting", "")}


def test_a_process_that_begins_to_tick_finds_who_waited_before(world, here):
    begin(world, here, "a")
    world.claim("a", dagster_run_id="R")
    here.launcher.has("R", FAILED)
    world.engine.memory.forget()

    assert here.tick().given_up == ["R"]


def test_wants_cost_no_question_and_no_waiter_costs_none(world, here):
    """Rule 11.3: an idle tick asks Dagster for nothing."""
    begin(world, here, "a")
    request = world.want_view(world.want("a")).request_id
    here.tick()
    assert ledger(world, request) == {"a": ("waiting", "")}
    assert all(request not in asked for asked in here.launcher.asked)

    world.claim("a", dagster_run_id="R")
    world.succeed("a")
    here.launcher.asked.clear()

    assert here.tick().idle
    assert here.launcher.asked == []


def test_a_tick_asks_about_a_bounded_number_and_the_next_about_the_others(world, here, monkeypatch):
    monkeypatch.setattr(tick_module, "MAX_DAGSTER_RUNS", 2)
    begin(world, here, "a")
    for number in range(5):
        world.claim("a", dagster_run_id=f"R{number}")
        here.launcher.has(f"R{number}", FAILED if number == 4 else RUNNING)

    given_up = [run_id for _ in range(3) for run_id in here.tick().given_up]

    assert given_up == ["R4"]


def test_what_it_had_taken_over_is_built_for_it_as_long_as_its_want_is_open(world, here):
    """Rules 8.1, 8.3: it joined a build, claimed the ref when that was given up, and was killed as it built."""
    begin(world, here, "a")
    world.claim("a", dagster_run_id="R")
    world.cancel("a", keep_wants=True)
    world.claim("a", dagster_run_id="R")
    world.lose("a")
    here.launcher.has("R", FAILED)
    assert here.tick().given_up == []
    assert ledger(world, "R") == {"a": ("waiting", "")}

    world.cancel("a")
    assert ledger(world, "R") == {"a": ("given up", "its want ended")}

    assert here.tick().given_up == ["R"]
    assert ledger(world, "R") == {"a": ("given up", "its Dagster run ended: failed")}
