"""Taints in Dagster: a tainted partition is red, with the reason one click away, until a rebuild or untaint (rule 7.1).
A partition that failed upstream is red as well, by the Dagster run of its cause (rule 8.8). So is a partition that a person failed
by canceling its job run (rule 6.10): a failed run represents the cancellation.

A failed Dagster run represents each taint, because Dagster shows a partition as failed by nothing else. The run never ran,
and Dagster's list of runs leaves it out (decision 0051). Its failure message says who tainted what and why, and what to do.
Its PLANNED event is the last event of each tainted partition. The tick paints from the log, after it has launched due
rebuilds: a partition that is rebuilt at once shows in progress, not red. Painting twice is painting once.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Final

from dagster import DagsterEventType, DagsterInstance, DagsterRun, DagsterRunStatus

from databuild_dagster.bindings.adapter import dagster_private, dagster_storage, keys, run_tags
from databuild_dagster.bindings.display.checks import MAX_NAMED, report_tainted
from databuild_dagster.bindings.display.materialization import page_metadata
from databuild_dagster.bindings.display.partition_status import (
    clear_cached_status,
    plan_runs,
    runs_to_show,
    stopped_run_id,
    taint_run_id,
)
from databuild_dagster.bindings.registry.instance import DagsterCursors, engine_for
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.follower import Cursor, LogFollower, all_touched, apart
from databuild_dagster.model import events as e
from databuild_dagster.model.datasets import DatasetKind, DatasetSpec
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import few_of, typed
from databuild_dagster.store.queries.instances import Taint

#: Tainted refs of a location that are painted the first time.
MAX_REFS: Final = 10_000

#: Red partitions that failed upstream and are checked again, by location; further partitions stay red until their next launch.
MAX_UPSTREAM: Final = 1_000
#: Checks reported by a tick; each is an event in Dagster.
MAX_CHECKS: Final = 50

_UNTAINTING: Final = (e.TaintCanceled, e.CanonicalReverted, e.InstancesReturned, e.InstancesPromoted)
#: Job runs that ended without a failed Dagster run that shows them red; live refs are left out. An instance that
#: finishes late from inputs under a downstream taint is tainted at once (rule 7.3).
_ENDING: Final = (e.JobRunSucceeded, e.JobRunDepMissed, e.JobRunCanceled, e.JobRunLost)
#: A ref that these events fail is red by its own run; refs that wait for it are not yet (rule 6.6).
_FAILING: Final = (e.JobRunFailed, e.JobRunDepMissed, e.JobRunCanceled, e.JobRunLost)
#: Events that may change a color.
_CONCERNS: Final = e.names_of(e.TaintCreated, *_UNTAINTING, *_ENDING, e.JobRunFailed)
#: States that Dagster shows by other events.
_SHOWN_OTHERWISE: Final = (InstanceState.LIVE, InstanceState.BUILDING, InstanceState.FAILED)


class _Painted(Cursor, frozen=True, kw_only=True):
    """How far a location has been painted."""

    #: Asset to the last reported number of tainted refs.
    tainted: dict[str, int]
    #: The refs that are red because an input failed.
    upstream: tuple[Ref, ...] = ()


@apart("taints could not be shown in Dagster")
def paint_taints(
    instance: DagsterInstance, location: str, datasets: Collection[DatasetSpec], *, head: int | None = None
) -> bool | None:
    """Bring Dagster up to date with the taints of a location's datasets; returns whether it is.

    Errors are logged, because taints are only shown; then it returns None.
    """
    engine = engine_for(instance)
    again = _to_clear_again(engine)
    clear_cached_status(instance, [again.pop() for _ in range(len(again))])
    follower = LogFollower(engine, f"taints_painted/{location}", _Painted, DagsterCursors(instance), head=head)
    if follower.is_at_end:
        return True
    ours = {spec.asset for spec in datasets if not spec.kind.is_foreign}
    # A boundary's taints are red as well, but it declares no check that could have a verdict.
    checked = {spec.asset for spec in datasets if spec.kind is DatasetKind.OURS}
    cursor = follower.load() or _Painted(tainted={})
    if cursor.seq:
        seq, events = follower.last_seq(cursor), follower.events(cursor, _CONCERNS)

        def touched(*kinds: type[e.Fact]) -> set[Ref]:
            found = all_touched(engine.queries, [event for event in events if isinstance(event.fact, kinds)])
            return {ref for ref in found if asset_of(ref) in ours}

        tainted, untainted, not_rebuilt = touched(e.TaintCreated), touched(*_UNTAINTING), touched(*_ENDING)
        failed = all_touched(engine.queries, [event for event in events if isinstance(event.fact, _FAILING)])
        stopped = [ref for event in events if isinstance(event.fact, e.JobRunCanceled) for ref in event.fact.failed]
    else:
        # Dagster was never painted, or the store is another one.
        seq, untainted, not_rebuilt, failed, stopped = follower.head, set[Ref](), set[Ref](), set[Ref](), list[Ref]()
        found = engine.queries.instances.tainted_refs(sorted(ours), MAX_REFS)
        tainted = {ref for _, refs in found.values() for ref in refs}
    # A ref that loses one of several taints shows the reason of another.
    _paint_red(instance, engine, tainted | untainted | not_rebuilt)
    _paint_green(instance, engine, untainted)
    _paint_stopped(instance, engine, [ref for ref in stopped if asset_of(ref) in ours])
    failed_upstream = engine.queries.canonical.failed_upstream_of(failed) if failed else []
    upstream = [ref for ref in failed_upstream if asset_of(ref) in ours]
    # A retry, an arrival or a revert may have opened those that were red before.
    before = engine.queries.canonical.states(cursor.upstream) if cursor.upstream else {}
    opened = [ref for ref, state in before.items() if state not in (*_SHOWN_OTHERWISE, InstanceState.UPSTREAM_FAILED)]
    plan_runs(instance, runs_to_show(engine, [*upstream, *opened]))
    still = [ref for ref, state in before.items() if state is InstanceState.UPSTREAM_FAILED]
    red_upstream = tuple(dict.fromkeys([*still, *upstream]))[:MAX_UPSTREAM]
    if cursor.seq:
        found = engine.queries.instances.tainted_refs(sorted(checked), MAX_NAMED)
    changed = {asset for asset in checked if cursor.tainted.get(asset) != found[asset][0]}
    to_report = changed | ({asset_of(ref) for ref in tainted | untainted} & checked)
    reported = {asset: found[asset][0] for asset in sorted(to_report)[:MAX_CHECKS]}
    report_tainted(instance, {asset: (count, found[asset][1][:MAX_NAMED]) for asset, count in reported.items()})
    known = {asset: count for asset, count in cursor.tainted.items() if asset in checked}
    follower.keep(_Painted(seq, tainted=known | reported, upstream=red_upstream))
    if is_all := reported.keys() >= to_report:
        follower.rest(seq)
    return is_all


def _paint_red(instance: DagsterInstance, engine: Engine, refs: Collection[Ref]) -> None:
    if not refs:
        return
    states = engine.queries.canonical.states(refs)
    not_live = [ref for ref, state in states.items() if state not in _SHOWN_OTHERWISE]
    taints = engine.queries.instances.taints_to_show(not_live)
    by_taint: dict[str, list[Ref]] = {}
    for ref, taint in taints.items():
        by_taint.setdefault(taint.taint_id, []).append(ref)
    for tainted in by_taint.values():
        _ensure_taint_run(instance, engine, taints[tainted[0]], sorted(tainted))
    plan_runs(instance, {ref: taint_run_id(taint.taint_id) for ref, taint in taints.items()})


def _ensure_taint_run(instance: DagsterInstance, engine: Engine, taint: Taint, refs: list[Ref]) -> None:
    dataset = engine.queries.datasets.get(asset_of(refs[0]))
    why = _message(taint, refs, arrives=dataset is not None and dataset.kind is DatasetKind.BOUNDARY)
    run_id, tags = taint_run_id(taint.taint_id), {run_tags.TAINT_TAG: taint.taint_id}
    _ensure_run(instance, run_id, tags, refs, "This run represents a taint.", why)


def _paint_stopped(instance: DagsterInstance, engine: Engine, refs: Sequence[Ref]) -> None:
    """Show as failed the refs that a person failed by canceling their job run, if they have failed still."""
    found = engine.queries.canonical.of(refs) if refs else {}
    by_job_run: dict[str, list[Ref]] = {}
    for ref, canonical in found.items():
        if canonical.state is InstanceState.FAILED and canonical.job_run is not None:
            by_job_run.setdefault(canonical.job_run, []).append(ref)
    for job_run_id, of_run in by_job_run.items():
        why = (
            f"Job run {job_run_id} of {few_of(of_run)} was {found[of_run[0]].reason}. This run executed nothing. "
            f"`databuild retry {typed(of_run[0])}` opens it, and what waits for it."
        )
        run_id, tags = stopped_run_id(job_run_id), {run_tags.STOPPED_TAG: job_run_id}
        _ensure_run(instance, run_id, tags, of_run, "This run represents a cancellation.", why)
    plan_runs(instance, runs_to_show(engine, [ref for of_run in by_job_run.values() for ref in of_run]))


def _ensure_run(
    instance: DagsterInstance, run_id: str, tags: dict[str, str], refs: Collection[Ref], what: str, why: str
) -> None:
    """Create the failed run that represents a taint or a cancellation, unless it exists. It has no job, so it cannot be retried."""
    run = instance.get_run_by_id(run_id)
    if run is None:
        made = DagsterRun(
            job_name=dagster_private.IMPLICIT_ASSET_JOB_NAME,
            run_id=run_id,
            status=DagsterRunStatus.NOT_STARTED,
            # Dagster's pages would name a person as the one who launched it.
            tags={**tags, dagster_private.MAX_RETRIES_TAG: "0", dagster_private.SENSOR_NAME_TAG: keys.ORCHESTRATOR},
            asset_selection=frozenset(keys.asset_key(asset_of(ref)) for ref in refs),
        )
        try:
            run = instance.add_run(made)
            dagster_storage.leave_out_of_run_list(instance, run_id)
        except dagster_private.DagsterRunAlreadyExists:
            # Another process that ticks has just created it.
            run = instance.get_run_by_id(run_id)
    if run is not None and not run.is_finished:
        # Without a start event Dagster's list of runs shows that it failed to start.
        began = dagster_private.DagsterEvent(DagsterEventType.PIPELINE_START.value, run.job_name, message=what)
        instance.report_dagster_event(began, run_id)
        if links := page_metadata(engine_for(instance), next(iter(refs))):
            instance.report_engine_event("databuild has a page about it.", run, dagster_private.EngineEventData(links))
        instance.report_run_failed(run, why)


def _message(taint: Taint, refs: list[Ref], *, arrives: bool) -> str:
    at = datetime.fromtimestamp(taint.created_at, UTC)
    was, stays = ("were", "They stay") if len(refs) > 1 else ("was", "It stays")
    mended = "other files arrive" if arrives else f"a rebuild (`databuild build {typed(refs[0])}`, or Materialize)"
    return (
        f"{few_of(refs)} {was} tainted by {taint.actor} at {at:%Y-%m-%d %H:%M:%S} UTC: {taint.reason}. This run executed "
        f"nothing. {stays} red until {mended}, or until the taint is canceled (`databuild untaint {typed(taint.taint_id)}`)."
    )


def _paint_green(instance: DagsterInstance, engine: Engine, refs: Collection[Ref]) -> None:
    """Show the earlier materialization again; a second materialization would trigger automation."""
    if not refs:
        return
    live = [ref for ref, state in engine.queries.canonical.states(refs).items() if state is InstanceState.LIVE]
    plan_runs(instance, runs_to_show(engine, live))
    _to_clear_again(engine).update(asset_of(ref) for ref in live)


def _to_clear_again(engine: Engine) -> set[str]:
    """Assets whose cached status is cleared once more: a web server may just have written an older status."""
    return engine.memory.of("status to clear again", set)
