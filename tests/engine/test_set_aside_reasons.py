"""Reasons to set aside are facts when they change; tries and pauses are outside the log (rule 11.7)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.set_aside import MAX_PAUSE_SECONDS, pause_after, record_files
from databuild_dagster.engine.why.explain import explain
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.set_aside import Subject
from databuild_dagster.model.states import InstanceState
from tests.support.catalog import HERE, dataset
from tests.support.orchestrator import Orchestrator
from tests.support.ports import HandLauncher


class Raising:
    """A mapping that has no answer about an asset, and counts the questions."""

    def __init__(self, monkeypatch, catalog, asset, question="inputs"):
        self.n_asked = 0
        self.why = "the zones do not match"
        answer = getattr(catalog, question)

        def raising(spec, *arguments):
            if spec.asset != asset or self.why is None:
                return answer(spec, *arguments)
            self.n_asked += 1
            raise ValueError(self.why)

        monkeypatch.setattr(catalog, question, raising)


@pytest.fixture
def world(make_world):
    return make_world(dataset("bad"), dataset("good"))


def recorded(world):
    return [(aside.kind, aside.name, aside.reason) for aside in world.queries.planning.set_aside()]


def test_a_reason_is_recorded_once_and_its_end_once(world, monkeypatch):
    here, mapping = Orchestrator(world), Raising(monkeypatch, world.catalog, "bad")
    world.want("bad")
    here.tick()
    before = world.seq
    here.tick_for(300)
    assert (recorded(world), world.seq) == ([BAD], before)

    mapping.why = None
    here.tick_for(MAX_PAUSE_SECONDS)

    assert recorded(world) == []
    assert world.log(before).count("SetAsideChanged") == 1
    assert world.state("bad") is InstanceState.BUILDING
    assert world.check() == []


def test_another_reason_is_an_event_and_another_address_in_it_is_not(world, monkeypatch):
    here, mapping = Orchestrator(world), Raising(monkeypatch, world.catalog, "bad")
    world.want("bad")
    reasons = [
        "no zone in <Mapping object at 0x7f3a5c2b1d30>",
        "no zone in <Mapping object at 0x7f11111111ff>",
        "no zone at 17:04:31 for 2b1d3055-aaaa-4c1d-9e3f-5c2b1d305c2b",
        "no zone at 17:04:36 for 5c2b1d30-bbbb-4c1d-9e3f-5c2b1d305c2b",
    ]

    for mapping.why in reasons:
        here.tick_for(MAX_PAUSE_SECONDS + 5)

    assert world.log().count("SetAsideChanged") == 2
    assert recorded(world) == [(Subject.REF, "bad", f"ValueError: {reasons[2]}")]


BAD = (Subject.REF, "bad", "ValueError: the zones do not match")


def test_what_raises_again_and_again_rests_for_a_growing_time(world, monkeypatch):
    here, mapping = Orchestrator(world), Raising(monkeypatch, world.catalog, "bad")
    world.want("bad", "good")

    reports = [here.tick_for(5) for _ in range(120)]

    assert 10 < mapping.n_asked < 20
    assert all(report.set_aside == {"bad": BAD[2]} for report in reports), "also while it rests"
    tries = world.engine.heartbeats.tries(HERE)["bad"]
    assert (tries.n, tries.again_at - tries.at) == (mapping.n_asked, MAX_PAUSE_SECONDS)
    assert [pause_after(n) for n in (1, 2, 3, 4, 9)] == [0.0, 0.0, 5.0, 10.0, MAX_PAUSE_SECONDS]


@pytest.mark.parametrize("other_process", [False, True])
def test_another_registration_and_another_process_try_all_at_once(world, monkeypatch, other_process):
    here, mapping = Orchestrator(world), Raising(monkeypatch, world.catalog, "bad")
    world.want("bad")
    here.tick_for(300)
    n_asked = mapping.n_asked

    if other_process:
        world.engine = world.process()
    else:
        world.handle(c.RegisterDatasets(location=HERE, datasets=(*world.specs, dataset("new"))))
    here.tick()

    assert mapping.n_asked == n_asked + 1


def test_a_clock_that_ran_ahead_does_not_make_a_ref_rest_for_hours(world, monkeypatch):
    here, mapping = Orchestrator(world), Raising(monkeypatch, world.catalog, "bad")
    world.want("bad")
    here.tick_for(300)
    n_asked = mapping.n_asked

    world.clock.now -= 4 * 3600
    here.tick()

    assert mapping.n_asked == n_asked + 1


def test_a_ref_that_nothing_wants_any_longer_is_set_aside_no_longer(world, monkeypatch):
    here = Orchestrator(world)
    Raising(monkeypatch, world.catalog, "bad")
    want = world.want("bad")
    here.tick()

    world.cancel_want(want)
    here.tick()

    assert recorded(world) == []


def test_a_ref_that_a_tick_does_not_look_at_keeps_its_reason(make_world, monkeypatch):
    """Rule 11.6: a look is divided, so what it leaves out is not planned again."""
    keys = ["1", "2", "3"]
    world = make_world(dataset("bad", keys=keys))
    here = Orchestrator(world)
    Raising(monkeypatch, world.catalog, "bad")
    world.want(*(f"bad@{key}" for key in keys))

    for _ in range(3):
        here.tick(due_refs=1)

    assert [name for _, name, _ in recorded(world)] == ["bad@1", "bad@2", "bad@3"]


def test_the_reasons_of_an_arc_and_of_a_launch_end_when_they_go_on(make_world, monkeypatch):
    world = make_world(dataset("source"), dataset("bad", subscribe=["source"]), dataset("other"))
    launcher = HandLauncher(swallows_orders=True)
    here = Orchestrator(world, launcher=launcher)
    world.want("other")
    (launch_id,) = here.tick().launched
    mapping = Raising(monkeypatch, world.catalog, "bad", "woken")
    world.live("source")
    order, launcher.launch = launcher.launch, None

    here.tick()

    assert {(kind, name) for kind, name, _ in recorded(world)} == {
        (Subject.ARC, "arc bad"),
        (Subject.LAUNCH, f"launch {launch_id}"),
    }
    mapping.why, launcher.launch = None, order
    here.tick()
    assert recorded(world) == []


def test_without_the_notes_the_reasons_are_known_and_all_are_tried(world, monkeypatch):
    """Rule 11.7: their loss is harmless."""
    here, mapping = Orchestrator(world), Raising(monkeypatch, world.catalog, "bad")
    world.want("bad")
    here.tick_for(300)
    world.engine.heartbeats.note_tries(HERE, [], ["bad"])
    n_asked = mapping.n_asked

    here.tick()

    assert (recorded(world), mapping.n_asked) == ([BAD], n_asked + 1)


# Files of landing folders

LANDING = dataset("flights", keys=["1", "2"], kind=DatasetKind.BOUNDARY)
DAMAGED = {"flights@1": "landing/1.csv cannot be a file of flights@1: it is damaged"}
STRANGER = {"landing/x.csv": "no time in its name"}


def looked(world, lots=(), files=(), *, is_whole=True):
    record_files(world.engine, LANDING, dict(lots), dict(files), "boundary flights", is_whole=is_whole)


def test_the_reasons_of_lots_and_files_are_facts_when_they_change(make_world):
    world = make_world(LANDING, dataset("flights_of_old", kind=DatasetKind.BOUNDARY))
    looked(world, DAMAGED, STRANGER)
    before = world.seq

    looked(world, DAMAGED, STRANGER)
    looked(world, is_whole=False)
    Orchestrator(world).tick()

    assert world.seq == before
    assert recorded(world) == [
        (Subject.LOT, "flights@1", DAMAGED["flights@1"]),
        (Subject.FILE, "flights@landing/x.csv", STRANGER["landing/x.csv"]),
    ]
    looked(world, DAMAGED)
    assert [name for _, name, _ in recorded(world)] == ["flights@1"]
    looked(world)
    assert (recorded(world), world.log(before)) == ([], ["SetAsideChanged", "SetAsideChanged"])
    assert world.check() == []


def test_the_reasons_of_a_boundary_end_when_its_location_has_it_no_longer(make_world):
    world = make_world(LANDING)
    looked(world, DAMAGED, STRANGER)

    world.handle(c.RegisterDatasets(location=HERE, datasets=(dataset("other"),)))
    Orchestrator(world).tick()

    assert recorded(world) == []


def test_explain_of_a_lot_names_its_file_and_those_for_no_lot(make_world):
    world = make_world(LANDING)
    looked(world, DAMAGED, STRANGER)
    world.want("flights@1", "flights@2")

    damaged, absent = ([cause.why for cause in explain(world.engine, f"flights@{key}").causes] for key in "12")

    since = "set aside for now, since"
    stranger = f"flights@landing/x.csv is {since}"
    assert [why.partition("Z: ")[2] for why in damaged if since in why] == [*DAMAGED.values(), *STRANGER.values()]
    assert [why.startswith(stranger) for why in absent] == [False, True]


def test_late_files_that_cannot_be_recorded_are_in_the_answer_about_a_live_lot(make_world):
    world = make_world(LANDING)
    world.live("flights@1")
    looked(world, DAMAGED, STRANGER)

    *_, why = [cause.why for cause in explain(world.engine, "flights@1").causes]

    assert why.endswith(DAMAGED["flights@1"])
