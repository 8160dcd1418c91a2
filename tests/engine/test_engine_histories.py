"""Hypothesis makes every kind of event, in any order; the invariants hold after each step (rules 12)."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from databuild_dagster.engine.follower import all_touched
from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.ports import DagsterRunStatus
from databuild_dagster.engine.publishing import published_by
from databuild_dagster.engine.tick import tick
from databuild_dagster.engine.tick_pass import Pass, TickLimits
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import CodeSpec, DatasetKind
from databuild_dagster.model.errors import NotFound, Refused
from databuild_dagster.model.events import AsideFact, BufferedRun, OutputFact, RunSuccess
from databuild_dagster.model.fold.evolve import fold
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.states import OPEN_WANTS, InstanceState, JobRunState, WantState
from databuild_dagster.store.log import events_after
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import open_store
from tests.store.tables import rows_of
from tests.support import fixtures, walk  # noqa: F401  (the profiles)
from tests.support.arcs import fired_by
from tests.support.catalog import HERE, dataset
from tests.support.ports import HandForeign, HandLauncher
from tests.support.twin_world import TwinWorld
from tests.support.walk import STEPS, Walk
from tests.support.world import COMPLETE, World

LONG = bool(os.environ.get("DATABUILD_LONG"))

DATASETS = (
    *(dataset(name) for name in "ab"),
    dataset("c", subscribe=["source"]),
    dataset("d", "c", subscribe=["a", "c"], follow_late=True),
    dataset("left", job="pair"),
    dataset("right", job="pair"),
    dataset("source", kind=DatasetKind.SOURCE),
)
#: A ref leaves these by what happens to its inputs (`model.touched`).
_DERIVED = (InstanceState.UPSTREAM_BUILDING, InstanceState.UPSTREAM_FAILED)
REFS = ["a", "b", "c", "d", "left", "right", "source"]
PAIR = ("left", "right")


class Watched(TwinWorld):
    """Remembers its last command. A refusal must leave no trace."""

    last: tuple[c.Command, str, tuple] | None = None

    def handle(self, command, *, command_id=None, actor="tester"):
        before, command_id = self.seq, command_id or self.ids()
        try:
            outcome = super().handle(command, command_id=command_id, actor=actor)
        except (Refused, NotFound):
            assert self.seq == before
            raise
        if outcome.events:
            self.last = command, command_id, outcome.events
        return outcome


class History(Walk):
    """A walk with the commands that others leave out, over refs of which two are built together."""

    def __init__(self, world, rng):
        super().__init__(world, rng)
        self.refs = REFS

    def missing(self):
        return tuple(self.rng.sample([*REFS, "nowhere"], self.rng.randint(1, 3)))

    def launch_some(self):
        refs = self.rng.choice([PAIR, self.some()])
        if self.rng.random() < 0.5:
            self.world.handle(c.CreateWants(wants=tuple((ref,) for ref in refs)))
        launch = self.world.launch_of(*refs, together=refs == PAIR)
        if self.world.handle(launch).events and self.rng.random() < 0.5:
            self.world.start_launch(launch.launch_id)

    def claim_some(self):
        command = c.ClaimRefs(
            launch_id=self.world.ids(),
            job="pair",
            location=HERE,
            dagster_run_id=self._requester(),
            holder="somewhere",
            runs=self.rng.choice([(BufferedRun(self.world.ids(), PAIR),), self.runs(self.some())]),
            by_person=self.rng.random() < 0.5,
            may_build=self.rng.random() < 0.7,
            rebuild_before=self.rng.choice([None, self.world.clock.now]),
        )
        self.world.handle(command)

    def buffer_missed(self):
        refs = self.some()
        runs = self.runs(refs)
        misses = tuple(c.RunMiss(run.job_run_id, dict.fromkeys(run.refs, self.missing())) for run in runs)
        command = c.BufferMissed(
            launch_id=self.world.ids(), job=asset_of(refs[0]), location=HERE, owner="me", runs=runs, misses=misses
        )
        self.world.handle(command)

    def miss_some(self):
        """Of one job run, or of two in one report; of all outputs, or of the first."""
        runs = [self.running(), *self._of_state(JobRunState.RUNNING)]
        n_runs, n_outputs = self.rng.randint(1, 2), self.rng.randint(1, 2)
        by_id = {run.id: run.refs[:n_outputs] for run in runs[:n_runs]}
        misses = tuple(c.RunMiss(id, dict.fromkeys(refs, self.missing())) for id, refs in by_id.items())
        self.world.handle(c.MissDeps(misses=misses))

    def lose_any(self):
        launches = self.queries.launches.open()
        if launches:
            self.world.handle(c.LoseLaunches(launch_ids=(self.rng.choice(launches).launch_id,), reason="gone"))

    def report_late(self):
        ended = [run for run in self.queries.job_runs.newest() if run.state is not JobRunState.RUNNING]
        if ended:
            run, before = self.rng.choice(ended), self.world.seq
            outputs = tuple(OutputFact(ref=ref, manifest=COMPLETE) for ref in run.refs)
            with suppress(Refused):
                self.world.handle(c.SucceedJobRuns(runs=(RunSuccess(run.id, outputs),)))
            assert self.world.seq == before

    def taint_an_instance(self):
        self.world.handle(c.TaintPartitions(uuids=(self.instance()[1],), reason="wrong", downstream=True))

    def taint_what_was_seen(self):
        seen = tuple(
            instance.uuid for instance in self.queries.instances.history(self.rng.choice(REFS)) if instance.live_at
        )
        if seen:
            downstream = self.rng.random() < 0.5
            self.world.handle(c.TaintPartitions(seen=seen[-2:], reason="rows offend", downstream=downstream))

    def revert_by_force(self):
        ref, uuid = self.instance()
        self.world.handle(c.RevertCanonical(ref=ref, uuid=uuid, force=True))

    def go_back_to_what_is_removed(self):
        for instance in self.queries.instances.history(self.rng.choice(REFS)):
            if instance.manifest_state == "removed":
                with suppress(Refused):
                    self.world.handle(c.RevertCanonical(ref=instance.ref, uuid=instance.uuid, force=True))
                canonical = self.world.canonical(instance.ref)
                assert (canonical.uuid, canonical.state) != (instance.uuid, InstanceState.LIVE)

    def edit_code(self):
        """Of all assets, back and forth; and ask for the builds."""
        code = {"code_version": self.rng.choice("12"), "deterministic": True, "code": CodeSpec(digest="1:4f2a")}
        specs = tuple(replace(spec, **code) for spec in DATASETS)
        self.world.handle(c.RegisterDatasets(location=HERE, datasets=specs))
        self.world.handle(c.CreateWants(wants=(self.some(),), fresh=True))

    def succeed_by_code(self):
        run = self.running()
        version = self.queries.datasets.get(asset_of(run.refs[0])).code_version
        inputs = {ref: uuid for ref in ("a", "source") if (uuid := self.world.canonical(ref).uuid)}
        outputs = tuple(
            OutputFact(ref=ref, inputs=inputs, code_version=version, manifest=walk.EQUAL) for ref in run.refs
        )
        self.world.handle(c.SucceedJobRuns(runs=(RunSuccess(run.id, outputs),)))

    def take_back(self):
        inputs = self.rng.choice([("a",), ("a", "source")])
        asked = tuple(c.Returnable(ref, inputs) for ref in REFS)
        self.world.handle(c.ReturnInstances(refs=asked))

    def set_aside(self):
        reason = self.rng.choice([None, "it raised", "it is gone"])
        changes = (AsideFact(kind="ref", names=self.some(), reason=reason),)
        self.world.handle(c.ChangeSetAside(location=HERE, changes=changes))

    def follow_arcs(self):
        """Some orchestrator has followed the log so far; what another has followed before is within it."""
        up_to_seq = self.world.seq // self.rng.randint(1, 3)
        with self.world.store.reading() as connection:
            events = events_after(connection, 0, up_to_seq)
        published = tuple(
            c.Published(instance.uuid, instance.ref, instance.seq)
            for event in events
            for instance in published_by(event)
        )
        self.world.handle(c.FireArcs(up_to_seq=up_to_seq, published=published))
        for arc in self.queries.datasets.arcs():
            fired = Counter(fired_by(self.world.store, arc.asset))
            for instance in published:
                n_published = sum(other.uuid == instance.uuid for other in published)
                assert fired[instance.uuid] <= n_published, f"{arc.asset} was woken twice by {instance.uuid}"

    def turn_the_clock(self):
        self.world.clock.turn(self.rng.choice([30.0, 600.0, 4000.0, -100.0]))

    def repeat(self):
        command, command_id, events = self.world.last
        before = self.world.seq

        outcome = self.world.handle(command, command_id=command_id)

        assert (outcome.repeated, outcome.events, self.world.seq) == (True, events, before)


ALL_STEPS = (
    *dict.fromkeys(STEPS),
    *(step for name, step in vars(History).items() if not name.startswith("_") and name != "missing"),
)


def fold_on(world, reader, read):
    """Fold each event after a seq by itself, as a reader of the log would: every prefix of it folds (I5). The last seq."""
    queries = Queries(reader)
    with world.store.reading() as connection:
        events = events_after(connection, read, 1000)
    before = queries.canonical.of(REFS)
    for event in events:
        with reader.writing() as work:
            fold(work, event)
        after = queries.canonical.of(REFS)
        moved = {ref for ref in REFS if after[ref] != before[ref] and before[ref].state not in _DERIVED}
        assert moved <= all_touched(queries, [event]), event
        read, before = event.seq, after
    return read


def waits_are_for_wanted_refs(world):
    """Rule 6.4: each ref that is waited for has an open want and has not failed; or the wants behind it are past their TTL."""
    for ref in [ref for ref in REFS if world.state(ref) is InstanceState.UPSTREAM_BUILDING]:
        wanted = max((want.expires_at or float("inf") for want in world.open_wants(ref)), default=0.0)
        for missing in world.queries.planning.missing_of(world.uuid(ref)):
            assert world.state(missing) not in (InstanceState.FAILED, InstanceState.UPSTREAM_FAILED)
            if wanted > max(world.clock.now, world.queries.events.head().at):
                assert world.open_wants(missing), f"{ref} waits for {missing}, which has no open want"


@settings(max_examples=1500 if LONG else 50)
@given(rng=st.randoms(use_true_random=False), n_steps=st.integers(1, 80 if LONG else 40))
def test_the_invariants_hold_after_each_of_any_commands(rng, n_steps):
    """Rules 12: on a database and in memory alike."""
    world, reader = Watched(DATASETS), open_store("sqlite://")
    walk, read = History(world, rng), 0

    for _ in range(n_steps):
        with suppress(Refused, NotFound):
            rng.choice(ALL_STEPS)(walk)
        assert world.broken() == []
        read = fold_on(world, reader, read)
        waits_are_for_wanted_refs(world)

    assert world.apart() == []
    assert world.check() == []
    assert rows_of(world.store) == rows_of(reader)
    world.store.close()
    reader.close()


# I11


@st.composite
def graphs(draw):
    """Datasets that need only earlier ones: declared inputs, and inputs that a job run finds out about by itself."""
    names = [f"n{number}" for number in range(draw(st.integers(2, 7)))]
    datasets, hidden = [], {}
    for at, name in enumerate(names):
        earlier = names[:at]
        needs = draw(st.lists(st.sampled_from(earlier), max_size=3, unique=True)) if earlier else []
        hidden[name] = draw(st.lists(st.sampled_from(earlier), max_size=2, unique=True)) if earlier else []
        job = draw(st.sampled_from([None, None, "shared"]))
        datasets.append(dataset(name, *needs, job=job))
    return datasets, hidden


class Executor:
    """Runs what was launched. As long as there is trouble left in store, job runs may fail transiently or be lost."""

    def __init__(self, world, hidden, trouble):
        self.world, self.hidden, self.trouble = world, hidden, list(trouble)
        self.launcher, self.judge = HandLauncher(), Judge(gone=lambda holder: False)

    def turn(self):
        self.world.clock.turn(5)
        limits = TickLimits(launches=2, open_launches=3)
        tick(Pass(self.world.engine, HERE, self.launcher, HandForeign(), self.judge, "orchestrator", limits))
        for launch in self.world.queries.launches.open():
            self.go_on(launch)

    def go_on(self, launch):
        if launch.dagster_run_id is None:
            self.launcher.set_status(launch.launch_id, DagsterRunStatus.RUNNING)
            self.world.start_launch(launch.launch_id)
        self.world.engine.beat([launch.launch_id])
        for run in self.world.queries.job_runs.of_launch(launch.launch_id):
            if run.state is not JobRunState.RUNNING:
                continue
            match self.trouble.pop() if self.trouble else "none":
                case "none":
                    self.finish(run)
                case "slow":
                    continue
                case "transient":
                    self.world.handle(c.FailJobRuns(failures=(c.RunFailure(run.id, "busy", "transient"),)))
                case "dagster run dies":
                    self.launcher.set_status(launch.launch_id, DagsterRunStatus.FAILED)
                    return
                case "an upstream is tainted":
                    self.finish(run)
                    live = [ref for ref in self.hidden if self.world.state(ref) is InstanceState.LIVE]
                    if live:
                        self.world.taint(live[0])

    def finish(self, run):
        impacted = {}
        for ref in run.refs:
            states = self.world.queries.canonical.states(self.hidden[ref])
            if missing := tuple(need for need, state in states.items() if state is not InstanceState.LIVE):
                impacted[ref] = missing
        if impacted:
            self.world.handle(c.MissDeps(misses=(c.RunMiss(run.id, impacted),)))
        else:
            outputs = tuple(OutputFact(ref=ref, manifest=COMPLETE) for ref in run.refs)
            self.world.handle(c.SucceedJobRuns(runs=(RunSuccess(run.id, outputs),)))


troubles = st.lists(
    st.sampled_from(["none", "slow", "transient", "dagster run dies", "an upstream is tainted"]), max_size=20
)


@settings(max_examples=400 if LONG else 40)
@given(graph=graphs(), trouble=troubles, wanted=st.sets(st.integers(0, 6), min_size=1), data=st.data())
def test_every_open_want_ends_in_an_acyclic_graph_whose_jobs_end(graph, trouble, wanted, data):
    """I11: with any trouble on the way, as long as it ends."""
    datasets, hidden = graph
    world = World(datasets)
    executor = Executor(world, hidden, trouble)
    refs = sorted({datasets[number % len(datasets)].asset for number in wanted})
    wants = [world.want(ref, ttl=None, priority=data.draw(st.integers(0, 2))) for ref in refs]
    wants.append(world.want(*refs, ttl=None))

    for _ in range(150):
        executor.turn()
        assert world.broken() == []
        if not executor.trouble and not any(world.want_state(want) in OPEN_WANTS for want in wants):
            break

    assert {world.want_state(want) for want in wants} <= {
        WantState.SUCCESSFUL,
        WantState.FAILED,
        WantState.UPSTREAM_FAILED,
    }
    if "transient" not in trouble and "dagster run dies" not in trouble:
        assert {world.want_state(want) for want in wants} == {WantState.SUCCESSFUL}
    assert world.check() == []
    world.store.close()


def test_the_walks_know_every_command():
    """A command that is in neither is not tried."""
    known = {cls.__name__ for cls in c.Command.__subclasses__()}
    support = Path(walk.__file__).parent

    texts = "".join(path.read_text() for path in (Path(__file__), support / "walk.py", support / "world.py"))

    assert {name for name in known if f"c.{name}(" not in texts} == set()
