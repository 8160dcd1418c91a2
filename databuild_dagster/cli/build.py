"""`databuild build` and `databuild tick`: the orchestrator's ticks in this process, no daemon needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import click

from databuild_dagster.cli.building import Built, Workshop, build_refs
from databuild_dagster.cli.definitions import load_deployed
from databuild_dagster.cli.options import Selection, Where, common, definitions, selection, tabular
from databuild_dagster.cli.output import count, emit, picked, table
from databuild_dagster.cli.process import FAILED, INTERRUPTED, Exit, printing_to_stderr
from databuild_dagster.cli.progress import follow
from databuild_dagster.cli.state import the_instance
from databuild_dagster.engine.operations.coordinator import Coordination
from databuild_dagster.engine.tick import TickReport
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.states import OperationState


@click.command()
@selection
@click.option("--priority", type=int, default=0, show_default=True, help="Higher is more urgent.")
@click.option("--comment", default="", help="The reason, shown in the list of wants.")
@click.option("--rebuild", is_flag=True, help="Rebuild REFS, also those that are live or failed.")
@click.option("--fresh", is_flag=True, help="Rebuild those of REFS that another code version built.")
@definitions
@tabular
def build(
    selection: Selection, priority: int, comment: str, rebuild: bool, fresh: bool, where: Where, as_json: bool
) -> None:
    """Build REFS and what they need, and wait for the end.

    What is live already is not built again, unless --rebuild says so; what another process is building is waited for.
    """
    with printing_to_stderr():
        workshop = _workshop(where)
        refs = selection.refs(workshop.engine.queries)
        first_seq = workshop.engine.queries.head().seq
        with follow(workshop.engine, refs, first_seq) as progress:
            built = build_refs(
                workshop,
                refs,
                priority=priority,
                comment=comment,
                rebuild=rebuild,
                fresh=fresh,
                progress=progress,
                first_seq=first_seq,
            )
    if as_json:
        emit(built.as_json())
    else:
        _summarize(built)
    if built.interrupted:
        raise Exit(INTERRUPTED)
    if built.not_live:
        raise Exit(FAILED)


@click.command("tick")
@definitions
@common
def tick_once(where: Where, as_json: bool) -> None:
    """Run one tick of the orchestrator in this process."""
    seen = _Seen()
    with printing_to_stderr():
        report = _workshop(where).tick(seen)
    if as_json:
        emit(
            {
                **picked(report, "launched", "lost", "missed", "arrived"),
                "operations": {str(id): outcome.value for id, outcome in seen.ended.items()},
                "stuck_operations": {str(id): why for id, why in seen.stuck.items()},
            }
        )
        return
    doings = list(_doings(report, seen))
    click.echo(f"{'; '.join(doings)}." if doings else "Nothing is due.")
    for id, why in seen.stuck.items():
        click.echo(f"{id} cannot go on: {why}")


@dataclass(frozen=True)
class _Seen:
    """The launches and completions of one tick."""

    launched: list[str] = field(default_factory=list)
    ended: dict[OperationId, OperationState] = field(default_factory=dict)
    #: Operation to why it cannot go on here.
    stuck: dict[OperationId, str] = field(default_factory=dict)
    #: Operation to the number of its jobs that no process runs.
    waiting_jobs: dict[OperationId, int] = field(default_factory=dict)

    def launching(self, job: str, n_partitions: int) -> None:
        self.launched.append(f"{job} ({count(n_partitions, 'partition')})")

    def waiting(self, jobs: Sequence[str]) -> None:
        """One tick never waits."""

    def coordinated(self, done: Coordination) -> None:
        self.ended.update(done.completed)
        self.stuck.update(done.problems)
        self.waiting_jobs.update({id: n for id, n in done.waiting.items() if n})


def _doings(report: TickReport, seen: _Seen) -> Iterator[str]:
    if seen.launched:
        yield f"Launched {', '.join(seen.launched)}"
    for id, outcome in seen.ended.items():
        yield f"{id} has ended: {outcome.value}"
    for id, n_jobs in seen.waiting_jobs.items():
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


def _workshop(where: Where) -> Workshop:
    instance = the_instance()
    locations = load_deployed(where)
    return Workshop.opened(instance, locations)


def _summarize(built: Built) -> None:
    if built.not_live:
        rows = [(ref.ref, ref.state.value if ref.state else "missing", ref.why) for ref in built.not_live]
        table(("ref", "state", "why"), rows, empty="")
        click.echo("")
    for hint in built.hints:
        click.echo(hint)
    if built.interrupted:
        click.echo(
            "Interrupted: the want is taken back; what is live stays so, and the same command goes on from there."
        )
    done = f"{built.live} of {count(built.live + len(built.not_live), 'ref')} live"
    reused = f" ({built.reused} before)" if built.reused else ""
    runs = (
        f"{count(built.succeeded, 'job run')} succeeded, {count(built.dep_missed, 'dep miss', 'dep misses')}, {built.failed} failed"
        if built.launches or built.dep_missed
        else "nothing to build"
    )
    click.echo(f"{done}{reused}; {runs}; {built.seconds:.1f} s.")
