"""The future of an excerpt of the state, if nothing fails: the orchestrator's own ticks, with a Dagster that only counts time.

Each launch takes as long as the history of its job says, and then each of its job runs reports its data. All that is
ready is launched at once, so the time is that of the longest chain. The clock is the simulation's own.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from databuild_dagster.engine.arcs import ArcsCursor
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.follower import ProcessCursors
from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.ports import DagsterRunState, DagsterRunStatus, LaunchOrder, Observation
from databuild_dagster.engine.tick import tick
from databuild_dagster.engine.tick_pass import Pass, TickLimits
from databuild_dagster.engine.why.preview import expected_seconds
from databuild_dagster.features.what_if.alike import NOTHING_ALIKE, Alike
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import Catalog, DatasetSpec, InputSpec
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.events import ManifestFact, OutputFact, RunSuccess
from databuild_dagster.model.plan import launch_sets, outputs_by_key
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.states import OPEN_JOB_RUNS, InstanceState, JobRunState
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.job_runs import JobRunView, LaunchSpan, LaunchView
from databuild_dagster.store.store import Store

#: Steps of a simulation: each ends a launch or a backoff.
MAX_STEPS: Final = 1_000
#: Launches and due refs without a limit: a simulation holds few refs.
_NO_LIMITS: Final = TickLimits(launches=1_000_000, open_launches=1_000_000, due_refs=1_000_000)
_ACTOR: Final = "what-if"
#: Data that is never written. No reader sees the excerpt.
_NO_DATA: Final = ManifestFact(state="complete", uri="what-if")


class TooManySteps(Refused):
    """The simulation has no end within {most:,} steps."""

    hint = "Name fewer partitions; a long chain of builds has a step for each of them."


class SimulatedLaunch(NamedTuple):
    """Refs of the same job that are ready at the same time."""

    job: str
    location: str
    refs: tuple[Ref, ...]
    #: The launches by which the orchestrator builds them.
    n_launches: int
    #: From now; negative for a launch that is out already.
    begins_after: float
    #: The longest of the launches, and the sum over all launches; None without a history of the job.
    seconds: float | None
    seconds_of_all: float | None
    #: It was out when the simulation began.
    is_joined: bool


class _Cost(NamedTuple):
    n_launches: int
    seconds: float | None
    seconds_of_all: float | None


class Costs:
    """The seconds of launches, by the history of their jobs in the store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._spans: dict[str, list[LaunchSpan]] = {}

    def of(self, spec: DatasetSpec, refs: Sequence[Ref], *, is_out: bool) -> _Cost:
        """The cost of building the refs of a job as soon as all are ready; of a running launch, its own cost."""
        sets = [outputs_by_key(refs)] if is_out else launch_sets(self._engine.catalog, spec, refs)
        if spec.job not in self._spans:
            self._spans[spec.job] = self._engine.queries.launches.spans(spec.asset)
        known = [expected_seconds(self._spans[spec.job], len(by_key)) for by_key in sets]
        seconds = [each_seconds for each_seconds in known if each_seconds is not None]
        if not seconds:
            return _Cost(len(sets), None, None)
        total = sum(seconds)
        return _Cost(len(sets), max(max(seconds), total / (spec.concurrency or len(seconds))), total)


class _OneLaunch:
    """The catalog of the store, but for the size of a launch: a single launch takes all refs of a job that are ready.

    `Costs` counts the launches of the orchestrator. Simulating each would take a second for a few thousand. An input that is not
    simulated is replaced by the ref that is simulated for it.
    """

    def __init__(self, catalog: Catalog, alike: Alike) -> None:
        self._catalog, self._alike = catalog, alike
        self.why_not, self.absent = catalog.why_not, catalog.absent
        self.woken, self.left_out, self.is_moved = catalog.woken, catalog.left_out, catalog.is_moved

    def inputs(self, dataset: DatasetSpec, partition_key: str | None) -> tuple[Ref, ...]:
        return self._alike.ones_for(self._catalog.inputs(dataset, partition_key))

    def launchable(
        self, dataset: DatasetSpec, partition_keys: tuple[str | None, ...], most: int
    ) -> tuple[tuple[str | None, ...], ...]:
        return (partition_keys,)

    def follows_key(self, dataset: DatasetSpec, spec: InputSpec) -> bool:
        return self._catalog.follows_key(dataset, spec)


class _Dagster:
    """`Launcher` and `Foreign`: every Dagster run runs, and foreign refs are as the excerpt has them."""

    def __init__(self, engine: Engine, never: Collection[Ref]) -> None:
        self._engine, self._never = engine, never

    def launch(self, order: LaunchOrder) -> None:
        """The launch is in the excerpt, where the simulation finds it."""

    def dagster_runs(self, launches: dict[str, str | None]) -> dict[str, DagsterRunState]:
        return {
            launch_id: DagsterRunState(run_id or f"what-if-{launch_id}", DagsterRunStatus.RUNNING)
            for launch_id, run_id in launches.items()
        }

    def fail_dagster_run(self, dagster_run_id: str, message: str) -> None:
        raise AssertionError(f"no launch of a simulation is lost: {message}")

    def observe(self, refs: tuple[Ref, ...]) -> dict[Ref, Observation]:
        known = self._engine.queries.canonical.of(refs)
        return {
            ref: Observation(True, seen.known_origin)
            if seen.state is InstanceState.LIVE and ref not in self._never
            else Observation(False)
            for ref, seen in known.items()
        }


class Simulation:
    """A future. `engine` handles commands on the excerpt, by the simulation's clock."""

    def __init__(
        self,
        engine: Engine,
        excerpt: Store,
        asked_for: Mapping[Ref, tuple[Ref, ...]],
        never: Collection[Ref] = (),
        alike: Alike = NOTHING_ALIKE,
    ) -> None:
        """`engine` is the store's; `asked_for` are inputs that functions ask for; `never` are refs that never come.

        The excerpt may have a single ref of refs that are `alike`; launches name all of them.
        """
        self._began_at = self._now = engine.now()
        self.alike = alike
        self.engine = Engine(
            excerpt, _OneLaunch(engine.catalog, alike), clock=lambda: self._now, steady=lambda: self._now
        )
        self.launches: list[SimulatedLaunch] = []
        #: Refs, arcs and launches that the last ticks set aside, and why.
        self.aside: dict[str, str] = {}
        self._costs = Costs(engine)
        self._asked_for = {ref: alike.ones_for(refs) for ref, refs in asked_for.items()}
        self._never = frozenset(alike.ones_for(never))
        self._dagster = _Dagster(self.engine, self._never)
        self._judge = Judge(gone=lambda holder: False)
        self._was_out = {launch.launch_id for launch in self.engine.queries.launches.open()}
        #: The end of each launch that is out, and the launches that have begun.
        self._ends: dict[str, float] = {}
        self._begun: set[str] = set()
        self._follow_arcs_from_now()

    def _follow_arcs_from_now(self) -> None:
        """The excerpt has no earlier event, so that no earlier instance wakes an arc."""
        arcs = frozenset((arc.asset, arc.since) for arc in self.engine.queries.datasets.arcs())
        ProcessCursors(self.engine).store("arcs", ArcsCursor(self.engine.queries.events.head().seq, followed=arcs))

    def run(self) -> None:
        """Tick until nothing moves any more. Raises `TooManySteps`."""
        queries = self.engine.queries
        for _ in range(MAX_STEPS):
            self._tick()
            self._begin_launches()
            if self._ends:
                self._now = max(self._now, min(self._ends.values()))
                self._end_launches([id for id, at in self._ends.items() if at <= self._now])
            elif (at := queries.planning.next_retry(queries.datasets.all(), self._now)) is not None:
                self._now = at
            else:
                return
        raise TooManySteps(most=MAX_STEPS)

    @property
    def seconds(self) -> float:
        """The time that has passed."""
        return self._now - self._began_at

    def _tick(self) -> None:
        self.aside = {}
        # A job run that never ends keeps no other of its job from being launched.
        datasets = {
            id: msgspec.structs.replace(spec, concurrency=None)
            for id, spec in self.engine.queries.datasets.all().items()
        }
        for location in sorted({spec.location for spec in datasets.values() if spec.kind.is_built}):
            # No launch falls silent.
            self.engine.beat(launch.launch_id for launch in self.engine.queries.launches.open())
            report = tick(
                Pass(
                    self.engine,
                    location=location,
                    launcher=self._dagster,
                    foreign=self._dagster,
                    judge=self._judge,
                    owner=_ACTOR,
                    limits=_NO_LIMITS,
                    datasets=datasets,
                )
            )
            self.aside |= report.set_aside

    def _begin_launches(self) -> None:
        for launch in self.engine.queries.launches.open():
            if launch.launch_id in self._begun:
                continue
            self._begun.add(launch.launch_id)
            runs = self.engine.queries.job_runs.of_launch(launch.launch_id)
            if launch.dagster_run_id is None:
                run_id = f"what-if-{launch.launch_id}"
                self.engine.handle(
                    c.StartLaunch(launch_id=launch.launch_id, dagster_run_id=run_id, holder=_ACTOR), actor=_ACTOR
                )
            refs = tuple(ref for run in runs if run.state in OPEN_JOB_RUNS and self._may_end(run) for ref in run.refs)
            if refs:
                self._note(launch, refs)

    def _may_end(self, run: JobRunView) -> bool:
        """A job run of a ref that never comes runs on."""
        return self._never.isdisjoint(run.refs)

    def _note(self, launch: LaunchView, simulated: tuple[Ref, ...]) -> None:
        refs = self.alike.all_of(simulated)
        spec = self._datasets().get(asset_of(refs[0]))
        is_joined = launch.launch_id in self._was_out
        cost = _Cost(1, None, None) if spec is None else self._costs.of(spec, refs, is_out=is_joined)
        begins_at = (launch.started_at or self._now) if is_joined else self._now
        self._ends[launch.launch_id] = max(begins_at + (cost.seconds or 0.0), self._now)
        begins_after = begins_at - self._began_at
        self.launches.append(
            SimulatedLaunch(
                launch.job, launch.location, refs, cost.n_launches, begins_after, *cost[1:], is_joined=is_joined
            )
        )

    def _end_launches(self, launch_ids: Sequence[str]) -> None:
        """Each job run succeeds, or misses an input that its function asks for."""
        for launch_id in launch_ids:
            del self._ends[launch_id]
        runs = [
            run
            for launch_id in launch_ids
            for run in self.engine.queries.job_runs.of_launch(launch_id)
            if run.state is JobRunState.RUNNING and self._may_end(run)
        ]
        datasets = self._datasets()
        inputs = {ref: self._declared(ref, datasets) for run in runs for ref in run.refs}
        reads = {ref: (*needs, *self._asked_for.get(ref, ())) for ref, needs in inputs.items()}
        known = self.engine.queries.canonical.of(sorted({need for needs in reads.values() for need in needs}))
        misses, successes = [], []
        for run in runs:
            impacted = {ref: missing for ref in run.refs if (missing := _not_live(self._asked_for.get(ref, ()), known))}
            if impacted:
                misses.append(c.RunMiss(run.id, impacted))
            else:
                successes.append(RunSuccess(run.id, tuple(_output(ref, reads[ref], known) for ref in run.refs)))
        if misses:
            self.engine.handle(c.MissDeps(misses=tuple(misses)), actor=_ACTOR)
        if successes:
            self.engine.handle(c.SucceedJobRuns(runs=tuple(successes)), actor=_ACTOR)

    def _datasets(self) -> dict[str, DatasetSpec]:
        return {spec.asset: spec for spec in self.engine.queries.datasets.all().values()}

    def _declared(self, ref: Ref, datasets: Mapping[str, DatasetSpec]) -> tuple[Ref, ...]:
        spec = datasets.get(asset_of(ref))
        return (
            self.engine.catalog.inputs(spec, partition_key_of(ref)) if spec is not None and spec.kind.is_built else ()
        )


def _not_live(refs: Sequence[Ref], known: Mapping[Ref, Canonical]) -> tuple[Ref, ...]:
    return tuple(ref for ref in refs if known[ref].state is not InstanceState.LIVE)


def _output(ref: Ref, reads: Sequence[Ref], known: Mapping[Ref, Canonical]) -> OutputFact:
    inputs = {need: uuid for need in reads if (uuid := known[need].uuid) is not None}
    return OutputFact(ref=ref, inputs=inputs, manifest=_NO_DATA)
