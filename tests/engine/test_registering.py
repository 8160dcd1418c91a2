"""Two versions of a location's code side by side: the later one is registered, and no want and no lot is lost (rule 5.7)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine import orchestrator_notes
from databuild_dagster.engine.orchestrator_notes import MIN_SILENCE_SECONDS, RESTART_SECONDS, note_code, note_process
from databuild_dagster.engine.registering import register
from databuild_dagster.engine.tick import tick
from databuild_dagster.engine.tick_pass import Pass
from databuild_dagster.model.states import InstanceState
from tests.support.catalog import HERE, dataset
from tests.support.dead_process import dead_process
from tests.support.orchestrator import Orchestrator

EVERY = 5.0
HOURS = [f"h{hour}" for hour in range(6)]
OLD = (dataset("src", keys=HOURS), dataset("report", "src", keys=HOURS))
#: `lot` is new, and `report` has another code version.
NEW = (
    OLD[0],
    dataset("report", "src", keys=HOURS, code_version="2"),
    dataset("lot", "src", keys=HOURS, subscribe=["src"]),
)


class Version:
    """A process that has one version of the code, and ticks as the sensor does."""

    def __init__(self, world, specs, name):
        self.world, self.specs, self.engine = world, specs, world.process()
        self.here = Orchestrator(world, name=name)

    def tick(self):
        """Tick, and build what was launched; the registration."""
        registered = register(self.engine, HERE, self.specs, is_asked=False)
        note_code(self.engine, HERE, registered.fingerprint)
        tick(
            Pass(
                self.engine,
                location=HERE,
                launcher=self.here.launcher,
                foreign=self.here.foreign,
                judge=self.here.judge,
                owner=self.here.name,
                interval_seconds=EVERY,
                datasets=registered.plannable,
                head=registered.head,
            )
        )
        own = {spec.asset: spec for spec in self.specs}
        for order in self.here.launcher.orders:
            for asset in order.assets:
                assert own[asset] == self.world.queries.datasets.get(asset), f"{self.here.name} launched {asset}"
            self.here.start(order.launch_id)
            for run in self.world.queries.job_runs.of_launch(order.launch_id):
                self.world.succeed(*run.refs)
        self.here.launcher.orders.clear()
        return registered


@pytest.fixture
def new_world(make_world):
    return make_world(*NEW)


def n_registrations(world):
    return world.log().count("DatasetRegistered")


@pytest.fixture
def both(new_world):
    """The old code, and then the new one, each ticking by itself."""
    old, new = Version(new_world, OLD, "old"), Version(new_world, NEW, "new")
    old.tick()
    new_world.clock.turn(EVERY)
    new.tick()
    return old, new


def test_two_versions_that_tick_in_turns_for_an_hour_record_nothing_and_lose_nothing(new_world, both):
    """Rules 5.7, 10.5: the wants of both and the lots of the arc."""
    old, new = both
    before = n_registrations(new_world)
    for n in range(720):
        new_world.clock.turn(EVERY)
        if n % 120 == 10:
            new_world.want(f"src@{HOURS[n // 120]}", f"report@{HOURS[n // 120]}")
        (old if n % 2 else new).tick()

    refs = [f"{asset}@{hour}" for asset in ("src", "report", "lot") for hour in HOURS]
    assert new_world.states(*refs) == [InstanceState.LIVE] * len(refs)
    assert n_registrations(new_world) == before
    assert new_world.check() == []


def test_the_earlier_version_leaves_the_assets_that_differ_and_builds_the_others(new_world, both):
    """Rule 5.7"""
    old, _ = both
    new_world.want("src@h1", "report@h1")

    assert old.tick().left == ("lot", "report")

    assert new_world.states("src@h1", "report@h1") == [InstanceState.LIVE, None]


def test_the_earlier_version_is_registered_once_the_other_has_ended(new_world, both):
    """Rule 5.7: a deploy that went back."""
    old, _ = both
    before = n_registrations(new_world)

    new_world.clock.turn(MIN_SILENCE_SECONDS)
    assert old.tick().left == ("lot", "report")
    new_world.clock.turn(1)
    assert old.tick().left == ()

    assert n_registrations(new_world) == before + 1
    assert sorted(spec.asset for spec in new_world.queries.datasets.all().values()) == ["report", "src"]


def test_a_version_noted_by_a_clock_that_ran_ahead_keeps_no_other_one_out(new_world, both):
    """Rule 5.7: the other version ended in that time, and the clock is right again."""
    old, new = both

    new_world.clock.turn(4 * 3600.0)
    new.tick()
    new_world.clock.turn(-4 * 3600.0)

    assert old.tick().left == ()


def test_a_step_registers_what_it_builds_beside_an_orchestrator_and_removes_nothing(new_world, both):
    """Rule 5.7: a Dagster run of the earlier version."""
    old, _ = both

    shared = register(old.engine, HERE, OLD, building=["src"], is_asked=False)
    needed = register(old.engine, HERE, OLD, building=["report"], is_asked=False)

    assert (shared.left, needed.left) == (("lot", "report"), ("lot",))
    assert new_world.queries.datasets.get("report") == OLD[1]
    assert new_world.queries.datasets.get("lot") == NEW[2]


def test_a_command_beside_an_orchestrator_adds_assets_and_says_what_it_leaves(new_world, both):
    """Rule 5.7: `build` on a laptop with a branch."""
    old, new = both
    added = dataset("added", keys=HOURS)

    asked = register(old.engine, HERE, (*OLD, added))

    assert asked.left_in_words(HERE).startswith(
        "This code of location 'here' lacks lot and changes report; the registered ones stay, because an orchestrator"
    )
    assert {spec.asset: spec for spec in new_world.queries.datasets.all().values()} == {
        spec.asset: spec for spec in (*NEW, added)
    }
    assert {spec.asset for spec in asked.plannable.values()} == {"src", "added"}
    note_code(old.engine, HERE, asked.fingerprint)
    assert new.tick().left == ("added",)


def test_a_command_is_the_registrar_when_no_orchestrator_is_at_work(new_world, both):
    """Rule 5.7: one that may be restarting is at work."""
    old, _ = both

    new_world.clock.turn(RESTART_SECONDS)
    beside = register(old.engine, HERE, OLD)
    new_world.clock.turn(1.0)
    alone = register(old.engine, HERE, OLD)

    assert (beside.left, alone.left) == (("lot", "report"), ())
    assert alone.left_in_words(HERE) == ""
    assert [spec.asset for spec in alone.datasets.values()] == ["src", "report"]


def test_an_orchestrator_whose_process_is_gone_is_not_at_work(new_world, both, monkeypatch):
    """Rule 5.7: `databuild dev` was stopped a moment ago on this machine."""
    old, new = both
    monkeypatch.setattr(orchestrator_notes, "this_process", dead_process)
    note_process(new.engine, HERE, "fingerprint", "code", is_orchestrator=True)

    assert register(old.engine, HERE, OLD).left == ()
