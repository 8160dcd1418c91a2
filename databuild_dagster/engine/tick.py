"""A bounded pass of the orchestrator (rule 11.1), for the sensor and for the command line.

A tick judges the open launches, then launches due refs. Ticks may overlap and crash anywhere: each step is a command of its
own, decided again in its transaction, so a second orchestrator does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import chain

import msgspec

from databuild_dagster.engine.arcs import fire_arcs
from databuild_dagster.engine.engine import Engine, Outcome
from databuild_dagster.engine.follower import Cursor, LogFollower
from databuild_dagster.engine.judge import PLAIN_HOLDER, Judge, marks_of
from databuild_dagster.engine.lookout import look_at, lost_between_ticks
from databuild_dagster.engine.orchestrator_notes import forget_old_heartbeats, note_tick
from databuild_dagster.engine.outages import n_launches, out_of_reach
from databuild_dagster.engine.planning import Plan, RoomLeft, observe_sources, plan_due
from databuild_dagster.engine.ports import DagsterRunState, DagsterRunStatus, Foreign, Launcher, LaunchOrder
from databuild_dagster.engine.set_aside import OF_LAUNCHES, AsideReasons, SetAside, launch_name
from databuild_dagster.engine.tick_pass import Pass
from databuild_dagster.engine.why.built_again import built_again
from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.coordination import Answer
from databuild_dagster.model.datasets import DatasetKind, DatasetSpec
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.events import BufferedRun, OutputFact, RunSuccess
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.set_aside import Subject
from databuild_dagster.model.states import JobRunState
from databuild_dagster.model.surroundings import Fate, Surrounding
from databuild_dagster.store.queries.job_runs import JobRunView, LaunchView

#: Levels of planning in a tick, each for refs that the dep misses of the level before made due; the next tick continues.
MAX_LEVELS = 50
#: Overdue wants of a tick; the next tick finds the rest.
MAX_OVERDUE_WANTS = 1000
#: Dagster runs checked in a tick; the next tick checks the rest.
MAX_DAGSTER_RUNS = 500
#: Why a launch that its orchestrator left is lost: `build` would launch refs that it does not serve (rule 8.9).
SERVED_IN_PART = "its orchestrator did not start it, and the build that found it needs only some of its refs"
#: The actor of a tick's commands in the log.
ACTOR = "orchestrator"


@dataclass
class TickReport:
    """The results of a tick."""

    #: The last event before it; of several ticks, before the first.
    began_at: int = 0
    #: The time by which it looked for due refs; of several ticks, the first.
    planned_at: float = 0.0
    #: Launches handed to the launcher, new or again.
    launched: list[str] = field(default_factory=list)
    #: Wants whose time to live has ended, and wants past the deadline of their SLA.
    expired: list[str] = field(default_factory=list)
    sla_missed: list[str] = field(default_factory=list)
    #: Launches judged lost, and why.
    lost: dict[str, str] = field(default_factory=dict)
    #: Open launches of which this process has not yet seen whether they live; after a lease it knows.
    unsure: list[str] = field(default_factory=list)
    #: Refs that a lost launch had finished.
    adopted: list[str] = field(default_factory=list)
    #: Dagster runs that ended while they waited for a build.
    given_up: list[str] = field(default_factory=list)
    #: Refs that the orchestrator itself found to miss an input.
    missed: list[Ref] = field(default_factory=list)
    #: Lots wanted because a source of their arc became live.
    fired: list[Ref] = field(default_factory=list)
    #: Foreign refs that became live, or are live no longer.
    arrived: list[Ref] = field(default_factory=list)
    #: Refs, arcs and launches that raised, and why; a later tick tries them again (rule 11.5).
    set_aside: SetAside = field(default_factory=SetAside)
    #: Surroundings that launches of the location had to wait for.
    out_of_reach: frozenset[Surrounding] = frozenset()

    def add(self, other: TickReport) -> None:
        """Add the results of a later tick, or of a different location's tick."""
        self.began_at = self.began_at or other.began_at
        self.planned_at = self.planned_at or other.planned_at
        self.lost |= other.lost
        self.unsure.extend(other.unsure)
        self.set_aside |= other.set_aside
        self.out_of_reach |= other.out_of_reach
        for name in _LISTS:
            getattr(self, name).extend(getattr(other, name))

    @property
    def idle(self) -> bool:
        return not self.lost and not any(getattr(self, name) for name in _LISTS if name != "adopted")


_LISTS = [
    entry.name
    for entry in fields(TickReport)
    if entry.name not in ("began_at", "planned_at", "lost", "unsure", "set_aside", "out_of_reach")
]


def tick(this: Pass) -> TickReport:
    """Judge the open launches, then launch the due refs."""
    engine = this.engine
    # One look at the log's end for all followers: the next tick handles later events.
    head = engine.queries.events.head() if this.head is None else this.head
    engine.queries.events.check_head(head)
    now = engine.now(head)
    engine.note_time(now)
    this.judge.look(engine.steady())
    note_tick(engine, this.location, this.limits, this.interval_seconds)
    forget_old_heartbeats(engine)
    report = TickReport(began_at=head.seq)
    datasets = engine.queries.datasets.all() if this.datasets is None else this.datasets
    reasons = AsideReasons(engine, this.location, datasets)
    report.set_aside = aside = reasons.aside
    for launch_id, lost in lost_between_ticks(engine).items():
        report.lost[launch_id] = lost.why
        if lost.dagster_run_id is not None:
            with aside.guard(launch_name(launch_id), kind=Subject.LAUNCH):
                this.launcher.fail_dagster_run(lost.dagster_run_id, f"databuild: the launch is lost: {lost.why}")
    _end_overdue(engine, now, report)
    if open_launches := engine.queries.launches.open():
        with aside.guard(OF_LAUNCHES, kind=Subject.QUESTION):
            _look_after(this, open_launches, now, report)
        open_launches = engine.queries.launches.open()
        head = engine.queries.events.head()
        # A ref that was lost just now may be retried at once.
        now = engine.now(head)
    with aside.guard("the Dagster runs that wait", kind=Subject.QUESTION):
        report.given_up = give_up_for_ended(engine, this.launcher, this.judge, ACTOR, head=head.seq)
    if this.fires_arcs:
        report.fired = fire_arcs(engine, ACTOR, aside, head=head.seq)
    sources = [
        id for id, spec in datasets.items() if spec.kind is DatasetKind.SOURCE and spec.location == this.location
    ]
    with aside.guard("the wanted refs of sources", kind=Subject.QUESTION):
        report.arrived += observe_sources(engine, this.foreign, sources, now, this.limits.due_refs, aside)
    for provide in this.providers:
        with aside.guard("instances without a build", kind=Subject.QUESTION):
            provide(engine, ())
    report.planned_at = now
    report.out_of_reach = missing = out_of_reach(reasons.known)
    most = n_launches(engine, this.location, missing, this.limits.launches)
    limits = replace(this.limits, launches=most)
    room = RoomLeft.within(limits, open_launches, this.location, len(report.launched), missing)
    for level in range(1, MAX_LEVELS + 1):
        plan = plan_due(this, datasets, aside, now=now, room=room, is_last=level == MAX_LEVELS)
        room = room.without(_carry_out(this, plan, report))
        if not plan.makes_due:
            break
    reasons.record(ACTOR)
    return report


def _end_overdue(engine: Engine, now: float, report: TickReport) -> None:
    """Record the wants whose time to live has ended, and the wants past their deadline (rule 5.5).

    Deadlines first: a want that expires at the same time has missed its deadline too.
    """
    expiring, late = engine.queries.wants.overdue(now, MAX_OVERDUE_WANTS)
    aside = report.set_aside
    if late:
        report.sla_missed += aside.in_parts(late, partial(_ended, engine, c.MissSlas), _want_name, Subject.WANT)
    if expiring:
        report.expired += aside.in_parts(expiring, partial(_ended, engine, c.ExpireWants), _want_name, Subject.WANT)


def _want_name(want_id: str) -> list[str]:
    return [f"want {want_id}"]


def _ended(engine: Engine, command: type[c.MissSlas | c.ExpireWants], want_ids: Sequence[str]) -> list[str]:
    """The wants whose deadline or time to live has passed by the events of the command."""
    facts = [event.fact for event in engine.handle(command(want_ids=tuple(want_ids)), actor=ACTOR).events]
    return [id for fact in facts if isinstance(fact, e.WantSlaMissed | e.WantExpired) for id in fact.want_ids]


def _handle(engine: Engine, command: c.Command) -> Outcome | None:
    """Handle a command; None if it is refused, because a second process was faster."""
    try:
        return engine.handle(command, actor=ACTOR)
    except Refused:
        return None


def _carry_out(this: Pass, plan: Plan, report: TickReport) -> list[str]:
    """Carry out a plan; returns the launched jobs, once for each launch."""
    launched: list[str] = []
    report.arrived += plan.observed
    aside = report.set_aside
    for missed in plan.missed:
        with aside.guard(*_refs_of(*missed.runs)):
            aside.in_parts(missed.runs, partial(_miss, this, report, missed), _refs_of)
    for command, order in plan.launches:
        with aside.guard(*_refs_of(*command.runs)):
            launched += aside.in_parts(command.runs, partial(_launch, this, report, command, order), _refs_of)
    return launched


def _miss(this: Pass, report: TickReport, missed: c.BufferMissed, runs: Sequence[BufferedRun]) -> list[str]:
    """Record the dep misses of `runs`."""
    ids = {run.job_run_id for run in runs}
    misses = tuple(miss for miss in missed.misses if miss.job_run_id in ids)
    part = msgspec.structs.replace(missed, launch_id=this.engine.new_id(), runs=tuple(runs), misses=misses)
    if this.engine.handle(part, actor=ACTOR).events:
        report.missed += _refs_of(*runs)
    return []


def _launch(
    this: Pass, report: TickReport, command: c.BufferLaunch, order: LaunchOrder, runs: Sequence[BufferedRun]
) -> list[str]:
    """Launch `runs`; returns the job, unless a second process was faster."""
    if len(runs) < len(command.runs):
        command = msgspec.structs.replace(command, launch_id=this.engine.new_id(), runs=tuple(runs))
        assets = tuple(dict.fromkeys(map(asset_of, _refs_of(*runs))))
        keys = tuple(run.partition_key for run in runs)
        order = replace(order, launch_id=command.launch_id, assets=assets, partition_keys=keys)
    if not this.engine.handle(command, actor=ACTOR).events:
        return []
    this.launcher.launch(order)
    report.launched.append(order.launch_id)
    return [order.job]


def _refs_of(*runs: BufferedRun) -> list[Ref]:
    return [ref for run in runs for ref in run.refs]


def _look_after(this: Pass, out: list[LaunchView], now: float, report: TickReport) -> None:
    """Declare launches of any location lost; start launches of this location again that never reached Dagster."""
    dagster_runs = this.launcher.dagster_runs({launch.launch_id: launch.dagster_run_id for launch in out})
    heartbeats, seen_at = look_at(this.engine, this.judge, [launch.launch_id for launch in out])
    for launch in out:
        with report.set_aside.guard(launch_name(launch.launch_id), kind=Subject.LAUNCH):
            id = launch.launch_id
            _look_after_one(this, launch, dagster_runs.get(id), heartbeats.get(id), now, seen_at, report)


def _look_after_one(
    this: Pass,
    launch: LaunchView,
    dagster_run: DagsterRunState | None,
    heartbeat: float | None,
    now: float,
    seen_at: float,
    report: TickReport,
) -> None:
    # The owner of a launch follows from the log. The data of the launches before may have taken minutes since the heartbeats were read.
    engine, judge = this.engine, this.judge
    dagster_run = judge.believed(launch.launch_id, dagster_run, marks_of(launch, heartbeat), seen_at)
    dataset = _dataset_of(engine, launch)
    is_plain = dataset is not None and dataset.kind is not DatasetKind.OURS
    has_died = judge.died_with_its_process(dagster_run) or judge.never_began(dagster_run, seen_at)
    if is_plain and not has_died:
        _follow_plain(engine, launch, dagster_run, this.foreign, report)
    elif why := judge.verdict(launch, heartbeat, dagster_run, seen_at):
        _declare_lost(this, launch, dagster_run, why, report)
        return
    never_came = dagster_run is None and launch.dagster_run_id is None and launch.location == this.location
    is_others = launch.owner != this.owner and not judge.abandoned(launch, now)
    if judge.is_unsure(launch.launch_id, seen_at) or (never_came and is_others):
        report.unsure.append(launch.launch_id)
    if not never_came or is_others:
        return
    are_served = _are_served(this, launch)
    if not any(are_served):
        return
    if gone := _why_no_order(engine, launch) or (None if all(are_served) else SERVED_IN_PART):
        _declare_lost(this, launch, None, gone, report)
    else:
        this.launcher.launch(_order_again(engine, launch, dataset))
        report.launched.append(launch.launch_id)


def _declare_lost(
    this: Pass, launch: LaunchView, dagster_run: DagsterRunState | None, why: str, report: TickReport
) -> None:
    adopted = _adopt(this, launch, report.set_aside)
    report.adopted += adopted
    fate = Fate.KILLED if dagster_run is None or not dagster_run.status.ended else dagster_run.fate
    lose = c.LoseLaunches(launch_ids=(launch.launch_id,), reason=why, fate=fate)
    if this.engine.handle(lose, actor=ACTOR).events or adopted:
        report.lost[launch.launch_id] = why
        if run_id := launch.dagster_run_id or (dagster_run.dagster_run_id if dagster_run else None):
            again: list[str] = []
            if dagster_run is not None and dagster_run.status is DagsterRunStatus.CANCELED:
                runs = this.engine.queries.job_runs.of_launch(launch.launch_id)
                again = built_again(this.engine, [ref for run in runs for ref in run.refs])
            message = f"databuild: the launch is lost: {why}"
            this.launcher.fail_dagster_run(run_id, ". ".join([message, *again]))


def _why_no_order(engine: Engine, launch: LaunchView) -> str | None:
    """Why Dagster would refuse the order, and other orders with it: its location no longer has such an asset or partition."""
    for run in _queued(engine, launch):
        for ref in run.refs:
            dataset = engine.queries.datasets.get(asset_of(ref))
            if dataset is None or dataset.location != launch.location:
                return f"{asset_of(ref)} is not an asset of location {launch.location} any longer"
            if why := engine.catalog.why_not(dataset, partition_key_of(ref)):
                return f"{ref} cannot be launched: {why}"
    return None


def _are_served(this: Pass, launch: LaunchView) -> list[bool]:
    """Of each of its queued job runs, whether this tick may launch it (rule 8.9)."""
    if this.serving is None:
        return [True]
    runs = [run.refs for run in _queued(this.engine, launch)]
    served = this.engine.queries.planning.served_among(this.serving, chain.from_iterable(runs))
    return [not served.isdisjoint(refs) for refs in runs]


def _adopt(this: Pass, launch: LaunchView, aside: SetAside) -> list[str]:
    """Record the success of lost job runs of this location whose data is complete (rule 6.9)."""
    if this.remains is None or launch.location != this.location:
        return []
    runs = [run for run in this.engine.queries.job_runs.of_launch(launch.launch_id) if run.state is JobRunState.RUNNING]
    adopted: list[str] = []
    for run in runs:
        # What cannot be read has not finished: its folder stays for `gc --leftovers`.
        with aside.guard(f"the data of job run {run.id}", kind=Subject.JOB_RUN):
            for success in this.remains.finished([run]):
                if _handle(this.engine, c.SucceedJobRuns(runs=(success,))) is not None:
                    adopted += [output.ref for output in success.outputs]
    return adopted


def _dataset_of(engine: Engine, launch: LaunchView) -> DatasetSpec | None:
    runs = engine.queries.job_runs.of_launch(launch.launch_id)
    return engine.queries.datasets.get(asset_of(runs[0].refs[0])) if runs else None


def _queued(engine: Engine, launch: LaunchView) -> list[JobRunView]:
    return [run for run in engine.queries.job_runs.of_launch(launch.launch_id) if run.state is JobRunState.QUEUED]


def _order_again(engine: Engine, launch: LaunchView, dataset: DatasetSpec | None) -> LaunchOrder:
    runs = _queued(engine, launch)
    keys = tuple(run.partition_key for run in runs)
    if dataset is not None and len(keys) > 1:
        keys = tuple(key for chunk in engine.catalog.launchable(dataset, keys, len(keys)) for key in chunk)
    return LaunchOrder(
        launch_id=launch.launch_id,
        job=launch.job,
        location=launch.location,
        kind=dataset.kind if dataset is not None else DatasetKind.OURS,
        assets=tuple(dict.fromkeys(asset_of(ref) for run in runs for ref in run.refs)),
        partition_keys=keys,
    )


def _follow_plain(
    engine: Engine, launch: LaunchView, dagster_run: DagsterRunState | None, foreign: Foreign, report: TickReport
) -> None:
    """Record the state of a plain asset's Dagster run, whose step reports nothing to databuild (rule 6.11)."""
    if dagster_run is None and launch.dagster_run_id is not None:
        why = f"its Dagster run {launch.dagster_run_id} is not there any more"
        if _handle(engine, c.LoseLaunches(launch_ids=(launch.launch_id,), reason=why)):
            report.lost[launch.launch_id] = why
    if dagster_run is None or dagster_run.status is DagsterRunStatus.QUEUED:
        return
    if launch.dagster_run_id is None:
        start = c.StartLaunch(
            launch_id=launch.launch_id,
            dagster_run_id=dagster_run.dagster_run_id,
            holder=f"{PLAIN_HOLDER}{dagster_run.dagster_run_id}",
        )
        _handle(engine, start)
    if not dagster_run.status.ended:
        return
    runs = [run for run in engine.queries.job_runs.of_launch(launch.launch_id) if run.state is JobRunState.RUNNING]
    for run in runs:
        _handle(engine, _end_of_plain(engine, run, dagster_run, foreign))


def _end_of_plain(engine: Engine, run: JobRunView, dagster_run: DagsterRunState, foreign: Foreign) -> c.Command:
    """End `run`: its own materialization counts, even if the Dagster run failed later; an earlier materialization does not."""
    if dagster_run.status is DagsterRunStatus.CANCELED:
        return c.CancelJobRuns(job_run_ids=(run.id,), reason=f"Dagster run {dagster_run.dagster_run_id} was canceled")
    seen = foreign.observe(run.refs)
    known = engine.queries.canonical.of(run.refs)
    not_live = [ref for ref in run.refs if not seen[ref].live or seen[ref].origin == known[ref].known_origin]
    if not not_live:
        outputs = tuple(OutputFact(ref=ref, origin=seen[ref].origin) for ref in run.refs)
        return c.SucceedJobRuns(runs=(RunSuccess(run.id, outputs),))
    error = f"Dagster run {dagster_run.dagster_run_id} {dagster_run.status.value} without materializing {', '.join(not_live)}"
    return c.FailJobRuns(failures=(c.RunFailure(run.id, error),))


# Dagster runs that have ended while they waited for a build: a killed process cannot give its delegations up itself. The waiting
# runs are followed along the log (rule 8.3). So a tick asks one question while no run waits; a process reads the whole ledger
# once, in its first tick.


class _Watch(Cursor, frozen=True, kw_only=True):
    """The waiting Dagster runs, as far as the log has been followed."""

    #: Dagster runs in an order; the last checked runs come last.
    waiting: dict[str, None]


def give_up_for_ended(
    engine: Engine, launcher: Launcher, judge: Judge, actor: str, *, head: int | None = None
) -> list[str]:
    """Give up the delegations of Dagster runs that have ended; returns their ids. `head` is as for `LogFollower`."""
    waiting = _waiting(engine, head)
    if not waiting:
        return []
    known = list(waiting)
    still = engine.queries.job_runs.still_waiting(known)
    # The builds of the others have ended, or they have given up themselves.
    _forget(waiting, [run_id for run_id in known if run_id not in still])
    asked = [run_id for run_id in known if run_id in still][:MAX_DAGSTER_RUNS]
    dagster_runs = launcher.dagster_runs({run_id: run_id for run_id in asked}) if asked else {}
    disowned = [run_id for run_id, run in dagster_runs.items() if run.is_disowned]
    heartbeats, seen_at = look_at(engine, judge, disowned) if disowned else ({}, engine.steady())
    ended: list[str] = []
    for run_id in asked:
        marks = (None, heartbeats.get(run_id, 0.0))
        why = _why_ended(judge.believed(run_id, dagster_runs.get(run_id), marks, seen_at), judge)
        refs = tuple(ref for ref, is_followed_up in still[run_id].items() if not is_followed_up)
        if why is not None and refs:
            engine.handle(c.GiveUpDelegations(requester=run_id, reason=why, refs=refs), actor=actor)
            ended.append(run_id)
        _forget(waiting, [run_id])
        if why is None or len(refs) < len(still[run_id]):
            waiting[run_id] = None
    return ended


def _forget(waiting: dict[str, None], run_ids: Iterable[str]) -> None:
    """Remove each id by itself, because the tick of a second thread may add ids meanwhile."""
    for run_id in run_ids:
        waiting.pop(run_id, None)


def _why_ended(dagster_run: DagsterRunState | None, judge: Judge) -> str | None:
    if dagster_run is None:
        return "its Dagster run is not there any more"
    if dagster_run.status.ended:
        return f"its Dagster run ended: {dagster_run.status.value}"
    return "the process of its Dagster run is gone" if judge.died_with_its_process(dagster_run) else None


def _waiting(engine: Engine, head: int | None) -> dict[str, None]:
    follower = LogFollower(engine, "ended waiters", _Watch, head=head)
    job_runs = engine.queries.job_runs
    watch = follower.load() or _Watch(follower.head, waiting=dict.fromkeys(job_runs.scan_waiting_dagster_runs()))
    for event in follower.events(watch, ("PartitionDelegated",)):
        assert isinstance(event.fact, e.PartitionDelegated)
        # Requesters that begin to wait; `still_waiting` leaves out those of wants.
        if any(delegation.kind == Answer.JOIN.value for delegation in event.fact.delegations):
            watch.waiting.setdefault(event.fact.requester, None)
    follower.keep(_Watch(follower.last_seq(watch), waiting=watch.waiting))
    return watch.waiting
