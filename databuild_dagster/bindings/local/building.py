"""Refs become live by ticks of this process: want, tick, execute what was launched, until every want has ended (rule 8.9).

Bounded by the wants: they end when their refs are live or failed. When nothing builds what they need and they are still open,
what is missing cannot be built here, and that is the answer.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import msgspec

from databuild_dagster.bindings.local.interrupts import Alarm, Stopped, heed_no_more_interrupts
from databuild_dagster.bindings.local.result import Result, Screen
from databuild_dagster.bindings.local.second_builds import (
    ComparedBuild,
    NotDeterministic,
    compared_builds,
    verified_in_words,
)
from databuild_dagster.bindings.local.tally import Tally
from databuild_dagster.data.environment import environment_of_store
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_process, this_user
from databuild_dagster.engine.ports import Sample, sample_of_build
from databuild_dagster.engine.set_aside import SetAside
from databuild_dagster.engine.tick import TickReport
from databuild_dagster.engine.tick_pass import TickLimits
from databuild_dagster.engine.why.awaited import awaited_by
from databuild_dagster.engine.why.built_again import built_again
from databuild_dagster.engine.why.first_failures import FirstFailure, damaged_inputs, first_failures
from databuild_dagster.engine.wording import pause_in_words, to_resume
from databuild_dagster.feature import rows
from databuild_dagster.model.commands import CancelJobRuns, CancelWants, CreateWants, RetryRefs
from databuild_dagster.model.errors import DatabuildError, Refused
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.set_aside import cause_of
from databuild_dagster.model.states import FAILING, OPEN_JOB_RUNS, OPEN_WANTS, InstanceState, JobRunState, WantState
from databuild_dagster.model.wording import counted, few_of, one_line, typed
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.planning import AwaitedRun, UnservedRef
from databuild_dagster.warehouse.threads import in_own_thread

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun, RepositoryDefinition

    from databuild_dagster.bindings.authoring.location import CodeLocation
    from databuild_dagster.bindings.local.load_note import LoadWatch
    from databuild_dagster.bindings.orchestration.duties import Beside, Place
    from databuild_dagster.bindings.orchestration.side_ticks import SideReport
    from databuild_dagster.engine.ports import LaunchOrder
    from databuild_dagster.model.datasets import DatasetSpec


#: Paused refs that a build names.
MAX_PAUSES = 3
#: Assets of the sentence about a result.
MAX_NAMED = 5
#: How long to wait before looking again at what others are building.
WAIT_SECONDS = 0.5
#: How long to rest before the next tick, when the log has grown during one that had nothing to do.
REST_SECONDS = 0.1
#: The limit is that of `Launches`, not of the deployment.
ANY_NUMBER = 1_000_000
#: The time to the next tick while launches run, if none of them ends: their refs become live one by one, and a tick for each
#: of them would make many small launches of what they feed.
TICK_SECONDS = 5.0


class BuildTimedOut(DatabuildError):
    """The build has not ended after {seconds:g} s: it waits for {what}."""

    hint = "Its wants stay open: the same command, or an orchestrator, continues."


class BuildFailed(DatabuildError):
    """Not live: {refs}. {ref}: {why}."""

    hint = "`databuild explain {ref}` says more."


class Progress(Protocol):
    """A display of ticks."""

    def launching(self, job: str, n_partitions: int) -> None: ...
    def waiting(self, sentence: str) -> None: ...
    def side_ticked(self, done: SideReport) -> None: ...


class BuildDisplay(Progress, Protocol):
    """A display of a build."""

    tally: Tally

    def timed_out(self, seconds: float) -> None: ...
    def end(self) -> None: ...


@dataclass
class Workshop:
    """Everything this process needs to build: the instance, the engine, the loaded code."""

    instance: DagsterInstance
    engine: Engine
    locations: list[CodeLocation]
    #: Of all locations, by row id, as they were registered when this process began.
    datasets: Mapping[int, DatasetSpec]
    launches: Launches
    #: What the registration warns of.
    warnings: tuple[str, ...] = ()
    #: Whether Dagster's lines are printed: there is a file for them.
    has_log: bool = False
    #: The last event of a build whose duties at its end left nothing to do; None before, and otherwise.
    finished_at: int | None = None
    #: Threads that do the work of duties while launches run, by location and duty.
    _beside: dict[tuple[str, str], Beside] = field(default_factory=dict)

    @classmethod
    def opened(cls, instance: DagsterInstance, locations: list[CodeLocation], *, at_once: int | None = 1) -> Workshop:
        """Register the locations, and make Dagster's own reads and writes cheap in this process.

        `at_once` is how many launches may run at a time, None as many as suit the project. Raises `LocationTaken`.
        """
        from databuild_dagster.bindings.adapter.dagster_private import (
            interrupt_waits_for_pools,
            send_no_telemetry,
            shield_log_tails,
        )
        from databuild_dagster.bindings.adapter.sqlite_tuning import tune_dagster_writes
        from databuild_dagster.bindings.local.at_once import at_once_of
        from databuild_dagster.bindings.local.locations import register_all
        from databuild_dagster.bindings.registry.instance import engine_for

        send_no_telemetry(instance)
        tune_dagster_writes()
        shield_log_tails()
        interrupt_waits_for_pools()
        engine = engine_for(instance)
        registered = register_all(engine, locations)
        launches = Launches(instance, at_once_of(instance, locations) if at_once is None else at_once)
        return cls(instance, engine, locations, registered.datasets, launches, warnings=registered.warnings)

    @classmethod
    def without_code(cls, engine: Engine) -> Workshop:
        """A workshop that records wants and neither builds nor waits. It imports no Dagster."""
        instance = cast("DagsterInstance", None)
        return cls(instance, engine, [], {}, Launches(instance))

    def tick(
        self,
        progress: Progress | None = None,
        serving: Collection[Ref] | None = None,
        *,
        has_threads_beside: bool = True,
    ) -> TickReport:
        """One tick for every location, and the launches that it gave, begun here. `serving`: as `run_tick`.

        Threads may work for duties, such as one that writes copies into a bucket: call `finish_duties` or `leave_duties` after
        the last tick. Without threads the tick does all duties itself, as far as a tick may.
        """
        from databuild_dagster.bindings.claims.launcher import OrderCollector
        from databuild_dagster.bindings.orchestration.inprocess import QUIET
        from databuild_dagster.bindings.orchestration.orchestrator import run_tick

        side_ticks = rows(lambda feature: feature.side_ticks)
        whole = TickReport()
        for location in self.locations:
            assert location.deployment is not None, "only locations with a deployment are opened"
            if not self.launches.n_free:
                break  # A later tick launches what is due there.
            launcher = OrderCollector(self.instance)
            limits = TickLimits(launches=self.launches.n_free, open_launches=ANY_NUMBER)
            deployment = replace(location.deployment, limits=limits)
            beside = self._threads_beside(location) if has_threads_beside else {}
            report = run_tick(self.instance, location.repository, deployment, launcher, serving=serving, beside=beside)
            whole.add(report)
            for side_tick in side_ticks:
                side_report = side_tick.tick(self.instance, location.deployment)
                if progress is not None:
                    progress.side_ticked(side_report)
            for order in launcher.take_orders():
                if progress is not None:
                    progress.launching(order.job, len(order.partition_keys))
                # Alive from here on: making the Dagster run takes a moment in which nothing else says so.
                self.engine.beat([order.launch_id])
                self.launches.begin(location.repository, order, "DEBUG" if self.has_log else QUIET)
        return whole

    def finish_duties(self, *, is_cut_short: bool = False) -> bool:
        """Do what is left of the duties that the next tick would do, because no tick of this process follows.

        Each gets some time, and little if the build was cut short. Returns True if nothing is left for the next tick.
        """
        if not self.locations:
            return False
        from databuild_dagster.bindings.orchestration.duties import CUT_SHORT_SECONDS, duties_in

        seconds = CUT_SHORT_SECONDS if is_cut_short else None
        is_all = not is_cut_short
        for location in self.locations:
            place = self._place(location)
            for duty in duties_in(self.instance):
                if (beside := self._beside.pop((place.deployment.location, duty.name), None)) is not None:
                    beside.finish(seconds)
                    is_all = False
                elif duty.finish is not None:
                    is_all = duty.finish(place, seconds) is True and is_all
        return is_all

    def note_load(self, watch: LoadWatch) -> None:
        """Note the load of the locations for later commands, if it registered them as they are and the duties have ended."""
        from databuild_dagster.bindings.declare.asset_spec import body_of

        # Another process may have registered meanwhile.
        is_registered = not self.warnings and self.engine.queries.datasets.all() == self.datasets
        if self.finished_at is not None and is_registered:
            graphs = (location.repository.asset_graph for location in self.locations)
            bodies = (body_of(assets_def) for graph in graphs for assets_def in graph.assets_defs)
            functions = [body.function for body in bodies if body is not None]
            called = [location.attribute for location in self.locations if location.attribute is not None]
            watch.write(functions, self.finished_at, self.engine.queries.events.fingerprint(self.finished_at), called)

    def leave_duties(self) -> None:
        """End the threads that work for duties; the next tick does what is left."""
        while self._beside:
            self._beside.popitem()[1].close()

    def _threads_beside(self, location: CodeLocation) -> dict[str, Beside]:
        """By duty, the threads that work for a location while launches run."""
        from databuild_dagster.bindings.orchestration.duties import duties_in

        place = self._place(location)
        found: dict[str, Beside] = {}
        for duty in duties_in(self.instance):
            if duty.beside is None:
                continue
            name = (place.deployment.location, duty.name)
            if name not in self._beside and (begun := duty.beside(place)) is not None:
                self._beside[name] = begun
            if name in self._beside:
                found[duty.name] = self._beside[name]
        return found

    def _place(self, location: CodeLocation) -> Place:
        from databuild_dagster.bindings.orchestration.duties import Place

        assert location.deployment is not None, "only locations with a deployment are opened"
        return Place(self.instance, location.deployment, self._datasets_of(location))

    def _datasets_of(self, location: CodeLocation) -> list[DatasetSpec]:
        assert location.deployment is not None, "only locations with a deployment are opened"
        return [spec for spec in self.datasets.values() if spec.location == location.deployment.location]


class NotLive(msgspec.Struct, frozen=True):
    """A ref of the request that is not live in the end."""

    ref: Ref
    state: InstanceState | None
    why: str


class AssetDone(NamedTuple):
    """An asset of a build: its refs by column, and the seconds of its launches."""

    asset: str
    counts: Counter[str]
    seconds: float


@dataclass(frozen=True, kw_only=True, repr=False)
class BuildResult(Result):
    """The outcome of a build. A notebook shows it as a table."""

    request_id: str
    #: Refs of the request that are live.
    live: int
    #: Those among them that were live before.
    reused: int
    #: Live refs of the request that were built from instances that were tainted or replaced since.
    stale: Sequence[Ref]
    #: The other refs of the request, each with its state and why.
    not_live: Sequence[NotLive]
    #: Of this process; the next four are its job runs by outcome.
    launches: int
    succeeded: int
    dep_missed: int
    failed: int
    canceled: int
    #: Refs that this process built with the rows that they had (rule 4.8).
    equal: int
    #: Live refs that were built from the rows of `equal` before, and are not built again for them.
    cut_off: int
    #: Refs that got an earlier instance in place of a build meanwhile (rule 4.9).
    returned: int
    #: The assets of the request and of its inputs, as far as something was built or is not live.
    assets: Sequence[AssetDone]
    seconds: float
    interrupted: bool
    #: Open wants that arcs recorded meanwhile: an orchestrator builds them.
    left_to_orchestrator: int
    #: The build ended for its timeout.
    timed_out: BuildTimedOut | None
    #: The job runs for which it waited then.
    waits_for: Sequence[AwaitedRun]
    #: The failures behind the refs that are not live (rule 6.15).
    failed_first: Sequence[FirstFailure]
    #: What to do about the refs that are not live.
    hints: Sequence[str]
    #: The compared second builds of the refs (rule 4.9); None of a build without `verify`, or of one that was cut short.
    verified: Sequence[ComparedBuild] | None = None

    def check(self) -> BuildResult:
        """The result itself if all refs are live, and no second build has other rows.

        Raises `BuildTimedOut`, `BuildFailed`, `NotDeterministic`.
        """
        if self.timed_out is not None:
            raise self.timed_out
        if self.not_live:
            first = self.not_live[0]
            raise BuildFailed(refs=few_of([ref.ref for ref in self.not_live]), why=first.why, ref=first.ref)
        for error in self.not_deterministic:
            raise error
        return self

    @property
    def not_deterministic(self) -> list[NotDeterministic]:
        """An error for each second build that has other rows than the first."""
        return [build.error for build in self.verified or () if build.outcome == "different"]

    @property
    def sentence(self) -> str:
        """How many refs are live, and what was built in how much time."""
        reused = f" ({self.reused} before)" if self.reused else ""
        if self.launches or self.not_live:
            parts = few_of([_in_words(done) for done in self.assets], MAX_NAMED)
            doing = f" in {self.seconds:.1f} s{': ' if parts else ''}{parts}."
        else:
            doing = f"; nothing to build; {self.seconds:.1f} s."
        if self.equal:
            follows = (
                f"leaves {counted(self.cut_off, 'ref')} downstream as before" if self.cut_off else "makes nothing stale"
            )
            doing += f" {counted(self.equal, 'ref')} got equal rows again, which {follows}."
        if self.returned:
            doing += f" {counted(self.returned, 'ref')} got an earlier instance back, whose code and inputs are equal."
        if self.verified is not None:
            doing += verified_in_words(self.verified, n_returned=self.returned)
        if self.canceled:
            doing += f" {counted(self.canceled, 'job run')} canceled."
        if self.left_to_orchestrator:
            doing += f" {counted(self.left_to_orchestrator, 'want')} of arcs left to the orchestrator."
        return f"{self.live} of {counted(self.live + len(self.not_live), 'ref')} live{reused}{doing}"

    def shown(self) -> Screen:
        alike: dict[tuple[str, str, str], list[NotLive]] = {}
        for ref in self.not_live:
            state = ref.state.in_words if ref.state else "missing"
            alike.setdefault((asset_of(ref.ref), state, cause_of(ref.why, ref.ref)), []).append(ref)
        rows = [(few_of([ref.ref for ref in refs], 1), state, refs[0].why) for (_, state, _), refs in alike.items()]
        late = [] if self.timed_out is None else [self.timed_out]
        wrong = self.not_deterministic
        errors = [f"{error.message} {error.advice}" for error in (*late, *wrong[:MAX_NAMED])]
        if len(wrong) > MAX_NAMED:
            errors.append(f"{counted(len(wrong) - MAX_NAMED, 'more ref')} with other rows; `--json` names all.")
        return Screen(self.sentence, ("ref", "state", "why"), rows, (*self.hints, *errors))


def _in_words(done: AssetDone) -> str:
    """For example: orders 31 (2.1 s), or orders 2 live, 1 failed (2.1 s)."""
    found = +done.counts
    named = {"waiting": "not built"}
    words = ", ".join(f"{n} {named.get(name, name)}" for name, n in found.items())
    only_live = str(found["live"]) if set(found) == {"live"} else words
    return f"{done.asset} {only_live}" + (f" ({done.seconds:.1f} s)" if done.seconds else "")


def build_refs(
    workshop: Workshop,
    command: CreateWants,
    *,
    progress: BuildDisplay,
    timeout_seconds: float | None = None,
    retry: bool = False,
    keep_want: bool = False,
    sample: Sample | None = None,
) -> BuildResult:
    """Create wants, and work until all of them have ended, or the timeout. `keep_want`: also after an interrupt they stay open.
    `sample`: what is built a second time in place of an earlier instance.

    Raises `DatabuildError` before anything is recorded, and `Stopped` afterwards.
    """
    engine = workshop.engine
    # To import the providers costs a build of live refs a tenth of its time.
    is_environment = environment_of_store(engine.store.path) is not None
    for provide in rows(lambda feature: feature.provides) if is_environment else ():
        provide(engine, ())
    refs = [ref for want in command.wants for ref in want]
    failed = [ref for ref, state in engine.queries.canonical.states(refs).items() if state in FAILING] if retry else []
    rebuild = command.rebuild or command.fresh or bool(failed)
    if workshop.locations:
        from databuild_dagster.bindings.authoring.preflight import prepare_machine

        prepare_machine(workshop.instance, workshop.locations, workshop.datasets.values(), refs, rebuild=rebuild)
    if failed:
        engine.handle(RetryRefs(refs=tuple(failed), reason="databuild build --retry"), actor=this_user())
    outcome = engine.handle(command, actor=this_user())
    assert outcome.request_id is not None
    token = sample_of_build.set(sample)
    try:
        if sample is not None:
            waiting = [build.ref for build in engine.queries.instances.second_builds(refs) if build.second is None]
            sample.is_met = any(state not in FAILING for state in engine.queries.canonical.states(waiting).values())
        result = _build(workshop, outcome.request_id, refs, progress, timeout_seconds, keep_want)
        if sample is None or result.interrupted or result.timed_out is not None:
            return result
        try:
            builds = compared_builds(engine.queries, dict.fromkeys((*refs, *progress.tally.states)))
        except KeyboardInterrupt:
            return replace(result, interrupted=True)
        return replace(result, verified=builds)
    except Exception as error:
        workshop.launches.abandon()
        workshop.leave_duties()
        raise Stopped from error
    finally:
        sample_of_build.reset(token)


def _build(
    workshop: Workshop,
    request_id: str,
    refs: Sequence[Ref],
    progress: BuildDisplay,
    timeout_seconds: float | None,
    keep_want: bool,
) -> BuildResult:
    began, engine = time.monotonic(), workshop.engine
    unserved = engine.queries.planning.unserved(request_id)
    course = _Course(request_id)
    alarm = Alarm(timeout_seconds, progress.timed_out)
    try:
        with alarm:
            _work(workshop, course, progress, _served(engine, request_id, unserved))
    except KeyboardInterrupt:
        course.interrupted = not alarm.has_rung
        with suppress(KeyboardInterrupt):
            workshop.launches.abandon()
        heed_no_more_interrupts()
        if alarm.has_rung:
            _report_timeout(engine, course, timeout_seconds)
        _clean_up(engine, request_id, keep_wants=keep_want or alarm.has_rung)
    progress.end()
    result = _result(engine, refs, progress.tally, course, reused=len(refs) - len(unserved), began=began)
    is_cut_short = course.interrupted or course.timed_out is not None
    # Ctrl-C ends this wait alone: the refs are what they are, and the next tick writes what is left.
    with suppress(KeyboardInterrupt):
        if workshop.finish_duties(is_cut_short=is_cut_short):
            workshop.finished_at = progress.tally.seq
    return result


@dataclass
class _Course:
    """What happened to a build, which the log does not have."""

    request_id: str
    #: Refs that arcs wanted meanwhile.
    fired: set[Ref] = field(default_factory=set)
    hints: list[str] = field(default_factory=list)
    interrupted: bool = False
    timed_out: BuildTimedOut | None = None
    waits_for: list[AwaitedRun] = field(default_factory=list)


def _work(workshop: Workshop, course: _Course, progress: Progress, serving: list[Ref]) -> None:
    engine = workshop.engine
    pause = threading.Event()
    # Without code no tick finds that a process has ended, or that nothing is left to wait for.
    while serving and workshop.locations:
        report = workshop.tick(progress, serving)
        course.fired.update(report.fired)
        if workshop.launches.n_running:
            workshop.launches.wait(TICK_SECONDS if workshop.launches.n_free else None)
        serving = _served(engine, course.request_id)
        if not report.idle or not serving or workshop.launches.n_running:
            continue
        waiting = awaited_by(engine, serving, report.planned_at)
        if waiting.job_runs or waiting.outages:
            progress.waiting(waiting.sentence)
            pause.wait(WAIT_SECONDS)
        elif waiting.retry_at is not None:
            if damaged := damaged_inputs(engine, serving):
                course.hints += [*damaged, "The wants stay open: this command continues once that is repaired."]
                return
            pause.wait(min(max(waiting.retry_at - engine.now(), 0.0), WAIT_SECONDS))
        elif engine.queries.events.head().seq != report.began_at:
            # A launch that was out during the tick may have ended since; the next tick sees what became due by that. Other
            # processes may write all the time.
            pause.wait(REST_SECONDS)
        else:
            course.hints += _pauses(engine, serving) or _nothing_to_do(engine, serving, report)
            return
    workshop.launches.finish()


def _served(engine: Engine, request_id: str, unserved: Sequence[UnservedRef] | None = None) -> list[Ref]:
    """The refs of the request that are not live, and those that are kept for it; none when no want of both is open.

    `unserved` is the store's answer, if the caller has it.
    """
    unserved = engine.queries.planning.unserved(request_id) if unserved is None else unserved
    states = {state for _, state in unserved}
    kept = engine.queries.wants.refs_kept_for(request_id) if WantState.UPSTREAM_FAILED in states else []
    return [*dict.fromkeys(ref for ref, _ in unserved), *kept] if kept or not states.isdisjoint(OPEN_WANTS) else []


def _report_timeout(engine: Engine, course: _Course, seconds: float | None) -> None:
    """Say what the request waits for, while the job runs of this process are still open."""
    if serving := _served(engine, course.request_id):
        waiting = awaited_by(engine, serving, engine.now())
        course.waits_for = waiting.job_runs
        # The interrupt may have ended the job runs of this process already.
        known = waiting.job_runs or waiting.outages or waiting.retry_at is not None
        what = waiting.sentence if known else f"{few_of(serving)} to be built"
        course.timed_out = BuildTimedOut(seconds=seconds, what=what)


def _nothing_to_do(engine: Engine, serving: Sequence[Ref], report: TickReport) -> list[str]:
    """The reasons for which the tick set needed refs aside (rule 11.5), and the command that leads to other causes."""
    needed = {*serving, *(need.ref for need in engine.queries.planning.waited_for(serving, engine.now()))}
    aside = SetAside()
    aside.update({name: why for name, why in report.set_aside.items() if name in needed})
    return [
        *aside.sentences(),
        f"Nothing that is left can be built here; the wants stay open. `databuild explain {typed(serving[0])}` says why.",
    ]


def _pauses(engine: Engine, serving: Sequence[Ref]) -> list[str]:
    """A sentence for each of the first refs that are paused, of those served and of what they wait for (rule 6.13)."""
    now = engine.now()
    needed = [need.ref for need in engine.queries.planning.waited_for(serving, now)]
    states = engine.queries.canonical.states(dict.fromkeys((*serving, *needed)))
    not_live = [ref for ref, state in states.items() if state is not InstanceState.LIVE]
    paused = engine.queries.planning.paused(not_live, now)
    sentences = [f"{ref} is {pause_in_words(ref, pause)}; {to_resume(pause)}." for ref, pause in paused.items()]
    more = len(sentences) - MAX_PAUSES
    return sentences[:MAX_PAUSES] + ([f"{more} more are paused; `databuild status` lists them."] if more > 0 else [])


def _clean_up(engine: Engine, request_id: str, *, keep_wants: bool) -> None:
    """Cancel the job runs of this process, and unless they are to stay open the wants of this request alone: refs that others
    want too are built by their orchestrator."""
    for launch in engine.queries.launches.open():
        if this_process() not in (launch.owner, launch.holder):
            continue
        runs = engine.queries.job_runs.of_launch(launch.launch_id)
        open_runs = tuple(run.id for run in runs if run.state in OPEN_JOB_RUNS)
        _unless_refused(engine, CancelJobRuns(job_run_ids=open_runs, reason="interrupted", keep_wants=True))
    if not keep_wants:
        _unless_refused(engine, CancelWants(ids=(request_id,), reason="interrupted"))


def _unless_refused(engine: Engine, command: CancelJobRuns | CancelWants) -> None:
    """They may have ended by themselves a moment ago, which is as good."""
    try:
        engine.handle(command, actor=this_user())
    except Refused:
        return


def _result(
    engine: Engine, refs: Sequence[Ref], tally: Tally, course: _Course, *, reused: int, began: float
) -> BuildResult:
    """What this process buffered or started, by how it ended, each asset, and the refs as they are now."""
    queries, hints = engine.queries, course.hints
    outcomes = Counter(tally.outcomes.values())
    seconds = tally.seconds(engine.now() if tally.running() else 0.0)
    if outcomes[JobRunState.CANCELED] and course.timed_out is None:
        canceled = [job_run for job_run, outcome in tally.outcomes.items() if outcome is JobRunState.CANCELED]
        hints += built_again(engine, [ref for run in queries.job_runs.named(canceled).values() for ref in run.refs])
    wanted = queries.planning.wanted(course.fired).values() if course.fired else ()
    found = queries.canonical.of(refs)
    live = [canonical for canonical in found.values() if canonical.state is InstanceState.LIVE]
    were_replaced = queries.instances.stale([canonical.uuid for canonical in live if canonical.uuid is not None])
    stale = [canonical.ref for canonical in live if canonical.uuid in were_replaced]
    if stale:
        named = stale[0] if len(refs) == 1 else "REFS"
        hints.append(
            f"Reused stale: {few_of(stale)}. An input was tainted or replaced since; "
            f"`databuild build --only stale --rebuild {typed(named)}` builds what is stale again."
        )
    if len(live) < len(found):
        # A log that went back has lost the wants too, so that no tick found it out.
        queries.events.check_head(queries.events.head())
    not_live = [
        NotLive(ref, canonical.state, one_line(_why_not_live(engine, canonical, course)))
        for ref, canonical in found.items()
        if canonical.state is not InstanceState.LIVE
    ]
    failures = first_failures(engine, [ref.ref for ref in not_live])
    hints += failures.beside({ref.ref for ref in not_live}) if failures else []
    return BuildResult(
        request_id=course.request_id,
        live=len(live),
        reused=reused,
        stale=stale,
        not_live=not_live,
        launches=sum(launch.is_ours and launch.has_started for launch in tally.launches.values()),
        succeeded=outcomes[JobRunState.SUCCEEDED],
        dep_missed=outcomes[JobRunState.DEP_MISSED],
        failed=outcomes[JobRunState.FAILED] + outcomes[JobRunState.LOST],
        canceled=outcomes[JobRunState.CANCELED],
        equal=len(tally.equal),
        cut_off=queries.instances.n_cut_off(tally.equal) if tally.equal else 0,
        returned=len(tally.returned),
        assets=[
            AssetDone(asset, counts, seconds.get(asset, 0.0))
            for asset, counts in tally.count().items()
            if asset in seconds or set(+counts) != {"live"}
        ],
        seconds=time.monotonic() - began,
        interrupted=course.interrupted,
        left_to_orchestrator=sum(bool(found.n_open_wants) for found in wanted),
        timed_out=course.timed_out,
        waits_for=course.waits_for,
        failed_first=list(failures.named) if failures else [],
        hints=hints,
    )


def _why_not_live(engine: Engine, canonical: Canonical, course: _Course) -> str:
    if canonical.uuid is not None and canonical.state is InstanceState.UPSTREAM_BUILDING:
        return "waits for " + ", ".join(engine.queries.planning.missing_of(canonical.uuid)[:3])
    if not canonical.reason and (course.interrupted or canonical.state is None):
        return "not built before the command was interrupted" if course.interrupted else "nothing has built it"
    return canonical.reason or ""


#: How long the threads may take to end their Dagster runs, after the launches of an interrupted command were abandoned.
END_SECONDS = 5.0


@dataclass
class Launches:
    """Executes launch orders, one after another or at most `at_once` at a time, each in a thread of its own (rule 8.9)."""

    instance: DagsterInstance
    at_once: int = 1
    #: With the number of the Spark session of each.
    _running: dict[Future[None], tuple[DagsterRun, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.at_once > 1:
            from databuild_dagster.bindings.orchestration.inprocess import allow_runs_in_threads

            allow_runs_in_threads(self.instance)

    @property
    def n_running(self) -> int:
        return len(self._running)

    @property
    def n_free(self) -> int:
        """Launches that may begin now."""
        return self.at_once - len(self._running)

    def begin(self, repository: RepositoryDefinition, order: LaunchOrder, log_level: str) -> None:
        """Execute an order, and return when it has ended, or when its thread has begun if several may run at once."""
        from databuild_dagster.bindings.claims.launcher import selected_keys
        from databuild_dagster.bindings.orchestration.inprocess import create_run, execute
        from databuild_dagster.bindings.reading.spark_resource import session_number

        run = create_run(self.instance, repository, order, log_level=log_level)
        number = min({*range(self.at_once)} - {taken for _, taken in self._running.values()})

        def whole() -> None:
            session_number.set(number)
            for _ in execute(self.instance, repository, run, selected_keys(order)):
                pass

        if self.at_once == 1:
            whole()
        else:
            self._running[in_own_thread(whole, f"databuild launch {order.launch_id}")] = run, number

    def wait(self, seconds: float | None = None) -> None:
        """Wait until one of the running launches has ended, at most so long. Raises what Dagster raised in its thread."""
        for done in wait(self._running, seconds, FIRST_COMPLETED).done:
            del self._running[done]
            done.result()

    def finish(self) -> None:
        """Wait until all of them have ended."""
        while self._running:
            self.wait()

    def abandon(self) -> None:
        """End all of them, as Ctrl-C ends a launch in the main thread. A further Ctrl-C ends the wait, and is raised."""
        from databuild_dagster.bindings.building.hosted_launch import end_open_launches

        running, self._running = self._running, {}
        try:
            # Each waits for its own calls.
            ends = [partial(end_open_launches, run.run_id) for run, _ in running.values()]
            wait([in_own_thread(end, "databuild end") for end in ends])
            wait(running, END_SECONDS)
        finally:
            for future, (run, _) in running.items():
                if not future.done():
                    # Before its first job run, or in a call that does not end. The thread ends with the process.
                    self.instance.report_run_failed(run, "The command that executed it was interrupted.")
