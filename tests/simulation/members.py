"""What the virtual processes do: orchestrators, Dagster and its runs, people. As the bindings do it, without Dagster.

A Dagster run here goes the way of `building.step`, `claims.claims` and `claims.wait_for_builds`: start the launch or claim, build what was
given, wait for what others build, claim again or take over, give up in the end.
"""

from __future__ import annotations

import random
import sqlite3
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec

from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.observing import observe
from databuild_dagster.engine.orchestrator_notes import note_code
from databuild_dagster.engine.outages import begin_outage, end_outage, needs_of, outages
from databuild_dagster.engine.ports import DagsterRunState, DagsterRunStatus, LaunchOrder
from databuild_dagster.engine.registering import Registered, register
from databuild_dagster.engine.tick import tick
from databuild_dagster.engine.tick_pass import Pass
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetKind, DatasetSpec, InputSpec
from databuild_dagster.model.errors import (
    AlreadyStarted,
    AssetTaken,
    IllegalMove,
    InvalidRef,
    JobRunEnded,
    LocationTaken,
    NotFound,
    Refused,
    StaleJobRun,
    UnknownAsset,
    UnknownPartition,
)
from databuild_dagster.model.events import Arrival, BufferedRun, Event, ManifestFact, OutputFact, RunSuccess
from databuild_dagster.model.refs import asset_of, partition_key_of, ref_or_none
from databuild_dagster.model.set_aside import Subject
from databuild_dagster.model.states import FAILING, LEASED, InstanceState, JobRunState
from databuild_dagster.model.wording import one_line, utf8
from databuild_dagster.store.queries.job_runs import JobRunView
from databuild_dagster.store.queries.wants import WantFilter
from databuild_dagster.store.rebuild import rebuild
from databuild_dagster.store.removals import Removals
from tests.support.catalog import HERE

from .deploying import (
    DEPLOYS,
    ODD_KEYS,
    OF_A_VERSION,
    THERE,
    TURN_SECONDS,
    TURNS,
    UNNAMEABLE_KEYS,
    Change,
    Definitions,
    claimed,
    deployed,
)
from .landing import WATCHER, deliver, watch
from .operating import coordinate, coordinator_of, operate
from .processes import Broken
from .scenario import AWAY, DAMAGES, LIMITS, OPERATORS, Deed, Scenario
from .world import Member, PortTrouble, World

MANIFEST = ManifestFact(state="complete", uri="file:///data", files=1, rows=10, bytes=100)
HEARTBEAT_SECONDS = 10.0
POLL_SECONDS = 2.0
#: What an orchestrator says of itself; it ticks after 4 to 12 seconds.
INTERVAL_SECONDS = 8.0
#: How probably an orchestrator loads the code that is deployed before a tick.
RELOADS = 0.3
TAKE_OVER_SECONDS = 10.0
#: The least; some wait ten times as long.
DELEGATION_TIMEOUT_SECONDS = 20.0
#: After how long Dagster sees that a run's process is gone: before a lease is judged twice, or after everybody else.
NOTICED_SECONDS = 60.0
NOTICED_LAST_SECONDS = 600.0
#: How often a user looks for something to cancel, or to take back.
PATIENCE = 8
#: How often one Dagster run asks again for what became free.
MAX_CLAIMS = 20


def populate(world: World) -> None:
    """Everybody whom the scenario names, at their time."""
    dagster = Dagster(world)
    for number in range(world.scenario.n_orchestrators):
        _orchestrate(world, dagster, HERE, f"orchestrator {number}", 1)
    if world.scenario.of_location(THERE):
        _orchestrate(world, dagster, THERE, "orchestrator of the other location", 1)
    for number in range(world.scenario.n_watchers):
        _watch(world, f"{WATCHER} {number}", 1)
    for delivery in world.scenario.deliveries:
        world.start(f"sender {delivery.number}", partial(deliver, delivery=delivery), after=delivery.after)
    for deed in world.scenario.deeds:
        if deed.what in OPERATORS:
            operate(world, deed)
        elif deed.what in DAMAGES:
            _damage(world, deed, 1)
        elif deed.what in DEPLOYS:
            world.start(deed.name, partial(_change, deed=deed), after=deed.after)
        elif deed.name.startswith("user"):
            _use(world, deed, _Memory(), 1)
        else:
            dagster.start_by_hand(deed)


# The orchestrator


def _orchestrate(world: World, dagster: Dagster, location: str, name: str, incarnation: int) -> None:
    def main(me: Member) -> None:
        judge = Judge(gone=world.gone(me.process))
        coordinator = coordinator_of(me, judge)
        code = world.deployed[location]
        registered: Registered | None = None
        while True:
            if world.scenario.has_deploys:
                if world.scheduler.is_calm or me.rng.random() < RELOADS:
                    code = world.deployed[location]
                if (registered := _register(me, location, code)) is None:
                    me.pause(me.rng.uniform(4.0, 12.0))
                    continue
            world.ticking.add(location)
            requests = _Requests(me, dagster, {spec.asset for spec in code})
            _tick(
                Pass(
                    me.engine,
                    location=location,
                    launcher=requests,
                    foreign=world.foreign,
                    judge=judge,
                    owner=me.name,
                    limits=LIMITS,
                    remains=_Remains(world) if world.scenario.adopts else None,
                    interval_seconds=INTERVAL_SECONDS,
                    datasets=registered.plannable if registered else None,
                    head=registered.head if registered else None,
                )
            )
            requests.fail_refused()
            for what, aside in outages(me.engine, location):
                if aside.kind is Subject.OUTAGE and not world.is_away(what):
                    end_outage(me.engine, location, what, "probe")
            world.ticked.add(location)
            coordinate(me, coordinator)
            me.pause(me.rng.uniform(4.0, 12.0))

    process = world.start(_again(name, incarnation), main, after=0.0 if incarnation == 1 else 5.0)

    def ended(crashed: bool) -> None:
        if not world.scheduler.is_over:
            _orchestrate(world, dagster, location, name, incarnation + 1)

    process.at_end.append(ended)


def _register(me: Member, location: str, code: tuple[DatasetSpec, ...]) -> Registered | None:
    """As the sensor does before its tick; None for code that may not be registered, which its tick reports loudly."""
    try:
        registered = register(me.engine, location, code, is_asked=False)
    except (AssetTaken, LocationTaken):
        return None
    note_code(me.engine, location, registered.fingerprint)
    if registered.left:
        me.tell(f"leaves {', '.join(registered.left)} to another version of its code")
    return registered


class _Requests:
    """`engine.ports.Launcher` of one tick: a request for an asset that the code has not makes Dagster refuse all of the tick."""

    def __init__(self, me: Member, dagster: Dagster, assets: set[str]) -> None:
        self._me = me
        self._dagster = dagster
        self._refused: list[str] = []
        self._assets = assets
        self.dagster_runs = dagster.dagster_runs
        self.fail_dagster_run = dagster.fail_dagster_run

    def launch(self, order: LaunchOrder) -> None:
        if unknown := [asset for asset in order.assets if asset not in self._assets]:
            raise Broken("order", f"{', '.join(unknown)} is ordered, and the code that orders it has no such asset")
        refused = self._me.world.scenario.mishaps.order_refused
        if refused and self._me.happens("Dagster refuses its order", refused):
            self._refused.append(order.launch_id)
        else:
            self._dagster.launch(order)

    def fail_refused(self) -> None:
        """As `bindings.orchestration.refused_orders` does after the tick: the outcome is the refs' own (rule 6.8)."""
        for launch_id in self._refused:
            start = c.StartLaunch(launch_id=launch_id, dagster_run_id=f"refused {launch_id}", holder=self._me.name)
            with suppress(AlreadyStarted, JobRunEnded, NotFound):
                started = self._me.engine.handle(start).job_run_ids
                failures = tuple(c.RunFailure(job_run_id, "Dagster starts no run") for job_run_id in started)
                if failures:
                    self._me.engine.handle(c.FailJobRuns(failures=failures))


def _tick(this: Pass) -> None:
    """A tick never raises (rule 11.5)."""
    try:
        tick(this)
    except (Broken, IllegalMove, sqlite3.Error):
        # Bugs of other rules, and not of this one.
        raise
    except Exception as error:
        raise Broken("tick", "".join(traceback.format_exception(error, limit=-4)).rstrip()) from error


def _watch(world: World, name: str, incarnation: int) -> None:
    """A boundary's sensor, and again when it has died."""
    process = world.start(_again(name, incarnation), watch, after=0.0 if incarnation == 1 else 5.0)

    def ended(crashed: bool) -> None:
        if not world.scheduler.is_over:
            _watch(world, name, incarnation + 1)

    process.at_end.append(ended)


class _Remains:
    """`engine.ports.Remains`: what lies there complete."""

    def __init__(self, world: World) -> None:
        self._world = world

    def finished(self, job_runs: Sequence[JobRunView]) -> list[RunSuccess]:
        self._world.scheduler.step("before it looks at what lost launches left")
        self._world.port("the warehouse")
        return [self._world.written[run.id] for run in job_runs if run.id in self._world.written]


def _again(name: str, incarnation: int) -> str:
    return name if incarnation == 1 else f"{name}, again {incarnation}"


# Dagster


@dataclass
class DagsterRun:
    """What Dagster knows of one run."""

    id: str
    launch_id: str | None
    status: DagsterRunStatus = DagsterRunStatus.QUEUED
    #: When Dagster notices that its process is gone, if it ever does.
    fails_at: float = float("inf")


class Dagster:
    """`engine.ports.Launcher`: orders get lost here, and are delivered twice."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._runs: dict[str, DagsterRun] = {}
        self._failed: set[str] = set()

    def launch(self, order: LaunchOrder) -> None:
        scheduler, mishaps = self._world.scheduler, self._world.scenario.mishaps
        scheduler.step("before it asks Dagster for a run")
        self._world.port("a run of Dagster")
        refs = [ref for asset in order.assets for key in order.partition_keys if (ref := ref_or_none(asset, key))]
        if gone := [ref for ref in refs if not self._world.catalog.exists(ref)]:
            # As Dagster refuses a selection that the code has not.
            unknown = ValueError(f"{gone[0]!r} is not in the code of {order.location}")
            self._world.raised.add(f"ValueError: {utf8(one_line(unknown))}")
            raise unknown
        if scheduler.happens("its order to Dagster is lost", mishaps.order_lost):
            scheduler.tell(f"orders a run of {order.job}, which is lost")
        else:
            is_there = any(run.launch_id == order.launch_id for run in self._runs.values())
            is_twice = scheduler.happens("its order to Dagster is delivered twice", mishaps.order_twice)
            for _ in range((not is_there) + is_twice):
                run = self._new_run(f"launch run {len(self._runs)}", order.launch_id)
                scheduler.tell(f"orders {run.id} of {order.job}")
                host = self._host_plain if order.kind is DatasetKind.PLAIN else self._host
                host(run, Asking(run.id, refs), after=scheduler.current.rng.uniform(0.5, 6.0))  # type: ignore[union-attr]
        scheduler.step("after it asked Dagster for a run")

    def dagster_runs(self, launches: dict[str, str | None]) -> dict[str, DagsterRunState]:
        self._world.scheduler.step("before it asks Dagster what became of runs")
        self._world.port("the runs of Dagster")
        found = {}
        for launch_id, run_id in launches.items():
            runs = [
                run for run in self._runs.values() if run.id == run_id or (not run_id and run.launch_id == launch_id)
            ]
            states = [DagsterRunState(run.id, self._status(run)) for run in runs]
            if states:
                found[launch_id] = min(states, key=lambda state: state.status.ended)
        return found

    def fail_dagster_run(self, dagster_run_id: str, message: str) -> None:
        self._world.port("a run of Dagster")
        run = self._runs[dagster_run_id]
        if not run.status.ended:
            run.status = DagsterRunStatus.FAILED

    def start_by_hand(self, deed: Deed) -> None:
        """A user's own Dagster run, as from the UI, a schedule or a backfill."""
        run = self._new_run(deed.name, None)
        asking = Asking(
            run.id,
            [],
            by_person=deed.what == "by a person",
            by_coordinator=deed.what == "by the coordinator",
            rebuild=deed.what == "to rebuild",
        )
        self._host(run, asking, after=deed.after)

    def _status(self, run: DagsterRun) -> DagsterRunStatus:
        if not run.status.ended and self._world.scheduler.now >= run.fails_at:
            run.status = DagsterRunStatus.FAILED
        return run.status

    def _new_run(self, run_id: str, launch_id: str | None) -> DagsterRun:
        run = self._runs[run_id] = DagsterRun(run_id, launch_id)
        return run

    def _host(self, run: DagsterRun, asking: Asking, *, after: float) -> None:
        step: list[Step] = []

        def main(me: Member) -> None:
            run.status = DagsterRunStatus.RUNNING
            step.append(Step(me, asking))
            try:
                step[0].execute(run.launch_id)
            except (UnknownAsset, UnknownPartition) as unknown:
                raise PortTrouble(unknown.message) from unknown
            if not run.status.ended:
                run.status = DagsterRunStatus.SUCCEEDED

        process = self._world.start(run.id, main, after=after)

        def ended(crashed: bool) -> None:
            if not crashed and not run.status.ended:
                run.status = DagsterRunStatus.FAILED
            # Who never began cannot be missed by its heartbeat; else Dagster may be the last to notice.
            is_last = bool(step and step[0].has_begun) and process.rng.random() >= 0.5
            self._noticed(run, crashed, after=NOTICED_LAST_SECONDS if is_last else NOTICED_SECONDS)

        process.at_end.append(ended)

    def _host_plain(self, run: DagsterRun, asking: Asking, *, after: float) -> None:
        """Nothing of ours is in it: it writes its assets, or fails, and Dagster sees how it ended."""

        def main(me: Member) -> None:
            run.status = DagsterRunStatus.RUNNING
            for ref in asking.refs:
                me.pause(me.rng.uniform(0.1, 15.0))
                if me.happens("its plain asset fails", self._world.scenario.mishaps.hard):
                    self._world.foreign.fail(ref)
                    run.status = DagsterRunStatus.FAILED
                    return
                me.tell(f"materializes {ref}")
                self._world.foreign.materialize(ref, f"of {run.id}")
            run.status = DagsterRunStatus.SUCCEEDED

        def ended(crashed: bool) -> None:
            if not crashed and not run.status.ended:
                run.status = DagsterRunStatus.FAILED
            self._noticed(run, crashed, after=NOTICED_SECONDS)

        self._world.start(run.id, main, after=after).at_end.append(ended)

    def _noticed(self, run: DagsterRun, crashed: bool, *, after: float) -> None:
        """Dagster's own monitoring: nothing else would notice a run that never began, or that only waits."""
        if crashed:
            run.fails_at = self._world.scheduler.now + after


# A Dagster run


@dataclass(frozen=True)
class Asking:
    """Which refs a Dagster run is about, and how it asks."""

    run_id: str
    #: None named yet: it chooses when it begins.
    refs: list[str]
    by_person: bool = False
    by_coordinator: bool = False
    rebuild: bool = False


@dataclass
class Given:
    """What a step was given: job runs to execute, and refs to wait for."""

    launch_id: str | None = None
    #: Job run to its refs.
    job_runs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    join: dict[str, str] = field(default_factory=dict)


class Step:
    """The step of one Dagster run, from its claim to its end."""

    def __init__(self, me: Member, asking: Asking) -> None:
        self.me = me
        #: The code that the process has loaded; others may be deployed while it runs.
        self._code = me.world.catalog.as_now()
        self.asking = asking if asking.refs else replace(asking, refs=_chosen(me))
        self.has_begun = False
        if gone := [ref for ref in self.asking.refs if not self._code.exists(ref)]:
            raise PortTrouble(f"{gone[0]!r} is not in its code")
        self._spec = self._code.datasets[asset_of(self.asking.refs[0])]
        self._code_version = self._spec.code_version
        self._rebuild_before = me.engine.now() if asking.rebuild else None
        self._beats: set[str] = set()

    def execute(self, launch_id: str | None) -> None:
        given = self._begin(launch_id)
        for _ in range(MAX_CLAIMS):
            self.has_begun = True
            self._build(given)
            again = self._wait_for(given.join)
            if again is None:
                return
            given = again
        if given.join:
            self._give_up(given.join, "what it waited for was given up elsewhere, again and again")

    # Asking

    def _begin(self, launch_id: str | None) -> Given:
        if launch_id is not None and (given := self._start(launch_id)) is not None:
            return given
        if self.asking.by_coordinator:
            self._claim(self.asking.refs, may_build=False)
        return self._claim(self.asking.refs)

    def _start(self, launch_id: str) -> Given | None:
        job_runs = self.me.queries.job_runs.of_launch(launch_id)
        start = c.StartLaunch(launch_id=launch_id, dagster_run_id=self.asking.run_id, holder=self.me.name)
        try:
            started = self.me.engine.handle(start).job_run_ids
        except (AlreadyStarted, NotFound):
            return None
        return Given(launch_id if started else None, {run.id: run.refs for run in job_runs if run.id in started})

    def _claim(self, refs: Iterable[str], *, may_build: bool = True) -> Given:
        by_key: dict[str | None, list[str]] = {}
        for ref in refs:
            by_key.setdefault(partition_key_of(ref), []).append(ref)
        new_id = self.me.engine.new_id
        launch_id = new_id()
        claim = self.me.engine.handle(
            c.ClaimRefs(
                launch_id=launch_id,
                job=self._spec.job,
                location=self._spec.location,
                dagster_run_id=self.asking.run_id,
                holder=self.me.name,
                runs=tuple(BufferedRun(new_id(), tuple(group), key) for key, group in by_key.items()),
                by_person=self.asking.by_person,
                may_build=may_build,
                rebuild_before=self._rebuild_before,
                code_version=self._code_version,
            )
        ).claim
        assert claim is not None
        job_runs: dict[str, tuple[str, ...]] = {}
        for ref, job_run_id in claim.build.items():
            job_runs[job_run_id] = (*job_runs.get(job_run_id, ()), ref)
        return Given(launch_id if job_runs else None, job_runs, claim.join)

    # Building

    def _build(self, given: Given) -> None:
        if given.launch_id is None:
            return
        launch_id, scheduler = given.launch_id, self.me.world.scheduler
        self._beats.add(launch_id)
        scheduler.start_thread(self.me.process, lambda: self._beat(launch_id))
        for job_run_id, refs in given.job_runs.items():
            self._execute(job_run_id, refs)
        self._beats.remove(launch_id)

    def _beat(self, launch_id: str) -> None:
        while launch_id in self._beats:
            self.me.engine.beat([launch_id])
            self.me.pause(HEARTBEAT_SECONDS)

    def _execute(self, job_run_id: str, refs: tuple[str, ...]) -> None:
        me, mishaps = self.me, self.me.world.scenario.mishaps
        try:
            needs = {ref: _needs(self._code, me.world.scenario, ref) for ref in refs}
        except (KeyError, InvalidRef) as error:
            self._report(c.FailJobRuns(failures=(c.RunFailure(job_run_id, utf8(str(error))),)))
            return
        datasets = self._code.datasets
        foreign = [need for of_ref in needs.values() for need in of_ref if _is_foreign(datasets.get(asset_of(need)))]
        if foreign:
            observe(me.engine, me.world.foreign, list(dict.fromkeys(foreign)))
        read: dict[str, dict[str, str]] = {}
        missing: dict[str, tuple[str, ...]] = {}
        for ref in refs:
            inputs = me.queries.canonical.of(needs[ref])
            read[ref] = {need: seen.uuid for need, seen in inputs.items() if seen.uuid is not None}
            if absent := tuple(need for need, seen in inputs.items() if seen.state is not InstanceState.LIVE):
                missing[ref] = absent
        me.pause(me.rng.uniform(0.1, 15.0))
        if missing:
            self._report(c.MissDeps(misses=(c.RunMiss(job_run_id, missing),)))
            return
        if me.happens("its job run takes very long", mishaps.slow):
            me.pause(me.rng.uniform(30.0, 90.0))
        owner = next((what for what in sorted(needs_of(self._spec)) if me.world.is_away(what)), None)
        if owner is not None:
            self._report(c.FailJobRuns(failures=(c.RunFailure(job_run_id, AWAY, "transient", owner),)))
            begin_outage(me.engine, self._spec.location, owner, AWAY, me.name)
            return
        if me.happens("its job run fails, but not for good", mishaps.transient):
            self._report(c.FailJobRuns(failures=(c.RunFailure(job_run_id, "busy", "transient"),)))
        elif me.happens("its job run fails for good", mishaps.hard):
            self._report(c.FailJobRuns(failures=(c.RunFailure(job_run_id, "it raised"),)))
        elif me.happens("it is interrupted", mishaps.transient / 3):
            self._report(c.CancelJobRuns(job_run_ids=(job_run_id,), reason="interrupted", keep_wants=True))
        else:
            outputs = tuple(
                OutputFact(
                    ref=ref, inputs=read[ref], code_version=self._code_version, manifest=self._rows(job_run_id, ref)
                )
                for ref in refs
            )
            success = me.world.written[job_run_id] = RunSuccess(job_run_id, outputs)
            me.world.scheduler.step("after it wrote its data")
            self._report(c.SucceedJobRuns(runs=(success,)))

    def _rows(self, job_run_id: str, ref: str) -> ManifestFact:
        """Often the rows of the last build, and sometimes without a hash (rule 4.8); with a random number of its own."""
        rng = random.Random(f"rows {self.me.world.scenario.seed} {job_run_id} {ref}")
        return msgspec.structs.replace(MANIFEST, content_hash=rng.choice(["x:1", "x:1", "x:1", "x:2", None]))

    def _report(self, command: c.Command) -> None:
        """What the engine does not take any more never happened; but an adoption counts as done."""
        try:
            self.me.engine.handle(command)
        except (StaleJobRun, JobRunEnded) as stale:
            if isinstance(command, c.SucceedJobRuns) and stale.facts["state"] != JobRunState.SUCCEEDED.value:
                del self.me.world.written[command.runs[0].job_run_id]

    # Waiting

    def _wait_for(self, join: dict[str, str]) -> Given | None:
        """Until others are done; what this step is to build after all."""
        waiting, began = dict(join), self.me.engine.steady()
        timeout = DELEGATION_TIMEOUT_SECONDS * self.me.rng.uniform(1, 10)
        while waiting:
            free, now = [], self.me.engine.now()
            for ref, canonical in self.me.queries.canonical.of(list(waiting)).items():
                # What backs off is tried again later, by the first process then.
                if canonical.state in LEASED or (canonical.retry_at or 0.0) > now:
                    waiting[ref] = canonical.job_run or waiting[ref]
                    continue
                del waiting[ref]
                if canonical.state is not InstanceState.LIVE and canonical.state not in FAILING:
                    free.append(ref)
            waited = self.me.engine.steady() - began
            if free:
                claimed = self._claim(free)
                return replace(claimed, join={**waiting, **claimed.join})
            if waiting and waited > timeout:
                self._give_up(waiting, "its time is up")
                return None
            if waiting and waited > TAKE_OVER_SECONDS and (given := self._take_over(waiting)) is not None:
                return given
            self.me.pause(POLL_SECONDS)
        return None

    def _give_up(self, refs: Iterable[str], why: str) -> None:
        self.me.engine.handle(
            c.GiveUpDelegations(requester=self.asking.run_id, reason=why, refs=tuple(refs)),
        )

    def _take_over(self, waiting: dict[str, str]) -> Given | None:
        mine = {asset_of(ref) for ref in self.asking.refs}
        for job_run_id in dict.fromkeys(waiting.values()):
            job_run = self.me.queries.job_runs.get(job_run_id)
            if job_run is None or job_run.state is not JobRunState.QUEUED:
                continue
            runs = self.me.queries.job_runs.of_launch(job_run.launch_id)
            if not all(asset_of(ref) in mine for run in runs for ref in run.refs):
                continue
            given = self._start(job_run.launch_id)
            if given is not None and given.launch_id is not None:
                self.me.tell(f"took over {', '.join(ref for refs in given.job_runs.values() for ref in refs)}")
                built = {ref for refs in given.job_runs.values() for ref in refs}
                return replace(given, join={ref: item for ref, item in waiting.items() if ref not in built})
        return None


def _chosen(me: Member) -> list[str]:
    """Some outputs of one job, for some of its keys."""
    catalog = me.world.catalog
    ours = [spec for spec in catalog.datasets.values() if spec.kind is DatasetKind.OURS and catalog.refs_of(spec)]
    if not ours:
        raise PortTrouble("the code has no asset")
    job = me.rng.choice(ours).job
    outputs = [spec for spec in ours if spec.job == job]
    outputs = me.rng.sample(outputs, me.rng.randint(1, len(outputs)))
    keys = {partition_key_of(ref) for ref in catalog.refs_of(outputs[0])}
    keys = set(me.rng.sample(sorted(keys, key=str), me.rng.randint(1, len(keys))))
    return [ref for spec in outputs for ref in catalog.refs_of(spec) if partition_key_of(ref) in keys]


def _needs(code: Definitions, scenario: Scenario, ref: str) -> list[str]:
    """What is declared, and what only shows when it runs."""
    spec, key = code.datasets[asset_of(ref)], partition_key_of(ref)
    hidden = [InputSpec(asset=asset, mapping="same") for asset in scenario.hidden.get(spec.asset, ())]
    return list(code.inputs(msgspec.structs.replace(spec, inputs=(*spec.inputs, *hidden)), key))


def _is_foreign(spec: DatasetSpec | None) -> bool:
    return spec is not None and spec.kind.is_foreign


# People


@dataclass
class _Memory:
    """What a user remembers when the command line is killed: they press the up key, and it has the same id."""

    command: c.Command | None = None
    command_id: str = ""
    heard: tuple[Event, ...] | None = None


def _use(world: World, deed: Deed, memory: _Memory, incarnation: int) -> None:
    def main(me: Member) -> None:
        if memory.command is None:
            sources = [ref for spec in world.scenario.sources for ref in world.scenario.refs_of(spec)]
            if deed.what == "data arrives" and sources and me.rng.random() < 0.5:
                world.foreign.materialize(me.rng.choice(sources), f"of {me.name}")
                return
            memory.command = _found(me, deed)
            memory.command_id = me.engine.new_id()
        if memory.command is None:
            return
        _say(me, memory)
        if me.happens("it says that again", world.scenario.mishaps.said_again):
            _say(me, memory)

    process = world.start(_again(deed.name, incarnation), main, after=deed.after if incarnation == 1 else 8.0)

    def ended(crashed: bool) -> None:
        goes_on = not world.scheduler.is_over and process.rng.random() < 0.7
        if crashed and memory.command is not None and goes_on:
            _use(world, deed, memory, incarnation + 1)

    process.at_end.append(ended)


def _found(me: Member, deed: Deed) -> c.Command | None:
    """What they do, as soon as there is something to do it to."""
    for _ in range(PATIENCE):
        if (command := _COMMANDS[deed.what](me, deed)) is not None:
            return command
        me.pause(me.rng.uniform(1.0, 15.0))
    return None


def _say(me: Member, memory: _Memory) -> None:
    assert memory.command is not None
    try:
        outcome = me.engine.handle(memory.command, command_id=memory.command_id)
    except (Refused, NotFound):
        if memory.heard:
            raise Broken("acted twice", f"{memory.command} was taken, and is refused when it is repeated") from None
        return
    if memory.heard and (not outcome.repeated or outcome.events != memory.heard):
        raise Broken("acted twice", f"{memory.command} became something else when it was repeated")
    memory.heard = outcome.events


def _some(me: Member, deed: Deed) -> tuple[str, ...]:
    refs = me.world.refs
    return tuple(me.rng.sample(refs, me.rng.randint(1, min(3, len(refs)))))[: deed.most]


def _want(me: Member, deed: Deed) -> c.Command:
    return _wants(me, tuple((ref,) for ref in _some(me, deed)))


def _want_several(me: Member, deed: Deed) -> c.Command:
    return _wants(me, (_some(me, deed),))


def _wants(me: Member, wants: tuple[tuple[str, ...], ...]) -> c.Command:
    ttl, sla = me.rng.choice([None, None, None, 3600.0, 120.0, 30.0]), me.rng.choice([None, None, 60.0])
    priority = me.rng.randint(0, 2)
    # With a number of its own, so that the rest of a seed is what it was.
    fail_fast = random.Random(f"fail fast {me.name} {me.world.scenario.seed}").random() < 0.3
    return c.CreateWants(wants=wants, priority=priority, ttl_seconds=ttl, sla_seconds=sla, fail_fast=fail_fast)


def _want_a_rebuild(me: Member, deed: Deed) -> c.Command:
    wants = tuple((ref,) for ref in _some(me, deed))
    return c.CreateWants(wants=wants, ttl_seconds=None, rebuild=me.rng.random() < 0.7, fresh=True)


def _deploy(me: Member, deed: Deed) -> c.Command:
    """One dataset's code is another from now on."""
    found = {spec.asset: spec for spec in me.world.deployed[HERE]}
    chosen = me.rng.choice(sorted(found))
    found[chosen] = msgspec.structs.replace(found[chosen], code_version=f"of {me.name}")
    me.world.deployed[HERE] = tuple(found.values())
    return c.RegisterDatasets(location=HERE, datasets=tuple(found.values()))


def _change(me: Member, deed: Deed) -> None:
    """A deploy of other definitions, or another key; a person who is killed at it does not repeat it."""
    world = me.world
    present = {spec.asset: spec for spec in world.deployed[HERE]}
    change = Change(present, world.scenario.of_location(HERE), me.rng, f"new {deed.number}")
    match deed.what:
        case "add a key":
            key = me.rng.choice([key for key in (*ODD_KEYS, *UNNAMEABLE_KEYS) if key not in world.catalog.dynamic])
            world.catalog.dynamic.append(key)
            me.tell(f"adds the key {key!r:.40}")
        case "delete a key":
            if world.catalog.dynamic:
                key = world.catalog.dynamic.pop(me.rng.randrange(len(world.catalog.dynamic)))
                me.tell(f"deletes the key {key!r:.40}")
        case "another location claims":
            _registers(me, claimed(change, change.found.values(), world.deployed[THERE]))
        case "old and new code in turns":
            old = c.RegisterDatasets(location=HERE, datasets=tuple(change.found.values()))
            new = deployed(me.rng.choice(OF_A_VERSION), change)
            for turn in range(2 * TURNS):
                _registers(me, old if turn % 2 else new)
                me.pause(TURN_SECONDS)
        case _:
            _registers(me, deployed(deed.what, change))


def _damage(world: World, deed: Deed, incarnation: int) -> None:
    """Another program removes a row of the tables, and some time later a person computes them again (rule 3.5)."""

    def main(me: Member) -> None:
        if incarnation == 1:
            with me.engine.store.writing() as work:
                n_gone = work.connection.execute(DAMAGES[deed.what]).rowcount
                # Before the commit: others meet it as soon as they have their turn.
                world.is_damaged = world.was_damaged = n_gone > 0
            me.tell(f"{deed.what}: {n_gone}")
            me.pause(me.rng.uniform(1.0, 40.0))
        rebuild(me.engine.store)
        world.is_damaged = False
        me.tell("has computed the tables again")

    process = world.start(_again(deed.name, incarnation), main, after=deed.after if incarnation == 1 else 5.0)

    def ended(crashed: bool) -> None:
        if crashed and not world.scheduler.is_over:
            _damage(world, deed, incarnation + 1)

    process.at_end.append(ended)


def _registers(me: Member, command: c.RegisterDatasets) -> None:
    """It is deployed; in half of the cases its person runs a command at once, and else an orchestrator registers it."""
    me.world.deployed[command.location] = command.datasets
    if me.rng.random() < 0.5:
        me.tell(f"deploys {', '.join(spec.asset for spec in command.datasets)} to {command.location}")
        return
    with suppress(AssetTaken, LocationTaken):
        me.engine.handle(command)


def _cancel_a_want(me: Member, deed: Deed) -> c.Command | None:
    wants = me.queries.wants.newest(WantFilter(open_only=True))
    if not wants:
        return None
    return c.CancelWants(ids=(me.rng.choice(wants).id,), terminate=me.rng.random() < 0.5)


def _of_states(me: Member, *states: InstanceState) -> list[str]:
    """Refs that look as if the command made sense; they may not when it is handled."""
    return [ref for ref, state in me.queries.canonical.states(me.world.refs).items() if state in states]


def _taint(me: Member, deed: Deed) -> c.Command | None:
    refs = _of_states(me, InstanceState.LIVE, InstanceState.FAILED, InstanceState.UPSTREAM_FAILED)
    if me.rng.random() < 0.1:
        refs = me.world.refs
    return c.TaintPartitions(refs=(me.rng.choice(refs),), reason="it looks wrong") if refs else None


def _taint_downstream(me: Member, deed: Deed) -> c.Command | None:
    refs = _of_states(me, InstanceState.LIVE)
    if not refs:
        return None
    ref = me.rng.choice(refs)
    history = [instance.uuid for instance in me.queries.instances.history(ref) if instance.live_at is not None]
    uuids = (me.rng.choice(history),) if history and me.rng.random() < 0.5 else ()
    return c.TaintPartitions(refs=() if uuids else (ref,), uuids=uuids, reason="it looks wrong", downstream=True)


def _untaint(me: Member, deed: Deed) -> c.Command | None:
    """Of any canonical instance, or of one that was replaced in vain."""
    seen = me.queries.canonical.of(me.world.refs).values()
    taints = [
        taint.taint_id for instance in seen if instance.uuid for taint in me.queries.instances.taints_of(instance.uuid)
    ]
    return c.UntaintPartitions(taint_id=me.rng.choice(taints)) if taints else None


def _revert(me: Member, deed: Deed) -> c.Command | None:
    old = [
        (ref, instance.uuid)
        for ref in _of_states(me, *set(InstanceState) - LEASED)
        for instance in me.queries.instances.history(ref)
        if instance.live_at is not None and not instance.canonical
    ]
    if not old:
        return None
    ref, uuid = me.rng.choice(old)
    return c.RevertCanonical(ref=ref, uuid=uuid, force=me.rng.random() < 0.5)


def _retry(me: Member, deed: Deed) -> c.Command | None:
    refs = _of_states(me, *FAILING)
    return c.RetryRefs(refs=(me.rng.choice(refs),)) if refs else None


def _take_data_away(me: Member, deed: Deed) -> c.Command | None:
    """What a process that has died since had begun is finished first."""
    if left := Removals(me.engine.store).unfinished():
        return c.FinishRemovals(uuids=tuple(instance.uuid for instance in left))
    ref = me.rng.choice(me.world.refs)
    uuids = tuple(instance.uuid for instance in me.queries.instances.history(ref))
    tainted = me.rng.random() < 0.3
    return c.RemoveManifests(uuids=uuids, reason="enough of it", tainted=tainted) if uuids else None


def _cancel_a_job_run(me: Member, deed: Deed) -> c.Command | None:
    runs: list[JobRunView] = me.queries.job_runs.newest(open_only=True)
    if not runs:
        return None
    keep_wants = me.rng.random() < 0.5
    return c.CancelJobRuns(job_run_ids=(me.rng.choice(runs).id,), keep_wants=keep_wants, fail_missed=not keep_wants)


def _pause(me: Member, deed: Deed) -> c.Command:
    refs = _some(me, deed)
    if me.rng.random() < 0.5:
        refs = (asset_of(refs[0]),)
    until = me.rng.choice([None, me.engine.now() + me.rng.uniform(5.0, 90.0)])
    return c.PausePartitions(refs=refs, reason="it is wrong", until=until, terminate=me.rng.random() < 0.3)


def _resume(me: Member, deed: Deed) -> c.Command | None:
    pauses = me.queries.planning.pauses_in_force(me.engine.now())
    return c.ResumePartitions(refs=(me.rng.choice(pauses).ref,)) if pauses else None


def _data_arrives(me: Member, deed: Deed) -> c.Command:
    scenario = me.world.scenario
    refs = [ref for spec in scenario.sources for ref in scenario.refs_of(spec)]
    # What comes from a landing folder is its watchers' to tell.
    refs = refs or [ref for ref in me.world.refs if ref not in scenario.landed]
    return c.ArriveLots(arrivals=(Arrival(job_run_id=me.engine.new_id(), ref=me.rng.choice(refs), origin=me.name),))


_COMMANDS: dict[str, Callable[[Member, Deed], c.Command | None]] = {
    "want": _want,
    "want several": _want_several,
    "want a rebuild": _want_a_rebuild,
    "deploy": _deploy,
    "cancel a want": _cancel_a_want,
    "taint": _taint,
    "taint downstream": _taint_downstream,
    "untaint": _untaint,
    "revert": _revert,
    "retry": _retry,
    "take data away": _take_data_away,
    "cancel a job run": _cancel_a_job_run,
    "pause": _pause,
    "resume": _resume,
    "data arrives": _data_arrives,
}

__all__ = ["Dagster", "populate"]
