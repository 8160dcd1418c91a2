"""`want`, `plan`, `explain` and `taint`: what the commands of these names do, in a script or a notebook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from databuild_dagster.bindings.local.result import Answer, Screen
from databuild_dagster.calls.place import Refs, opened
from databuild_dagster.calls.streams import say
from databuild_dagster.calls.taints import Tainted, taint_partitions
from databuild_dagster.data.keepers import open_keepers
from databuild_dagster.data.read_plan import AsOf, Moment, moment_of
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_user
from databuild_dagster.engine.orchestrator_notes import absence_of, absences_of
from databuild_dagster.engine.why.alike import lines_of
from databuild_dagster.engine.why.explain import Cause, Explanation, explain_as_of
from databuild_dagster.engine.why.explain import explain as explanation_of
from databuild_dagster.engine.why.preview import Action, AnnotatedPlan
from databuild_dagster.engine.why.want_report import RecordedWant, recorded_wants
from databuild_dagster.model.commands import DEFAULT_TTL_SECONDS, TaintPartitions
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import OPEN_WANTS
from databuild_dagster.model.wording import counted, few_of, state_in_words, typed
from databuild_dagster.store.queries.ids import with_short_ids
from databuild_dagster.store.queries.wants import WantView
from databuild_dagster.warehouse.errors import DiskTrouble, StorageTrouble

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from databuild_dagster.bindings.local.locations import AnyDefinitions
    from databuild_dagster.data.planned_reads import PlannedRead

#: Lines about causes for people; a program gets every cause.
MAX_LINES = 30


def want(
    refs: Refs,
    *,
    definitions: AnyDefinitions | None = None,
    only: str | Iterable[str] = (),
    together: bool = False,
    ttl_seconds: float | None = DEFAULT_TTL_SECONDS,
    sla_seconds: float | None = None,
    data_timestamp: datetime | None = None,
    priority: int = 0,
    comment: str = "",
    rebuild: bool = False,
    fresh: bool = False,
    fail_fast: bool = False,
    home: str | Path | None = None,
    instance: DagsterInstance | None = None,
) -> Answer[list[RecordedWant]]:
    """Record wants for refs, which the orchestrator builds: `Wants.create` without a resource. The facts are those of --json.

    `refs`, `only`, `home` and `instance` are as in `build`. Definitions are loaded if they are given, or if an asset or key is not
    registered. Raises a subclass of `Refused`.
    """
    from databuild_dagster.bindings.reading.wants import open_wants

    with opened(instance, home) as place, open_wants(instance=place.instance) as wants:
        request_id = place.ask(
            lambda: wants.create(
                place.refs(refs, only),
                comment=comment,
                priority=priority,
                ttl_seconds=ttl_seconds,
                sla_seconds=sla_seconds,
                data_timestamp=data_timestamp,
                together=together,
                rebuild=rebuild,
                fresh=fresh,
                fail_fast=fail_fast,
            ),
            definitions,
        )
        return recorded(place.engine, request_id)


def recorded(engine: Engine, request_id: str) -> Answer[list[RecordedWant]]:
    """The wants of a request, and what keeps them from being built."""
    wants = engine.queries.wants.named(request_id)
    facts = recorded_wants(engine, wants)
    head = f"Recorded {counted(len(wants), 'want')} as request {request_id}."
    return Answer(facts, Screen(head, notes=[*facts[0].hints, *absences_in_words(engine, wants)]))


def absences_in_words(engine: Engine, wants: Iterable[WantView]) -> list[str]:
    """A sentence for each location of open wants whose orchestrator does not tick (rule 11.4)."""
    assets = {asset_of(ref) for want in wants if want.state in OPEN_WANTS for ref in want.refs}
    return [f"Warning: {absence.sentence}." for absence in (absences_of(engine, assets) if assets else ())]


def plan(
    refs: Refs,
    *,
    definitions: AnyDefinitions | None = None,
    only: str | Iterable[str] = (),
    home: str | Path | None = None,
    instance: DagsterInstance | None = None,
) -> Answer[AnnotatedPlan]:
    """Show what `build` would do with refs, and why. The options are as in `want`.

    Raises what a want for these refs is refused with, `CyclicInputs` and `PlanTooLarge`.
    """
    from databuild_dagster.bindings.registry.instance import warehouse_of
    from databuild_dagster.calls.plans import plan_of
    from databuild_dagster.data.planned_reads import planned_reads
    from databuild_dagster.warehouse.layout import Warehouse

    with opened(instance, home) as place:
        annotated = place.ask(
            lambda: plan_of(place.engine, place.refs(refs, only), place.instance, is_provided=True),
            definitions,
            is_borrowing=True,
        )
        warehouse = Warehouse(warehouse_of(place.instance))
        return Answer(annotated, plan_screen(annotated, planned_reads(place.engine.queries, warehouse, annotated)))


def plan_screen(annotated: AnnotatedPlan, reads: Iterable[PlannedRead]) -> Screen:
    """The totals of a plan, the verdict on each ref, and the inputs of which filters leave files out."""
    verdicts = annotated.verdicts
    counts = Counter(verdict.action for verdict in verdicts.values())
    parts = ", ".join(f"{counts[action]} {action.value}" for action in Action if counts[action])
    n_launches = len(annotated.launches)
    launches = f"{n_launches} {'launch' if n_launches == 1 else 'launches'}"
    rows = [
        (ref, verdicts[ref].action.value, verdicts[ref].reason) for job in annotated.graph.jobs for ref in job.produces
    ]
    head = f"{counted(len(verdicts), 'ref')}: {parts}; {launches}{_expected(annotated)}."
    notes = [*(other.words for other in annotated.other_code), *map(_in_words, reads)]
    return Screen(head, ("ref", "action", "why"), rows, notes)


def _expected(annotated: AnnotatedPlan) -> str:
    if not annotated.launches:
        return ""
    seconds, unknown = annotated.expected_seconds, annotated.without_history
    if seconds is None:
        return f", expected time unknown: no history of {few_of(unknown)}"
    about = f", about {seconds:.1f} s one after another"
    return about + (f", and no history of {few_of(unknown)}" if unknown else "")


def _in_words(read_set: PlannedRead) -> str:
    line = f"{read_set.job} reads {read_set.read.files} of {counted(read_set.read.of, 'file')} of {read_set.input} where {read_set.where}"
    is_all = read_set.partitions == read_set.of_partitions
    return f"{line}." if is_all else f"{line}, of {read_set.partitions} of its {read_set.of_partitions} partitions."


def explain(
    refs: Refs,
    *,
    definitions: AnyDefinitions | None = None,
    as_of: AsOf | None = None,
    home: str | Path | None = None,
    instance: DagsterInstance | None = None,
) -> Answer[list[Explanation]]:
    """Explain why refs, wants or requests are or are not being built now, or were at the time `as_of`, which is as in `read`.

    A name may be the id of a want or request. The others are as in `want`. Raises `NotFound`, and a subclass of `Refused` for a
    ref that cannot be wanted.
    """
    with opened(instance, home) as place:
        then = moment_of(place.engine.queries, as_of, datetime.now(UTC))
        found = place.ask(lambda: explained(place.engine, place.refs(refs), then), definitions)
    lines: list[str] = []
    for explanation in found:
        name, state, wants = head_of(explanation)
        lines += [f"{name}  {state}{wants}", *cause_lines(explanation.causes)]
    return Answer(found, Screen(lines[0], notes=lines[1:]))


def explained(engine: Engine, names: Sequence[Ref], then: Moment) -> list[Explanation]:
    """The explanations of names at a moment."""
    if then.seq is None or then.at is None:
        return [explanation_of(engine, name) for name in names]
    return [explain_as_of(engine, name, then.seq, then.at) for name in names]


def head_of(explanation: Explanation) -> tuple[str, str, str]:
    """The name, its state, and the states of its wants where there are several to count."""
    wants = explanation.wants or {}
    counts = ", ".join(f"{n} {state_in_words(state)}" for state, n in wants.items())
    return (
        explanation.ref,
        state_in_words(explanation.state or "missing"),
        f" ({counts} wants)" if sum(wants.values()) > 1 else "",
    )


def cause_lines(causes: tuple[Cause, ...]) -> Iterator[str]:
    """A line for each ref with short ids; refs that have the same cause share a line."""
    lines = list(lines_of(causes))
    for depth, line in lines[:MAX_LINES]:
        yield f"{'  ' * (depth + 1)}{with_short_ids(line)}"
    if (more := len(lines) - MAX_LINES) > 0:
        yield f"  and {counted(more, 'more line')}; --json has every cause"


def taint(
    refs: Refs,
    *,
    reason: str,
    only: str | Iterable[str] = (),
    downstream: bool = False,
    home: str | Path | None = None,
    instance: DagsterInstance | None = None,
) -> Answer[Tainted]:
    """Mark the data of refs as wrong; open wants rebuild it. The facts are those of --json, the options are as in `want`.

    `downstream` also taints what was built from them, or will be, by recorded inputs. Raises a subclass of `Refused`.
    """
    from databuild_dagster.bindings.registry.instance import warehouse_of

    with opened(instance, home) as place:
        command = TaintPartitions(refs=place.refs(refs, only), reason=reason, downstream=downstream)
        return tainted(place.engine, command, lambda: warehouse_of(place.instance), lambda: place.instance)


def tainted(
    engine: Engine, command: TaintPartitions, warehouse: Callable[[], str], instance: Callable[[], DagsterInstance]
) -> Answer[Tainted]:
    """Record a taint, and bring copies for other tools up to date. Raises what the engine raises."""
    done = taint_partitions(engine, command, lambda: engine.handle(command, actor=this_user()))
    refresh_copies(engine, done.refs, warehouse, instance)
    taint_id, behind, ended = done.taint_id, done.stale_behind, done.ended_wants
    head = (
        f"Tainted {counted(len(done.refs), 'ref')} (taint {taint_id}); `databuild untaint {typed(taint_id)}` takes it back."
        if done.refs
        else f"No reader sees what is tainted (taint {taint_id})."
    )
    notes = []
    if behind:
        notes.append(
            f"{counted(behind, 'ref')} built from it {'stays' if behind == 1 else 'stay'} live, and stale; "
            "with --downstream the taint reaches what was built from it, too."
        )
    if ended:
        stay = (
            "1 want that failed because of it stays" if ended == 1 else f"{ended} wants that failed because of it stay"
        )
        notes.append(f"{stay} ended; `databuild want create`, or `databuild retry` instead of a taint, asks again.")
    return Answer(done, Screen(head, notes=notes))


def refresh_copies(
    engine: Engine, refs: Collection[Ref], warehouse: Callable[[], str], instance: Callable[[], DagsterInstance]
) -> None:
    """Bring what other tools read of refs up to date, unless an orchestrator does it in its next tick (rule 10.2)."""
    assets = {asset_of(ref) for ref in refs}
    locations = {spec.location for spec in engine.queries.datasets.all().values() if spec.asset in assets}
    if all(absence_of(engine, location) is None for location in locations):
        return
    try:
        for keeper in open_keepers(engine, warehouse(), seconds=None, instance=instance):
            keeper.changed(refs)
    except (DiskTrouble, StorageTrouble) as error:
        say(f"Copies for other tools are as before, and the next tick replaces them: {error.message}")
