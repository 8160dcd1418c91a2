"""Hypothesis makes every kind of event, in any order; the invariants hold after each step (rules 12)."""

from __future__ import annotations

import os

from hypothesis import given, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from databuild_dagster.engine.follower import all_touched
from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.ports import DagsterRunStatus
from databuild_dagster.engine.publishing import published_by
from databuild_dagster.engine.tick import tick
from databuild_dagster.engine.tick_pass import Pass, TickLimits
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.errors import DatabuildError, NotFound, Refused
from databuild_dagster.model.events import AsideFact, BufferedRun, OutputFact, RunSuccess
from databuild_dagster.model.fold.evolve import fold
from databuild_dagster.model.refs import asset_of, partition_key_of
from databuild_dagster.model.states import OPEN_WANTS, InstanceState, JobRunState, WantState
from databuild_dagster.store.log import events_after
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import WantFilter
from databuild_dagster.store.removals import Removals
from databuild_dagster.store.store import open_store
from tests.store.tables import rows_of
from tests.support import fixtures  # noqa: F401  (the profiles)
from tests.support.arcs import fired_by
from tests.support.catalog import HERE, dataset
from tests.support.ports import HandForeign, HandLauncher
from tests.support.twin_world import TwinWorld
from tests.support.world import COMPLETE, EMPTY, World

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
PAIR = ["left", "right"]

some_refs = st.lists(st.sampled_from(REFS), min_size=1, max_size=3, unique=True).map(tuple)
missing_refs = st.lists(st.sampled_from([*REFS, *REFS, *REFS, "nowhere"]), min_size=1, max_size=3, unique=True).map(
    tuple
)
which = st.integers(0, 10_000)


class Histories(RuleBasedStateMachine):
    """Every command there is, over a small universe. A refusal must leave no trace."""

    def __init__(self) -> None:
        super().__init__()
        self.world = TwinWorld(DATASETS)
        #: Folds each event by itself, as a reader of the log would: every prefix of it folds (I5).
        self.reader = open_store("sqlite://")
        self.read = 0
        self.last: tuple[c.Command, str, tuple] | None = None
        self.taints: list[str] = []
        #: Few, so that one asks more than once.
        self.requesters = [self.world.ids() for _ in range(3)]

    def do(self, command: c.Command) -> None:
        before, command_id = self.world.seq, self.world.ids()
        try:
            outcome = self.world.handle(command, command_id=command_id)
        except (Refused, NotFound) as refused:
            note(f"refused: {refused}")
            assert self.world.seq == before
            return
        if outcome.taint_id is not None:
            self.taints.append(outcome.taint_id)
        if outcome.events:
            self.last = command, command_id, outcome.events

    def runs(self, refs, together):
        groups: dict[str, list[str]] = {}
        for ref in refs:
            groups.setdefault("pair" if together and ref in PAIR else ref, []).append(ref)
        return tuple(
            BufferedRun(self.world.ids(), tuple(group), partition_key_of(group[0])) for group in groups.values()
        )

    def job_runs(self, *states):
        return [run for run in self.world.queries.job_runs(open_only=True, most=100) if run.state in states]

    # What people do

    @rule(
        refs=some_refs,
        priority=st.integers(0, 2),
        ttl=st.sampled_from([None, 60.0, 3600.0]),
        sla=st.sampled_from([None, 30.0, 600.0]),
    )
    def want(self, refs, priority, ttl, sla):
        self.do(c.CreateWants(wants=(refs,), priority=priority, ttl_seconds=ttl, sla_seconds=sla))

    @rule(refs=some_refs)
    def want_each(self, refs):
        self.do(c.CreateWants(wants=tuple((ref,) for ref in refs)))

    @rule(refs=some_refs)
    def want_a_rebuild(self, refs):
        self.do(c.CreateWants(wants=tuple((ref,) for ref in refs), rebuild=True))

    @rule(at=which, terminate=st.booleans())
    def cancel_a_want(self, at, terminate):
        if wants := self.world.queries.wants(WantFilter(open_only=True)):
            self.do(c.CancelWants(ids=(wants[at % len(wants)].id,), terminate=terminate))

    @rule(refs=some_refs)
    def taint(self, refs):
        self.do(c.TaintPartitions(refs=refs, reason="it looks wrong"))

    def instance(self, ref, at):
        history = self.world.queries.history(ref)
        return history[at % len(history)].uuid if history else None

    @rule(refs=some_refs, at=which, by_instance=st.booleans())
    def taint_downstream(self, refs, at, by_instance):
        uuid = self.instance(refs[0], at)
        uuids = (uuid,) if by_instance and uuid else ()
        self.do(c.TaintPartitions(refs=() if uuids else refs, uuids=uuids, reason="wrong", downstream=True))

    @rule(ref=st.sampled_from(REFS), at=which, force=st.booleans())
    def revert(self, ref, at, force):
        if uuid := self.instance(ref, at):
            self.do(c.RevertCanonical(ref=ref, uuid=uuid, force=force))

    @rule(refs=some_refs)
    def retry(self, refs):
        self.do(c.RetryRefs(refs=refs))

    @rule(refs=some_refs, seconds=st.sampled_from([None, 5.0, 60.0]), terminate=st.booleans())
    def pause(self, refs, seconds, terminate):
        until = None if seconds is None else self.world.clock.now + seconds
        self.do(c.PausePartitions(refs=refs, reason="its source is wrong", until=until, terminate=terminate))

    @rule(refs=some_refs, reason=st.sampled_from([None, "it raised", "it is gone"]))
    def set_aside(self, refs, reason):
        changes = (AsideFact(kind="ref", names=refs, reason=reason),)
        self.do(c.ChangeSetAside(location=HERE, changes=changes))

    @rule(ref=st.sampled_from(REFS))
    def resume(self, ref):
        self.do(c.ResumePartitions(refs=(ref,)))

    @rule()
    def resume_all_that_is_paused(self):
        if paused := tuple(self.world.queries.paused(REFS, self.world.clock.now)):
            self.do(c.ResumePartitions(refs=paused))

    @precondition(lambda self: self.taints)
    @rule(at=which)
    def untaint(self, at):
        self.do(c.UntaintPartitions(taint_id=self.taints[at % len(self.taints)]))

    @rule(at=which, keep=st.booleans())
    def cancel_a_job_run(self, at, keep):
        if runs := self.job_runs(JobRunState.QUEUED, JobRunState.RUNNING):
            self.do(c.CancelJobRuns(job_run_ids=(runs[at % len(runs)].id,), keep_wants=keep))

    @rule(
        refs=some_refs,
        at=which,
        together=st.booleans(),
        by_person=st.booleans(),
        may_build=st.sampled_from([True, True, False]),
        rebuild=st.sampled_from([False, False, True]),
    )
    def claim(self, refs, at, together, by_person, may_build, rebuild):
        self.do(
            c.ClaimRefs(
                launch_id=self.world.ids(),
                job=asset_of(refs[0]),
                location=HERE,
                dagster_run_id=self.requesters[at % len(self.requesters)],
                holder="somewhere",
                runs=self.runs(refs, together),
                by_person=by_person,
                may_build=may_build,
                rebuild_before=self.world.clock.now if rebuild else None,
            )
        )

    @rule(at=which)
    def wait_no_longer(self, at):
        requester = self.requesters[at % len(self.requesters)]
        self.do(c.GiveUpDelegations(requester=requester, reason="its time is up"))

    # What the orchestrator does

    @rule(refs=some_refs, together=st.booleans(), starts=st.booleans())
    def buffer(self, refs, together, starts):
        launch_id = self.world.ids()
        runs = self.runs(refs, together)
        self.do(c.BufferLaunch(launch_id=launch_id, job=asset_of(refs[0]), location=HERE, owner="me", runs=runs))
        if starts and self.world.queries.launch(launch_id):
            self.do(c.StartLaunch(launch_id=launch_id, dagster_run_id=launch_id, holder="somewhere"))

    @rule(refs=some_refs, missing=missing_refs)
    def buffer_missed(self, refs, missing):
        runs = self.runs(refs, True)
        misses = tuple(c.RunMiss(run.job_run_id, dict.fromkeys(run.refs, missing)) for run in runs)
        self.do(
            c.BufferMissed(
                launch_id=self.world.ids(), job=asset_of(refs[0]), location=HERE, owner="me", runs=runs, misses=misses
            )
        )

    @rule(at=which)
    def start(self, at):
        if runs := self.job_runs(JobRunState.QUEUED):
            launch_id = runs[at % len(runs)].launch_id
            self.do(c.StartLaunch(launch_id=launch_id, dagster_run_id=launch_id, holder="somewhere"))

    @rule(at=which)
    def lose(self, at):
        if launches := self.world.queries.open_launches():
            launch_id = launches[at % len(launches)].launch_id
            self.do(c.LoseLaunches(launch_ids=(launch_id,), reason="its process is gone"))

    @rule(fraction=st.sampled_from([1, 1, 2, 3]))
    def fire_arcs(self, fraction):
        """Some orchestrator has followed the log so far; what another has followed before is within it."""
        up_to_seq = self.world.seq // fraction
        with self.world.store.reading() as connection:
            events = events_after(connection, 0, up_to_seq)
        published = tuple(
            c.Published(instance.uuid, instance.ref, instance.seq)
            for event in events
            for instance in published_by(event)
        )
        self.do(c.FireArcs(up_to_seq=up_to_seq, published=published))
        for arc in self.world.queries.arcs():
            fired = fired_by(self.world.store, arc.asset)
            assert len(fired) == len(set(fired)), f"{arc.asset} was woken twice by one of {fired}"

    # What job runs do

    def running(self, at):
        """A running job run; where there is none, a want is recorded and launched."""
        if not self.job_runs(JobRunState.RUNNING):
            refs = (REFS[at % len(REFS)], REFS[(at + 1 + at // 7) % len(REFS)])
            self.want_each(tuple(dict.fromkeys(refs)))
            self.buffer(tuple(dict.fromkeys(refs)), at % 2 == 0, True)
        runs = self.job_runs(JobRunState.RUNNING)
        return runs[at % len(runs)] if runs else None

    @rule(at=which, inputs=some_refs, empty=st.booleans())
    def succeed(self, at, inputs, empty):
        if run := self.running(at):
            read = {ref: seen.uuid for ref, seen in self.world.queries.canonical(inputs).items() if seen.uuid}
            outputs = tuple(OutputFact(ref=ref, inputs=read, manifest=EMPTY if empty else COMPLETE) for ref in run.refs)
            self.do(c.SucceedJobRuns(runs=(RunSuccess(run.id, outputs),)))

    @rule(at=which, missing=missing_refs, all_outputs=st.booleans())
    def miss(self, at, missing, all_outputs):
        if run := self.running(at):
            impacted = run.refs if all_outputs else run.refs[:1]
            self.do(c.MissDeps(misses=(c.RunMiss(run.id, dict.fromkeys(impacted, missing)),)))

    @rule(at=which, missing=missing_refs)
    def miss_again(self, at, missing):
        """Misses are what makes things interesting; so they come twice as often."""
        self.miss(at, missing, True)

    @rule(missing=st.lists(missing_refs, min_size=2, max_size=2))
    def miss_together(self, missing):
        runs = self.job_runs(JobRunState.RUNNING)[:2]
        misses = tuple(
            c.RunMiss(run.id, dict.fromkeys(run.refs, refs)) for run, refs in zip(runs, missing, strict=False)
        )
        if misses:
            self.do(c.MissDeps(misses=misses))

    @rule(at=which, kind=st.sampled_from(["hard", "transient"]))
    def fail(self, at, kind):
        if run := self.running(at):
            self.do(c.FailJobRuns(failures=(c.RunFailure(run.id, "it raised", kind),)))

    @rule(at=which)
    def report_late(self, at):
        ended = [run for run in self.world.queries.job_runs() if run.state is not JobRunState.RUNNING]
        if ended:
            run = ended[at % len(ended)]
            outputs = tuple(OutputFact(ref=ref, manifest=COMPLETE) for ref in run.refs)
            before = self.world.seq
            self.do(c.SucceedJobRuns(runs=(RunSuccess(run.id, outputs),)))
            assert self.world.seq == before

    @rule(ref=st.sampled_from(["source", "source", "a"]), origin=st.sampled_from(["1", "2", "3"]))
    def arrive(self, ref, origin):
        self.world.clock.turn(0)
        self.do(c.ArriveLots(arrivals=(c.Arrival(job_run_id=self.world.ids(), ref=ref, origin=origin),)))

    @rule(ref=st.sampled_from(REFS), at=which)
    def compact(self, ref, at):
        if uuid := self.instance(ref, at):
            self.do(c.ReplaceFiles(ref=ref, uuid=uuid, job_run_id=self.world.ids(), manifest=COMPLETE))

    @rule(ref=st.sampled_from(REFS), downstream=st.booleans())
    def taint_what_was_seen(self, ref, downstream):
        if seen := tuple(instance.uuid for instance in self.world.queries.history(ref) if instance.live_at is not None)[
            -2:
        ]:
            self.do(c.TaintPartitions(seen=seen, reason="rows offend", downstream=downstream))

    @rule(at=which, tainted=st.booleans())
    def remove_the_data_of_instances(self, at, tainted):
        uuids = [instance.uuid for ref in REFS for instance in self.world.queries.history(ref)]
        if uuids:
            some = tuple(uuids[at % len(uuids) :][:3])
            self.do(c.RemoveManifests(uuids=some, reason="enough of it", tainted=tainted))

    @rule()
    def finish_removals(self):
        if left := Removals(self.world.store).unfinished():
            self.do(c.FinishRemovals(uuids=tuple(instance.uuid for instance in left)))

    @rule(ref=st.sampled_from(REFS))
    def go_back_to_what_may_be_removed(self, ref):
        for instance in self.world.queries.history(ref):
            if instance.manifest_state == "removed":
                self.do(c.RevertCanonical(ref=ref, uuid=instance.uuid, force=True))
                assert not (self.world.uuid(ref) == instance.uuid and self.world.state(ref) is InstanceState.LIVE)

    # What time does, and what a lost answer does

    @rule(seconds=st.sampled_from([1.0, 30.0, 600.0, 4000.0, -100.0]))
    def turn_the_clock(self, seconds):
        self.world.clock.turn(seconds)

    @rule()
    def end_what_is_overdue(self):
        expiring, late = self.world.queries.overdue_wants(self.world.clock.now, 100)
        if late:
            self.do(c.MissSlas(want_ids=tuple(late)))
        if expiring:
            self.do(c.ExpireWants(want_ids=tuple(expiring)))

    @precondition(lambda self: self.last is not None)
    @rule()
    def say_it_again(self):
        command, command_id, events = self.last
        before = self.world.seq

        outcome = self.world.handle(command, command_id=command_id)

        assert outcome.repeated
        assert outcome.events == events
        assert self.world.seq == before

    # What must hold

    @invariant()
    def nothing_is_broken(self):
        assert self.world.broken() == []

    @invariant()
    def what_happened_folds(self):
        with self.world.store.reading() as connection:
            events = events_after(connection, self.read, 1000)
        queries = Queries(self.reader)
        before = queries.canonical(REFS)
        for event in events:
            with self.reader.writing() as work:
                fold(work, event)
            self.read = event.seq
            after = queries.canonical(REFS)
            moved = {ref for ref in REFS if after[ref] != before[ref] and before[ref].state not in _DERIVED}
            assert moved <= all_touched(queries, [event]), event
            before = after

    @invariant()
    def every_wait_is_for_a_ref_that_is_built(self):
        """Rule 6.4: each ref that is waited for is leased, or due now or after its backoff, or a source; or its wants are past their TTL."""
        waiting = [ref for ref in REFS if self.world.state(ref) is InstanceState.UPSTREAM_BUILDING]
        for ref in waiting:
            for missing in self.world.queries.missing_of(self.world.uuid(ref)):
                assert self.world.state(missing) not in (InstanceState.FAILED, InstanceState.UPSTREAM_FAILED)
                wanted = max((want.expires_at or float("inf") for want in self.world.open_wants(ref)), default=0.0)
                if wanted > max(self.world.clock.now, self.world.queries.head().at):
                    assert self.world.open_wants(missing), f"{ref} waits for {missing}, which has no open want"

    def teardown(self):
        assert self.world.apart() == []
        assert self.world.check() == []
        assert rows_of(self.world.store) == rows_of(self.reader)
        self.world.store.close()
        self.reader.close()


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    settings.get_profile("long" if LONG else "ci"),
    max_examples=1500 if LONG else 50,
    stateful_step_count=80 if LONG else 40,
)


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
        for launch in self.world.queries.open_launches():
            self.go_on(launch)

    def go_on(self, launch):
        if launch.dagster_run_id is None:
            self.launcher.set_status(launch.launch_id, DagsterRunStatus.RUNNING)
            self.world.start_launch(launch.launch_id)
        self.world.engine.beat([launch.launch_id])
        for run in self.world.queries.job_runs_of_launch(launch.launch_id):
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
            states = self.world.queries.states(self.hidden[ref])
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


def test_the_machine_above_knows_every_command():
    """An action that is not in it is not tried."""
    known = {cls.__name__ for cls in c.Command.__subclasses__()}

    used = {name for name in known if f"c.{name}(" in open(__file__).read()}

    of_the_meta_storage = {"InvokeMeta", "CompactMeta"}
    assert known - used - of_the_meta_storage == {"RegisterDatasets"}
    assert issubclass(Refused, DatabuildError)
