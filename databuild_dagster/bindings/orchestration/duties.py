"""One tick of a code location: the engine's tick and the duties around it, in the order of a table.

A duty fails alone: its failure is logged, and the next tick finds what it left undone. Without the engine's tick the
other duties have nothing to act on.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from dagster import DagsterInstance, RepositoryDefinition

from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.claims.launcher import OrderCollector
from databuild_dagster.bindings.display.report_dead_runs import report_dead_runs
from databuild_dagster.bindings.display.sla_check import report_sla_checks
from databuild_dagster.bindings.display.taint_ui import paint_taints
from databuild_dagster.bindings.orchestration.tend_held_runs import tend_held_runs
from databuild_dagster.bindings.reading.orphan_sessions import interrupt_orphaned_sessions
from databuild_dagster.bindings.registry.plain_assets import ForeignAssets
from databuild_dagster.data.lost_run_output import WarehouseRemains
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.registering import Registered
from databuild_dagster.engine.tick import TickReport, tick
from databuild_dagster.engine.tick_pass import Pass
from databuild_dagster.features.lots.copies.lot_copies import keep_copies
from databuild_dagster.features.notices.alerts import send_alerts
from databuild_dagster.features.notices.settings import ALERTS
from databuild_dagster.features.tables.table_check import report_table_checks
from databuild_dagster.features.tables.table_publishing import TICK_WAIT_SECONDS, publish_tables
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.logs import log_failure, logger
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.wording import few_of

#: The duty whose failure is the failure of the whole tick.
TICK: Final = "launch what is due"

_log = logger(__name__)


@dataclass(frozen=True)
class Work:
    """The inputs of one tick's duties."""

    instance: DagsterInstance
    engine: Engine
    repository: RepositoryDefinition
    deployment: Deployment
    launcher: OrderCollector
    remains: WarehouseRemains
    interval_seconds: float
    #: The datasets of all locations, and where the log ended before the tick.
    registered: Registered
    #: The refs that a build serves; None for an orchestrator (rule 8.9).
    serving: Collection[Ref] | None = None
    #: Lets another thread write the copies of lots; None where the tick does it.
    follow_copies: Callable[[], None] | None = None
    #: The report of the engine's tick, filled by it.
    report: TickReport = field(default_factory=TickReport)

    @cached_property
    def datasets(self) -> Collection[DatasetSpec]:
        """The location's own."""
        return self.registered.of(self.deployment.location).values()

    @cached_property
    def head(self) -> int:
        """The last event after the tick of the engine: the duties that follow the log stop there."""
        return self.engine.queries.head().seq

    def keep_copies(self) -> None:
        """Write the copies of lots, or let another thread do it."""
        if self.follow_copies is not None:
            self.follow_copies()
        else:
            keep_copies(self.instance, self.deployment, self.datasets, head=self.head)


@dataclass(frozen=True)
class Duty:
    """One task of each tick for its code location."""

    #: A verb and its object, as a sentence about its failure has them.
    name: str
    run: Callable[[Work], object]
    #: Duties that have to succeed before this one begins, and the reason.
    after: tuple[str, ...] = (TICK,)
    why: str = ""


def _tick(work: Work) -> None:
    instance, deployment = work.instance, work.deployment
    done = tick(
        Pass(
            work.engine,
            location=deployment.location,
            launcher=work.launcher,
            foreign=ForeignAssets(instance),
            # A judge has to watch a launch for a while before it may declare it dead, so it outlives the tick.
            judge=work.engine.memory.of(Judge, Judge),
            owner=this_process(),
            limits=deployment.limits,
            remains=work.remains,
            interval_seconds=work.interval_seconds,
            datasets=work.registered.plannable,
            head=work.registered.head,
            serving=work.serving,
        )
    )
    work.report.add(done)


def _tend_held_runs(work: Work) -> None:
    deployment = work.deployment
    timeout_seconds = deployment.delegation_timeout_seconds
    tend_held_runs(work.instance, location=deployment.location, delegation_timeout_seconds=timeout_seconds)


DUTIES = (
    Duty(TICK, _tick, after=()),
    Duty(
        "report dead Dagster runs",
        lambda work: report_dead_runs(work.instance, work.report.lost),
        why="the tick finds the lost launches",
    ),
    Duty(
        "remove what dead processes left",
        lambda work: work.remains.clear(work.report.lost),
        why="the tick adopts complete data of lost launches, which is no remains",
    ),
    Duty(
        "tend held Dagster runs",
        _tend_held_runs,
        why="a held run waits for what the tick launches again, instead of building it",
    ),
    Duty(
        "send alerts",
        lambda work: send_alerts(
            work.instance,
            work.engine,
            work.deployment.location,
            ALERTS.of(work.deployment),
            began_at=work.registered.head.seq,
            head=work.head,
        ),
        why="the tick records which SLAs were missed",
    ),
    Duty(
        "report SLA checks",
        lambda work: report_sla_checks(work.instance, work.deployment.location, work.repository.asset_graph),
        why="the tick records which SLAs were missed",
    ),
    Duty(
        "show taints",
        lambda work: paint_taints(work.instance, work.deployment.location, work.datasets, head=work.head),
        why="a ref that the tick launches at once is not red in between",
    ),
    Duty(
        "interrupt orphaned Spark sessions",
        lambda work: interrupt_orphaned_sessions(work.instance, work.deployment.spark),
        why="the tick ends the Dagster runs of lost launches, whose sessions are orphans",
    ),
    Duty(
        "keep copies of lots",
        lambda work: work.keep_copies(),
        why="it may take minutes, and no duty before it depends on it",
    ),
    Duty(
        "publish tables",
        lambda work: publish_tables(
            work.instance, work.deployment, work.datasets, wait_seconds=TICK_WAIT_SECONDS, head=work.head
        ),
        why="it waits for catalogs on other machines, and only the next duty depends on it, so it comes late",
    ),
    Duty(
        "report table checks",
        lambda work: report_table_checks(
            work.instance, work.deployment.location, work.repository.asset_graph, work.datasets
        ),
        why="a table that this tick has brought up to date passes at once",
    ),
)


def check_duties(duties: Sequence[Duty]) -> None:
    """Raises ValueError for a duty before one of its `after`, for a missing reason and for a repeated name."""
    before: set[str] = set()
    for duty in duties:
        if missing := set(duty.after) - before:
            raise ValueError(f"Duty {duty.name!r} has to come after {few_of(sorted(missing))}.")
        if duty.name in before or bool(duty.after) is not bool(duty.why):
            raise ValueError(f"Duty {duty.name!r} is there twice, or has no reason for its place.")
        before.add(duty.name)


check_duties(DUTIES)


def do_duties(duties: Sequence[Duty], work: Work) -> dict[str, Exception]:
    """Do each duty, except those after a failed one; returns the errors by duty.

    A failed duty is logged, and the next tick finds what it left undone.
    """
    failed: dict[str, Exception] = {}
    skipped: set[str] = set()
    for duty in duties:
        if not skipped.isdisjoint(duty.after):
            skipped.add(duty.name)
            continue
        try:
            duty.run(work)
        except Exception as error:
            failed[duty.name] = error
            skipped.add(duty.name)
            if duty.name != TICK:
                log_failure(_log, f"the tick of {work.deployment.location} could not {duty.name}", error)
    return failed
