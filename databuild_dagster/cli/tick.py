"""`databuild admin tick`: the orchestrator's ticks in this process, one or as many as there is work; no daemon needed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec import UNSET, UnsetType

from databuild_dagster.bindings.local.building import REST_SECONDS, WAIT_SECONDS, Workshop
from databuild_dagster.calls.streams import printing_to_stderr
from databuild_dagster.cli.build import opened_workshop
from databuild_dagster.cli.options import DURATION, Where, common, definitions
from databuild_dagster.cli.output import count, emit
from databuild_dagster.cli.process import FAILED, Exit
from databuild_dagster.engine.judge import LEASE_SECONDS, OWNERSHIP_SECONDS
from databuild_dagster.engine.planning import built_here
from databuild_dagster.engine.tick import TickReport
from databuild_dagster.engine.why.orchestrators import outages_with_refs
from databuild_dagster.model.records import extended
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import FAILING
from databuild_dagster.model.wording import typed

if TYPE_CHECKING:
    from databuild_dagster.bindings.orchestration.side_ticks import SideReport

#: How long the ticks wait for the end of an outage before they leave it to the next command.
OUTAGE_SECONDS = 30.0
#: How long the ticks wait for signs of life of other processes: ticks longer than a break of the judge would never end.
UNSURE_SECONDS = OWNERSHIP_SECONDS + 2 * LEASE_SECONDS
#: Ticks in a row that have nothing to do, while others record events all the time.
MAX_MOVED = 20


@click.command("tick")
@click.option("--until-idle", is_flag=True, help="Tick until no work is left here, also after retries.")
@click.option(
    "--timeout",
    type=DURATION,
    default=None,
    metavar="DURATION",
    help="With --until-idle: begin no tick after this time.",
)
@definitions
@common
def tick(until_idle: bool, timeout: float | None, where: Where, as_json: bool) -> None:
    """Run one tick of the orchestrator in this process.

    With --until-idle the command runs ticks until no work is left, for example in a cron job. It builds open wants and waits for
    retries. It waits for other processes only until each has shown that it lives, or is lost: at most two minutes. Its exit code is 1
    if a ref or an operation failed in the end, if an operation cannot continue, if Spark or the warehouse stays out of reach, or if
    the time of --timeout has passed.
    """
    if timeout is not None and not until_idle:
        raise click.UsageError("--timeout needs --until-idle: one tick waits for nothing.")
    seen = _Seen()
    with printing_to_stderr():
        workshop = opened_workshop(where)
        if until_idle:
            report, is_idle = _until_idle(workshop, seen, timeout)
        else:
            report, is_idle = workshop.tick(seen, has_threads_beside=False), True
    failed = _failed(workshop, report) if until_idle else []
    out_of_reach = _outages(workshop)
    if as_json:
        of_all = {"failed": len(failed), "timed_out": not is_idle} if until_idle else {}
        emit(extended(ShownTick, report, seen, set_aside=dict(report.set_aside), **of_all))
    else:
        _tell(report, seen)
        for sentence in out_of_reach:
            click.echo(sentence)
        if failed:
            says = f"`databuild explain {typed(failed[0])}` says why"
            click.echo(f"{count(len(failed), 'ref')} failed: {says if len(failed) == 1 else f'of the first, {says}'}.")
        if not is_idle:
            click.echo(f"The --timeout of {timeout:g} s has passed, and work is left: run the same command again.")
    has_failed = bool(failed) or (until_idle and bool(seen.failed_operations or seen.stuck_operations or out_of_reach))
    if has_failed or not is_idle:
        raise Exit(FAILED)


def _until_idle(workshop: Workshop, seen: _Seen, timeout: float | None) -> tuple[TickReport, bool]:
    """The results of all ticks, and whether the last tick left nothing to do. The copies for other tools are written then."""
    try:
        report, is_idle = _ticks(workshop, seen, timeout)
        workshop.finish_duties(is_cut_short=not is_idle)
        return report, is_idle
    finally:
        workshop.leave_duties()


def _ticks(workshop: Workshop, seen: _Seen, timeout: float | None) -> tuple[TickReport, bool]:
    """The results of all ticks with the troubles of the last tick, and whether the last tick left nothing to do."""
    engine, pause = workshop.engine, threading.Event()
    built = _built_here(workshop)
    whole, n_moved, moved_at = TickReport(), 0, time.monotonic()
    deadline = None if timeout is None else time.monotonic() + timeout
    while deadline is None or time.monotonic() < deadline:
        n_ended = len(seen.operations)
        seen.forget_troubles()
        report = workshop.tick(seen)
        whole.add(report)
        # A later tick tries again what an earlier one set aside.
        whole.set_aside = report.set_aside
        if not report.idle or len(seen.operations) > n_ended:
            n_moved, moved_at = 0, time.monotonic()
        elif (report.unsure or seen.is_unsure) and time.monotonic() - moved_at < UNSURE_SECONDS:
            # A host may have died with what it holds, and no process may tick after this one.
            pause.wait(WAIT_SECONDS)
        elif (retry_at := engine.queries.planning.next_retry(built, report.planned_at)) is not None:
            pause.wait(min(max(retry_at - engine.now(), 0.0), WAIT_SECONDS))
        elif time.monotonic() - moved_at < OUTAGE_SECONDS and _outages(workshop):
            # A probe may pass soon. What lasts longer is told, and left to the next command.
            pause.wait(WAIT_SECONDS)
        elif engine.queries.events.head().seq != report.began_at and n_moved < MAX_MOVED:
            # What was recorded during the tick may have made a ref due.
            n_moved += 1
            pause.wait(REST_SECONDS)
        else:
            return whole, True
    return whole, False


def _outages(workshop: Workshop) -> list[str]:
    """A sentence for each outage of the workshop's locations behind which something waits (rule 6.17)."""
    here = {location.deployment.location for location in workshop.locations if location.deployment is not None}
    found = outages_with_refs(workshop.engine)
    return [outage.sentence for outage in found if outage.location in here and outage.waiting]


def _built_here(workshop: Workshop) -> set[int]:
    """The datasets that the ticks launch."""
    deployments = [location.deployment for location in workshop.locations if location.deployment is not None]
    return {id for deployment in deployments for id in built_here(workshop.datasets, deployment.location)}


def _failed(workshop: Workshop, report: TickReport) -> list[Ref]:
    """The refs that the ticks built, found lost or found to miss inputs, and that have failed in the end."""
    queries = workshop.engine.queries
    runs = [run for launch_id in (*report.launched, *report.lost) for run in queries.job_runs.of_launch(launch_id)]
    states = queries.canonical.states(dict.fromkeys([*(ref for run in runs for ref in run.refs), *report.missed]))
    return [ref for ref, state in states.items() if state in FAILING]


class ShownTick(msgspec.Struct, frozen=True):
    """The results of the ticks of a command."""

    launched: list[str]
    lost: dict[str, str]
    missed: list[Ref]
    arrived: list[Ref]
    fired: list[Ref]
    expired: list[str]
    sla_missed: list[str]
    given_up: list[str]
    set_aside: dict[str, str]
    launched_jobs: list[str]
    jobs_without_executor: dict[str, int]
    operations: dict[str, str]
    stuck_operations: dict[str, str]
    #: With --until-idle alone: the number of refs that have failed in the end.
    failed: int | UnsetType = UNSET
    timed_out: bool | UnsetType = UNSET


def _tell(report: TickReport, seen: _Seen) -> None:
    doings = list(_doings(report, seen))
    click.echo(f"{'; '.join(doings)}." if doings else "Nothing is due.")
    for id, why in seen.stuck_operations.items():
        click.echo(f"{id} cannot continue: {why}")
    for sentence in report.set_aside.sentences():
        click.echo(sentence)


@dataclass(frozen=True)
class _Seen:
    """The launches and completions of the ticks, and the troubles of the last tick."""

    launched_jobs: list[str] = field(default_factory=list)
    #: Operation to its outcome, and the operations that failed.
    operations: dict[str, str] = field(default_factory=dict)
    failed_operations: set[str] = field(default_factory=set)
    #: Operation to why it cannot continue here.
    stuck_operations: dict[str, str] = field(default_factory=dict)
    #: Operation to the number of its jobs that no process runs.
    jobs_without_executor: dict[str, int] = field(default_factory=dict)
    #: Of each code location, whether the holders of leases are not known yet to live.
    unsure: list[bool] = field(default_factory=list)

    def launching(self, job: str, n_partitions: int) -> None:
        self.launched_jobs.append(f"{job} ({count(n_partitions, 'partition')})")

    def waiting(self, sentence: str) -> None:
        """A tick waits for no job run."""

    def side_ticked(self, done: SideReport) -> None:
        """Add a code location's part of a tick."""
        self.operations.update(done.ended)
        self.failed_operations.update(done.failed)
        self.stuck_operations.update(done.stuck)
        self.jobs_without_executor.update(done.waiting)
        self.unsure.append(done.is_unsure)
        for id in done.ended:
            self.stuck_operations.pop(id, None)
            self.jobs_without_executor.pop(id, None)

    def forget_troubles(self) -> None:
        """Forget the troubles; the next tick finds the remaining ones."""
        self.stuck_operations.clear()
        self.jobs_without_executor.clear()
        self.unsure.clear()

    @property
    def is_unsure(self) -> bool:
        """Whether a process elsewhere may be dead."""
        return any(self.unsure)


def _doings(report: TickReport, seen: _Seen) -> Iterator[str]:
    if seen.launched_jobs:
        jobs = Counter(seen.launched_jobs)
        yield f"Launched {', '.join(job if n == 1 else f'{n} times {job}' for job, n in jobs.items())}"
    for id, outcome in seen.operations.items():
        yield f"{id} has ended: {outcome}"
    for id, n_jobs in seen.jobs_without_executor.items():
        yield f"{count(n_jobs, 'job')} of {id} without an executor"
    others = {
        ("ref", "wanted by arcs"): report.fired,
        ("ref", "waiting for inputs"): report.missed,
        ("ref", "found to be there, or not any more"): report.arrived,
        ("launch", "found lost"): report.lost,
        ("want", "expired"): report.expired,
        ("want", "past its SLA"): report.sla_missed,
        ("request", "ended while it waited"): report.given_up,
    }
    for (noun, doing), found in others.items():
        if found:
            yield f"{count(len(found), noun, 'launches' if noun == 'launch' else None)} {doing}"
