"""One ref, arc or launch that raises delays nothing else of a tick, and is tried again (rule 11.5)."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from databuild_dagster.engine.why.explain import explain
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.errors import Contradiction, MissingRow, NotFound
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.states import InstanceState, WantState
from databuild_dagster.store.rebuild import rebuild
from tests.support.arcs import fired_by
from tests.support.catalog import HERE, dataset
from tests.support.checking import check
from tests.support.orchestrator import Orchestrator
from tests.support.ports import HandLauncher

BUILDING, UPSTREAM_BUILDING, LIVE = InstanceState.BUILDING, InstanceState.UPSTREAM_BUILDING, InstanceState.LIVE


def deploy(world, *datasets):
    """The location's code has these assets now."""
    world.catalog.datasets = {spec.asset: spec for spec in datasets}
    world.handle(c.RegisterDatasets(location=HERE, datasets=datasets))


@pytest.mark.parametrize(
    ("before", "after", "ref"),
    [
        (dataset("regions", keys=["north", "south"]), dataset("regions", keys=["nord", "south"]), "regions@north"),
        (dataset("planes"), dataset("planes", keys=["a"]), "planes"),
    ],
    ids=["another key", "keys for the first time"],
)
def test_a_partition_that_left_its_definition_is_set_aside_until_it_is_back(make_world, before, after, ref):
    """Rule 11.5: no instance is made, and its want stays open."""
    other = dataset("other")
    world = make_world(before, other)
    want = world.want(ref)
    world.want("other")
    deploy(world, after, other)
    here = Orchestrator(world)

    report = here.tick()

    assert list(report.set_aside) == [ref]
    assert world.states(ref, "other") == [None, BUILDING]
    assert world.want_state(want) is WantState.IDLE
    deploy(world, before, other)
    assert (here.tick().set_aside, world.state(ref)) == ({}, BUILDING)


def test_a_launch_whose_asset_is_gone_before_dagster_had_its_run_is_lost(make_world):
    """Rules 6.9, 11.5: Dagster would refuse the order, and all orders of the tick with it."""
    world = make_world(dataset("gone"), dataset("other"))
    here = Orchestrator(world, launcher=HandLauncher(swallows_orders=True))
    world.want("gone")
    (launch_id,) = here.tick().launched
    deploy(world, dataset("other"))
    world.want("other")

    report = here.tick()

    assert report.lost == {launch_id: "gone is not an asset of location here any longer"}
    assert launch_id not in report.launched
    assert world.states("gone", "other") == [InstanceState.UP_FOR_RETRY, BUILDING]


def test_a_launch_is_lost_when_one_of_its_partitions_left_the_definition(make_world):
    """Rules 6.9, 11.5"""
    world = make_world(dataset("regions", keys=["north", "south"]))
    here = Orchestrator(world, launcher=HandLauncher(swallows_orders=True))
    world.want("regions@north", "regions@south")
    here.tick()
    deploy(world, dataset("regions", keys=["south"]))

    here.tick()

    assert world.states("regions@north", "regions@south") == [InstanceState.UP_FOR_RETRY, BUILDING]


def raise_about(monkeypatch, catalog, asset, question):
    """The catalog has no answer to one question about an asset."""
    answer = getattr(catalog, question)

    def raising(spec, *arguments):
        if spec.asset == asset:
            raise ValueError("the zones do not match")
        return answer(spec, *arguments)

    monkeypatch.setattr(catalog, question, raising)


@pytest.mark.parametrize("question", ["absent", "inputs", "launchable"])
def test_a_definition_or_a_mapping_that_raises_sets_its_refs_aside_only(make_world, monkeypatch, question):
    """Rule 11.5"""
    world = make_world(dataset("bad", "other"), dataset("other"), dataset("good"))
    world.live("other")
    world.want("bad", "good")
    raise_about(monkeypatch, world.catalog, "bad", question)

    report = Orchestrator(world).tick()

    assert report.set_aside == {"bad": "ValueError: the zones do not match"}
    assert "set aside for now: ValueError: the zones do not match" in explain(world.engine, "bad").causes[0].why
    assert world.states("bad", "good") == [None, BUILDING]
    assert report.set_aside.sentences() == ["Set aside for now: bad: ValueError: the zones do not match"]


def test_an_arc_whose_mapping_raises_fires_when_it_answers_again(make_world, monkeypatch):
    """Rules 10.5, 11.5: its place in the log stays, other arcs go on, and each source instance fires once."""
    world = make_world(dataset("source"), dataset("bad", subscribe=["source"]), dataset("good", subscribe=["source"]))
    here = Orchestrator(world)
    here.tick()
    raise_about(monkeypatch, world.catalog, "bad", "woken")
    first = world.succeed("source")

    held = here.tick()
    world.taint("source")
    second = world.succeed("source")
    here.tick()
    monkeypatch.undo()
    here.tick()
    here.tick()

    assert (held.fired, list(held.set_aside)) == (["good"], ["arc bad"])
    assert fired_by(world.store, "good") == fired_by(world.store, "bad") == [first, second]


def test_a_key_that_no_ref_can_name_is_no_lot_and_stops_no_arc(make_world):
    """Rules 2.1, 11.5: a dynamic partition of a file name with a line break."""
    world = make_world(
        dataset("source"), dataset("lots", ("source", "all"), keys=["ok", "two\nlines"], subscribe=["source"])
    )
    here = Orchestrator(world)
    here.tick()
    world.succeed("source")

    report = here.tick()

    assert (report.fired, report.set_aside) == (["lots@ok"], {})


class Unreadable:
    """Lost job runs whose manifest is damaged."""

    def finished(self, job_runs):
        raise ValueError("the manifest is damaged")


def test_a_lost_job_run_whose_data_cannot_be_read_is_lost_all_the_same(make_world):
    """Rule 6.9"""
    world = make_world(dataset("a"), dataset("other"))
    here = Orchestrator(world, gone=lambda holder: True, remains=Unreadable())
    launch_id = world.start("a")
    job_run = world.canonical("a").job_run
    world.want("other")

    report = here.tick()

    assert list(report.lost) == [launch_id]
    assert report.set_aside == {f"the data of job run {job_run}": "ValueError: the manifest is damaged"}
    assert world.state("other") is BUILDING


def test_reasons_name_what_utf8_cannot_hold(make_world):
    """Rule 11.5: a reason is printed on any terminal."""
    world = make_world(dataset("a"))
    launcher = HandLauncher()

    def trouble(order):
        raise OSError("no such folder caf\udce9")

    launcher.launch = trouble
    world.want("a")

    report = Orchestrator(world, launcher=launcher).tick()

    assert report.set_aside == {"a": "OSError: no such folder caf\\udce9"}
    assert msgspec.json.encode(dict(report.set_aside))


#: Two versions of one location's code, whose daemons register it in turns: assets and keys of one are not in the other.
OLD = (
    dataset("source", code_version="old"),
    dataset("regions", "source", keys=["north", "south"], code_version="old"),
    dataset("report", ("regions", "south"), code_version="old", subscribe=["source"]),
    dataset("planes", "source", code_version="old"),
    dataset("gone", "planes", code_version="old"),
)
NEW = (
    dataset("source", code_version="new"),
    dataset("regions", "source", keys=["nord", "south"], code_version="new"),
    dataset("report", ("regions", "all"), code_version="new"),
    dataset("planes", "source", keys=["a", "b"], code_version="new"),
    dataset("come", "planes", keys=["a", "b"], code_version="new"),
)
#: What a function finds out that it needs while it runs, by the asset and the code version.
ASKED_FOR = {("report", "old"): "gone", ("report", "new"): "come@a", ("regions", "new"): "planes@a"}


class Working:
    """A Dagster whose runs each take 12 s, over two deploys, and miss inputs that only their version of the code has."""

    def __init__(self, world, here):
        self.world, self.here = world, here
        #: By launch: the end of its run, and the version of its code.
        self.running = {}

    def work(self, version):
        world = self.world
        for launch in world.queries.launches.open():
            if launch.launch_id not in self.running:
                self.here.start(launch.launch_id)
                self.running[launch.launch_id] = world.clock.now + 12.0, version
            ends_at, version_of_run = self.running[launch.launch_id]
            if world.clock.now >= ends_at:
                for run in world.queries.job_runs.of_launch(launch.launch_id):
                    self._end(run.refs[0], version_of_run)

    def _end(self, ref, version):
        need = ASKED_FOR.get((asset_of(ref), version))
        if need is not None and self.world.state(need) is not InstanceState.LIVE:
            self.world.miss(ref, need)
        else:
            self.world.succeed(ref)


def test_code_that_alternates_every_five_seconds_for_an_hour_loses_no_want(make_world):
    """Rules 5.3, 11.5: a ref of the other version waits for its turn, and what waits for it keeps waiting."""
    versions = [("old", OLD), ("new", NEW)]
    world = make_world(*OLD)
    here = Orchestrator(world)
    dagster = Working(world, here)
    wants = []
    for turn in range(720):
        version, datasets = versions[turn % 2]
        deploy(world, *datasets)
        spec = datasets[turn // 24 % len(datasets)]
        if turn % 24 < 2:
            wants += [world.want(ref) for ref in refs_of(spec)]
        if turn % 60 == 50:
            live = [ref for ref in ("source", "planes", "planes@a") if world.state(ref) is InstanceState.LIVE]
            world.taint(*live)
        here.tick()
        dagster.work(version)
        world.clock.turn(5)

    for version, datasets in versions:
        deploy(world, *datasets)
        for _ in range(30):
            here.tick()
            dagster.work(version)
            world.clock.turn(5)

    states = Counter(world.want_state(want) for want in wants)
    assert len(wants) > 60
    assert states == {WantState.SUCCESSFUL: len(wants)}
    assert world.check() == []


def refs_of(spec):
    return [spec.asset] if spec.partitions is None else [f"{spec.asset}@{key}" for key in spec.partitions.split(",")]


# Missing rows


def remove_row(world, table, column, value):
    """Another program damages the tables."""
    with world.store.writing() as work:
        work.connection.execute(f"DELETE FROM databuild_{table} WHERE {column} = ?", (value,))


def test_a_missing_row_sets_one_ref_of_a_launch_aside_until_log_rebuild_mends_it(make_world):
    """Rule 3.5: the rest of the bulk command is launched."""
    days = [f"days@{n}" for n in range(5)]
    world = make_world(dataset("days", keys=[str(n) for n in range(5)]))
    world.live(*days)
    world.taint(*days)
    world.want(*days)
    uuid = world.uuid("days@2")
    remove_row(world, "instances", "uuid", uuid)
    here = Orchestrator(world)

    report = here.tick()

    (why,) = {report.set_aside.pop(name) for name in list(report.set_aside)}
    assert why.startswith("MissingRow: Impossible at seq ")
    assert (
        f"days@2 in state Tainted refers to instance {uuid} of days@2, which is missing: its last state was Tainted"
        in why
    )
    assert "`databuild log rebuild`" in why
    states = world.queries.canonical.states(days)
    assert [ref for ref, state in states.items() if state is not BUILDING] == ["days@2"]
    assert sorted(key for order in here.launcher.orders for key in order.partition_keys) == ["0", "1", "3", "4"]
    assert any(uuid in str(violation) or "days@2" in str(violation) for violation in check(world.store))
    here.tick_for(300)
    assert [(aside.name, aside.reason) for aside in world.queries.planning.set_aside()] == [("days@2", why)], (
        "for `status`"
    )
    rebuild(world.store)
    here.tick_for(60)
    assert (here.tick().set_aside, world.state("days@2"), world.check()) == ({}, BUILDING, [])
    assert world.queries.planning.set_aside() == []


def test_a_live_input_whose_row_is_missing_sets_aside_what_needs_it(make_world):
    """Rule 3.5: its launch would run, and its dep miss be refused."""
    world = make_world(dataset("a"), dataset("b", "a"), dataset("c", "d"), dataset("d"))
    world.live("a", "d")
    uuid = world.uuid("a")
    world.want("b", "c")
    remove_row(world, "instances", "uuid", uuid)

    report = Orchestrator(world).tick()

    why = report.set_aside["b"]
    assert why.startswith("MissingRow: Impossible at seq ")
    assert f"a in state Live refers to instance {uuid} of a, which is missing: its last state was Live" in why
    assert (list(report.set_aside), world.states("b", "c")) == (["b"], [None, BUILDING])
    assert any(why in cause.why for cause in explain(world.engine, "b").causes)
    rebuild(world.store)
    assert Orchestrator(world).tick().set_aside == {}
    assert world.state("b") is BUILDING


CONTRADICTIONS = {
    "the instance is not there": ("DELETE FROM databuild_instances WHERE uuid = ?", "refers to instance"),
    "the job run is not there": (
        "DELETE FROM databuild_job_runs WHERE id = (SELECT job_run_id FROM databuild_instances WHERE uuid = ?)",
        "refers to job run",
    ),
    "the ref says something else": (
        "UPDATE databuild_refs SET state = 'Building' WHERE canonical_id = (SELECT id FROM databuild_instances WHERE uuid = ?)",
        "a in state Building contradicts its canonical instance: that is Live",
    ),
}


@pytest.mark.parametrize("damage", CONTRADICTIONS)
def test_a_pointer_to_nothing_stops_each_command_that_meets_it(make_world, damage):
    """Rule 3.5: a question too, which would answer that nothing has built the ref."""
    world = make_world(dataset("a"))
    world.live("a")
    sql, said = CONTRADICTIONS[damage]
    with world.store.writing() as work:
        work.connection.execute(sql, (world.uuid("a"),))
    before = world.seq
    questions = {
        "canonical": lambda: world.queries.canonical.of(["a"]),
        "canonical of a dataset": lambda: world.queries.canonical.of_dataset("a"),
        "explain": lambda: explain(world.engine, "a"),
        "want": lambda: world.want("a"),
        "claim": lambda: world.claim("a"),
    }

    for name, ask in questions.items():
        with pytest.raises(MissingRow, match=said):
            pytest.fail(f"{name} answered {ask()}")

    assert world.seq == before
    rebuild(world.store)
    assert (world.state("a"), world.check()) == (LIVE, [])


@pytest.mark.parametrize("end", ["succeed", "fail"])
def test_a_lost_waiter_stops_what_would_have_to_wake_it(make_world, end):
    """Rule 3.5: it would wait for ever."""
    world = make_world(dataset("a"), dataset("b", "a"))
    world.want("b")
    world.miss("b", "a")
    world.start("a")
    remove_row(world, "missing", "active", 1)
    before = world.seq

    with pytest.raises(
        Contradiction, match="contradicts its waiting index: 1 instances wait for it, and the index has 0"
    ):
        getattr(world, end)("a")

    assert world.seq == before
    rebuild(world.store)
    getattr(world, end)("a")
    assert world.state("b") is not UPSTREAM_BUILDING


def test_a_want_that_is_to_be_passed_on_stops_at_a_lost_waiter(make_world):
    """Rules 3.5, 6.4: what it waits for would expire before the want."""
    world = make_world(dataset("a"), dataset("b", "a"))
    world.want("b", ttl=60)
    world.miss("b", "a")
    remove_row(world, "missing", "active", 1)
    before = world.seq

    with pytest.raises(Contradiction, match="b in state UpstreamBuilding contradicts its waiting index"):
        world.want("b", ttl=3600)

    assert world.seq == before
    rebuild(world.store)


def test_a_lost_source_instance_sets_aside_the_arcs_that_it_wakes(make_world):
    """Rule 3.5"""
    world = make_world(*map(dataset, "ab"), dataset("of_a", subscribe=["a"]), dataset("of_b", subscribe=["b"]))
    world.live("a", "b")
    remove_row(world, "instances", "uuid", world.uuid("a"))
    here = Orchestrator(world)

    report = here.tick()

    assert (list(report.set_aside), report.fired) == (["arc of_a"], ["of_b"])
    assert "which is missing: the log says that it became live" in report.set_aside["arc of_a"]
    rebuild(world.store)
    here.tick_for(300)
    assert world.state("of_a") is BUILDING


def test_a_missing_row_keeps_no_other_source_from_being_observed(make_world):
    """Rule 3.5"""
    world = make_world(*(dataset(name, kind=DatasetKind.SOURCE) for name in "ab"))
    here = Orchestrator(world)
    here.foreign.materialize("a", "the first time")
    world.want("a", "b")
    here.tick()
    world.taint("a")
    remove_row(world, "instances", "uuid", world.uuid("a"))
    here.foreign.materialize("b", "the first time")

    report = here.tick()

    assert (list(report.set_aside), report.arrived) == (["a"], ["b"])
    rebuild(world.store)


def test_a_missing_row_keeps_no_other_want_from_expiring(make_world):
    """Rule 3.5"""
    world = make_world(dataset("a"), dataset("b"), dataset("c"))
    damaged, *others = [world.want(ref, ttl=10.0) for ref in ("a", "b", "c")]
    remove_row(world, "refs", "ref", "a")
    world.clock.turn(20.0)
    here = Orchestrator(world)

    report = here.tick()

    assert (list(report.set_aside), report.expired) == ([f"want {damaged}"], others)
    here.tick_for(300)
    assert [aside.name for aside in world.queries.planning.set_aside()] == [f"want {damaged}"], "for `status`"
    rebuild(world.store)
    assert (here.tick().expired, world.queries.planning.set_aside()) == ([damaged], [])


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("instances", "uuid", lambda world: world.uuid("a")),
        ("job_runs", "job_run_id", lambda world: world.canonical("a").job_run),
        ("refs", "ref", lambda world: "a"),
    ],
)
def test_a_command_that_meets_a_missing_row_records_nothing(make_world, table, column, value):
    """Rule 3.5: it never passes over the reference."""
    world = make_world(dataset("a"))
    world.want("a")
    world.start("a")
    job_run = world.canonical("a").job_run
    remove_row(world, table, column, value(world))
    before = world.log()

    with pytest.raises((MissingRow, NotFound)):
        world.handle(c.FailJobRuns(failures=(c.RunFailure(job_run, "it raised", "hard"),)))

    assert world.log() == before
    rebuild(world.store)
