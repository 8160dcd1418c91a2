"""The waits of a build or a Dagster run: open job runs with their processes, the next retry, launches that have not begun."""

from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from math import inf
from typing import NamedTuple

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import in_words
from databuild_dagster.engine.judge import PLAIN_HOLDER
from databuild_dagster.engine.outages import in_words as outage_in_words
from databuild_dagster.engine.outages import needs_of, outages
from databuild_dagster.engine.why.reasons import StartedRun, slow_launches
from databuild_dagster.engine.wording import when
from databuild_dagster.model.need import DATA_OF_STATE, Action, Maker, need_of, wanted_as
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.planning import AwaitedRun

#: Job runs that are read, and launches of the job runs that a sentence names.
MAX_AWAITED = 1000
MAX_NAMED = 3
_S = InstanceState


class Waiting(NamedTuple):
    """The causes for which served refs wait. Without any, nothing known will make them live."""

    job_runs: list[AwaitedRun]
    #: The time of the next retry.
    retry_at: float | None
    #: By launch id, a clause about each that runs much longer than usual.
    slow: Mapping[str, str]
    #: A sentence for each outage that holds due refs back.
    outages: list[str]

    @property
    def sentence(self) -> str:
        """The first job run of each launch, with its process; or the time of the retry."""
        launches = [list(runs) for _, runs in groupby(self.job_runs, lambda run: run.launch_id)]
        if launches:
            more = f"; and {len(launches) - MAX_NAMED} other launches" if len(launches) > MAX_NAMED else ""
            return "; ".join(self._of_launch(runs) for runs in launches[:MAX_NAMED]) + more
        if self.outages:
            return f"the end of an outage: {'; '.join(self.outages)}"
        return "nothing that is known" if self.retry_at is None else f"the retry at {when(self.retry_at)}"

    def _of_launch(self, runs: list[AwaitedRun]) -> str:
        refs = few_of([run.ref for run in runs], 1)
        does = "is queued" if runs[0].state is JobRunState.QUEUED else "builds it"
        slow = self.slow.get(runs[0].launch_id, "")
        return f"{refs}: job run {runs[0].job_run} {does} since {when(runs[0].since)}, {process_of(runs[0])}{slow}"


def awaited_by(engine: Engine, serving: Collection[Ref], planned_at: float) -> Waiting:
    """The causes for which the served refs of a build wait, if a tick that planned at that time found nothing to do (rule 8.9).

    A due ref that the tick did not launch waits for the launches of its job, which has a limit on them.
    """
    queries = engine.queries
    found, due = queries.planning.awaited(serving, MAX_AWAITED), queries.planning.due_soon(serving, planned_at)
    held: list[str] = []
    if not found and (waiting := {entry.dataset_id for entry in due if entry.is_now}):
        specs = [spec for id, spec in queries.datasets.all().items() if id in waiting]
        needs = {(spec.location, what) for spec in specs for what in needs_of(spec)}
        held = [outage_in_words(what, aside) for what, aside in outages(engine) if (aside.location, what) in needs]
        jobs = {(spec.location, spec.job) for spec in specs if spec.concurrency is not None}
        full = [launch for launch in queries.launches.open() if (launch.location, launch.job) in jobs]
        runs = [run for launch in full for run in queries.job_runs.of_launch(launch.launch_id)]
        found = queries.planning.awaited([ref for run in runs for ref in run.refs], MAX_AWAITED) if runs else []
    retry_at = min((entry.retry_at for entry in due if entry.retry_at is not None), default=None)
    started = [run for run in found if run.state is JobRunState.RUNNING]
    running = (StartedRun(run.launch_id, run.job_run, run.ref, run.since) for run in started)
    return Waiting(found, retry_at, slow_launches(queries, running, engine.now()), held)


def process_of(run: AwaitedRun) -> str:
    """The process that executes a job run, or is to start it, in words."""
    if run.holder is not None and run.holder.startswith(PLAIN_HOLDER):
        return f"Dagster run {run.dagster_run_id}"
    return in_words(run.holder or run.owner)


def launches_not_begun(engine: Engine, refs: Iterable[Ref]) -> dict[str, tuple[Ref, ...]]:
    """The launches that have not begun, each with the awaited refs that need it; none while an awaited ref is being built.

    A Dagster run that waits in a run slot asks, because such a launch may need that slot (rule 8.3; decision 0023). The refs
    that it waits for, and the refs that they wait for in turn, decide:

    - A running job run gives its slot back, and a ref that rests or is blocked (`model.need`) ends the wait: no launch counts.
    - A queued job run is a launch that has not begun.
    - Without such a launch, the due refs are launched after the open launches.
    """
    now = engine.now()
    asked = list(refs)
    needs = (need.ref for need in engine.queries.planning.waited_for(asked, now))
    found = engine.queries.canonical.of(list(dict.fromkeys((*asked, *needs)))).values()
    building = {known.ref: known.job_run for known in found if known.state is _S.BUILDING and known.job_run is not None}
    job_runs = engine.queries.job_runs.named(building.values())
    if any(job_runs[job_run].state is not JobRunState.QUEUED for job_run in building.values()):
        return {}
    paused = engine.queries.planning.paused([known.ref for known in found], now)
    actions = {known.ref: _action(known, now, is_paused=known.ref in paused) for known in found}
    if not set(actions.values()) <= {Action.BUILD, Action.WAIT}:
        return {}
    waiting: dict[str, list[Ref]] = {}
    for ref, job_run in building.items():
        waiting.setdefault(job_runs[job_run].launch_id, []).append(ref)
    if not waiting:
        due = [ref for ref, action in actions.items() if action is Action.BUILD]
        waiting = dict.fromkeys(_before(engine, due), due)
    return {launch_id: tuple(refs) for launch_id, refs in waiting.items()}


def _action(known: Canonical, now: float, *, is_paused: bool) -> Action:
    """The next tick's action for a ref with a want."""
    maker = Maker.PAUSED if is_paused else Maker.JOB
    return need_of(DATA_OF_STATE[known.state], maker, wanted_as(1, inf, known.retry_at, now)).action


def _before(engine: Engine, due: Iterable[Ref]) -> list[str]:
    """The open launches that have not begun: within `TickLimits`, they come before other launches."""
    specs = (engine.queries.datasets.get(asset) for asset in {asset_of(ref) for ref in due})
    locations = {spec.location for spec in specs if spec is not None}
    if not locations:
        return []
    launches = engine.queries.launches.open()
    return [launch.launch_id for launch in launches if launch.location in locations and launch.dagster_run_id is None]
