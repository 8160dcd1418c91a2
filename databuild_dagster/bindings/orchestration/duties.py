"""A tick of a code location: the engine's tick and the duties around it, in the order of a table.

A duty fails alone: its failure is logged, and the next tick finds what it left undone. Without the engine's tick the
other duties have nothing to act on. Features add duties to the duties of the core; `duties` has all of them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Final, Protocol

from dagster import DagsterInstance, RepositoryDefinition

from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.claims.launcher import OrderCollector
from databuild_dagster.bindings.display.report_dead_runs import report_dead_runs
from databuild_dagster.bindings.display.taint_ui import paint_taints
from databuild_dagster.bindings.orchestration.probing import probe_outages
from databuild_dagster.bindings.orchestration.tend_held_runs import tend_held_runs
from databuild_dagster.bindings.reading.orphan_sessions import interrupt_orphaned_sessions
from databuild_dagster.bindings.registry.plain_assets import ForeignAssets
from databuild_dagster.data.environment import environment_of
from databuild_dagster.data.lost_run_output import WarehouseRemains
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.lookout import Lookout, lookout_over_launches
from databuild_dagster.engine.registering import Registered
from databuild_dagster.engine.tick import TickReport, tick
from databuild_dagster.engine.tick_pass import Pass
from databuild_dagster.feature import rows
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.logs import log_failure, logger
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.surroundings import Surrounding
from databuild_dagster.model.wording import few_of

#: The duty whose failure is the failure of the whole tick.
TICK: Final = "launch what is due"
#: The time that each duty gets at the end of a build that was interrupted or timed out.
CUT_SHORT_SECONDS: Final = 1.0

_log = logger(__name__)


@dataclass(frozen=True)
class Work:
    """The inputs of a tick's duties."""

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
    #: By duty, the threads that work for it while launches of a build run.
    beside: Mapping[str, "Beside"] = field(default_factory=dict)
    #: The report of the engine's tick, filled by it.
    report: TickReport = field(default_factory=TickReport)

    @cached_property
    def datasets(self) -> Collection[DatasetSpec]:
        """The location's own."""
        return self.registered.of(self.deployment.location).values()

    @cached_property
    def head(self) -> int:
        """The last event after the tick of the engine: the duties that follow the log stop there."""
        return self.engine.queries.events.head().seq


@dataclass(frozen=True)
class Place:
    """A code location in which a build works; it has no tick for a duty at its end, and none while its launches run."""

    instance: DagsterInstance
    deployment: Deployment
    #: The location's own.
    datasets: Collection[DatasetSpec]


class Beside(Protocol):
    """A thread that does the work of a duty while the launches of a build run."""

    def follow(self) -> None:
        """Let the thread work on what the log has now, and return at once."""

    def finish(self, seconds: float | None) -> None:
        """Wait until the work is done, for at most so many seconds, and close. None leaves the bound to the duty."""

    def close(self) -> None:
        """End the thread; the next tick finds what it left undone."""


class Finish(Protocol):
    """What a build does for a duty at its end, because no tick of its process follows."""

    def __call__(self, place: Place, seconds: float | None) -> bool | None:
        """Work for at most so many seconds, which are few after an interrupt. None leaves the bound to the duty.

        Returns True if it left nothing to the next tick.
        """


@dataclass(frozen=True)
class Duty:
    """A task of each tick for its code location."""

    #: A verb and its object, as a sentence about its failure has them.
    name: str
    run: Callable[[Work], object]
    #: Duties that have to succeed before this duty begins, and the reason.
    after: tuple[str, ...] = (TICK,)
    why: str = ""
    #: Of a feature's duty: the duty behind which it is placed, whether that succeeds or not; empty for the last place.
    behind: str = ""
    finish: Finish | None = None
    #: It needs the warehouse, so it waits for the end of an outage (rule 6.17).
    needs_warehouse: bool = False
    #: Begins a thread for a build, which takes the places of `run` and `finish`; None where no thread is worth it.
    beside: Callable[[Place], Beside | None] | None = None
    #: It changes what people and programs outside see, so an environment leaves it out (rule 16.5).
    is_public: bool = False


def _tick(work: Work) -> None:
    instance, deployment, engine = work.instance, work.deployment, work.engine
    # A judge has to watch a launch for a while before it may declare it dead, so it outlives the tick.
    judge = engine.memory.of(Judge, lambda: Judge(witnesses=rows(lambda feature: feature.lives)))
    if work.interval_seconds:
        engine.memory.of(Lookout, lambda: lookout_over_launches(engine, judge)).keep()
    done = tick(
        Pass(
            engine,
            location=deployment.location,
            launcher=work.launcher,
            foreign=ForeignAssets(instance),
            judge=judge,
            owner=this_process(),
            limits=deployment.limits,
            remains=work.remains,
            interval_seconds=work.interval_seconds,
            datasets=work.registered.plannable,
            head=work.registered.head,
            serving=work.serving,
            providers=rows(lambda feature: feature.provides),
            fires_arcs=environment_of(instance.root_directory) is None,
        )
    )
    work.report.add(done)


def _tend_held_runs(work: Work) -> None:
    deployment = work.deployment
    timeout_seconds = deployment.delegation_timeout_seconds
    tend_held_runs(work.instance, location=deployment.location, delegation_timeout_seconds=timeout_seconds)


def _show_failures(place: Place, seconds: float | None) -> bool | None:
    """Paint once more at the end: the failure of the last launch has failed further refs upstream (rule 8.8)."""
    return paint_taints(place.instance, place.deployment.location, place.datasets)


#: The duties of the core.
DUTIES: Final = (
    Duty(TICK, _tick, after=()),
    Duty(
        "probe what is out of reach",
        probe_outages,
        why="the tick reads what is out of reach",
    ),
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
        "show taints",
        lambda work: paint_taints(work.instance, work.deployment.location, work.datasets, head=work.head),
        why="a ref that the tick launches at once is not red in between",
        finish=_show_failures,
    ),
    Duty(
        "interrupt orphaned Spark sessions",
        lambda work: interrupt_orphaned_sessions(work.instance, work.deployment.spark),
        why="the tick ends the Dagster runs of lost launches, whose sessions are orphans",
    ),
)


@cache
def duties() -> tuple[Duty, ...]:
    """The duties of the core and of all features, in their order. Raises what `check_duties` raises."""
    found = merged(DUTIES, rows(lambda feature: feature.duties))
    check_duties(found)
    return found


def duties_in(instance: DagsterInstance) -> tuple[Duty, ...]:
    """The duties of a tick, without those that are public in an environment. Raises what `check_duties` raises."""
    is_environment = environment_of(instance.root_directory) is not None
    return tuple(duty for duty in duties() if not (is_environment and duty.is_public))


def merged(core: Sequence[Duty], others: Iterable[Duty]) -> tuple[Duty, ...]:
    """The duties of the core with further duties, each behind the duty that it names, or last."""
    found = list(core)
    for duty in others:
        names = [listed.name for listed in found]
        place = names.index(duty.behind) + 1 if duty.behind in names else len(found)
        found.insert(place, duty)
    return tuple(found)


def check_duties(some: Sequence[Duty]) -> None:
    """Raises ValueError for a duty before a duty of its `after`, for a missing reason and for a repeated name."""
    before: set[str] = set()
    for duty in some:
        if missing := set(duty.after) - before:
            raise ValueError(f"Duty {duty.name!r} has to come after {few_of(sorted(missing))}.")
        if duty.name in before or bool(duty.after) is not bool(duty.why):
            raise ValueError(f"Duty {duty.name!r} is there twice, or has no reason for its place.")
        before.add(duty.name)


def do_duties(some: Sequence[Duty], work: Work) -> dict[str, Exception]:
    """Do each duty, or let its thread do it, except duties after a failed duty; returns the errors by duty.

    A failed duty is logged, and the next tick finds what it left undone.
    """
    failed: dict[str, Exception] = {}
    skipped: set[str] = set()
    for duty in some:
        if not skipped.isdisjoint(duty.after):
            skipped.add(duty.name)
            continue
        if duty.needs_warehouse and Surrounding.WAREHOUSE in work.report.out_of_reach:
            continue
        beside = work.beside.get(duty.name)
        try:
            if beside is None:
                duty.run(work)
            else:
                beside.follow()
        except Exception as error:
            failed[duty.name] = error
            skipped.add(duty.name)
            if duty.name != TICK:
                log_failure(_log, f"the tick of {work.deployment.location} could not {duty.name}", error)
    return failed
