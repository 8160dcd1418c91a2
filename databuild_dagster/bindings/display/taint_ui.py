"""Taints in Dagster: what somebody has said to be wrong is red there too, with the reason one click away, until it is
built anew; and green again when the taint is taken back (SPEC 7.1).

A failed Dagster run stands for each taint. It never ran: its failure message says who has tainted what and why, and what
to do. It has the last word about what is tainted. Painted by whoever ticks, from the log, after the tick has launched
what is to be built anew: a taint that is answered at once by a rebuild is not painted, its partitions are in progress.
Painting twice is painting once.
"""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final

from dagster import DagsterEventType, DagsterInstance, DagsterRun, DagsterRunStatus

from databuild_dagster.bindings.adapter.asset_keys import asset_key
from databuild_dagster.bindings.adapter.dagster_private import (
    IMPLICIT_ASSET_JOB_NAME,
    MAX_RETRIES_TAG,
    DagsterEvent,
    DagsterRunAlreadyExists,
)
from databuild_dagster.bindings.adapter.run_tags import TAINT_TAG
from databuild_dagster.bindings.display.partition_status import forget_red, last_words, speak, taint_run_id
from databuild_dagster.bindings.display.taint_check import report_taint_checks
from databuild_dagster.bindings.registry.instance import DagsterCursors, engine_for
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.follower import Cursor, LogFollower, all_touched, apart
from databuild_dagster.model import events as e
from databuild_dagster.model.datasets import DatasetKind, DatasetSpec
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.queries.taints import Taint

#: Refs of a location that are painted when it has never been painted before.
MAX_REFS: Final = 10_000

#: Checks told of in one tick; each is an event in Dagster.
MAX_CHECKS: Final = 50

_UNTAINTING: Final = (e.TaintCanceled, e.CanonicalReverted)
#: Job runs that have ended without a failed Dagster run that would show them red; what is live is spared. What finishes
#: late from what a downstream taint covers is tainted at once (SPEC 7.3).
_ENDING: Final = (e.JobRunSucceeded, e.JobRunDepMissed, e.JobRunCanceled, e.JobRunLost)
#: Events after which something may have to look otherwise: nothing that has failed, its own run is red.
_CONCERNS: Final = e.names_of(e.TaintCreated, *_UNTAINTING, *_ENDING)
#: What has its own say in Dagster.
_SPEAKS_FOR_ITSELF: Final = (InstanceState.LIVE, InstanceState.BUILDING, InstanceState.FAILED)


class _Painted(Cursor, frozen=True, kw_only=True):
    """How far a location has been painted."""

    #: Asset to the number of tainted refs that Dagster was told last.
    tainted: dict[str, int]


@apart("taints could not be shown in Dagster")
def paint_taints(
    instance: DagsterInstance, location: str, datasets: Collection[DatasetSpec], *, head: int | None = None
) -> None:
    """Bring Dagster up to date with the taints of a location's datasets. What goes wrong is logged: it is only shown."""
    engine = engine_for(instance)
    again = _to_forget_again(engine)
    forget_red(instance, [again.pop() for _ in range(len(again))])
    follower = LogFollower(engine, f"taints_painted/{location}", _Painted, DagsterCursors(instance), head=head)
    if follower.is_at_end:
        return
    ours = {spec.asset for spec in datasets if not spec.kind.is_foreign}
    # A boundary's taints are red as well, but it declares no check: Dagster has nothing to show a verdict beside.
    checked = {spec.asset for spec in datasets if spec.kind is DatasetKind.OURS}
    cursor = follower.load() or _Painted(tainted={})
    if cursor.seq:
        seq, events = follower.last_seq(cursor), follower.events(cursor, _CONCERNS)

        def touched(*kinds: type[e.Fact]) -> set[str]:
            found = all_touched(engine.queries, [event for event in events if isinstance(event.fact, kinds)])
            return {ref for ref in found if asset_of(ref) in ours}

        tainted, untainted, not_rebuilt = touched(e.TaintCreated), touched(*_UNTAINTING), touched(*_ENDING)
    else:
        # A Dagster instance that was never painted, or a store that is not the one that was.
        seq, untainted, not_rebuilt = follower.head, set[str](), set[str]()
        tainted = {ref for _, refs in engine.queries.tainted_refs(sorted(ours), MAX_REFS).values() for ref in refs}
    # What one taint less leaves tainted has another one for its reason from now on.
    _paint_red(instance, engine, tainted | untainted | not_rebuilt)
    _paint_green(instance, engine, untainted)
    counts = engine.queries.tainted_refs(sorted(checked), 0)
    changed = {asset for asset, (count, _) in counts.items() if cursor.tainted.get(asset) != count}
    to_tell = changed | ({asset_of(ref) for ref in tainted | untainted} & checked)
    told = report_taint_checks(instance, engine, sorted(to_tell)[:MAX_CHECKS])
    known = {asset: count for asset, count in cursor.tainted.items() if asset in checked}
    follower.keep(_Painted(seq, tainted=known | told))
    if told.keys() >= to_tell:
        follower.rest(seq)


def _paint_red(instance: DagsterInstance, engine: Engine, refs: Collection[str]) -> None:
    if not refs:
        return
    states = engine.queries.states(refs)
    taints = engine.queries.taints_to_show(ref for ref, state in states.items() if state not in _SPEAKS_FOR_ITSELF)
    by_taint: dict[str, list[str]] = {}
    for ref, taint in taints.items():
        by_taint.setdefault(taint.taint_id, []).append(ref)
    for tainted in by_taint.values():
        _ensure_run(instance, engine, taints[tainted[0]], sorted(tainted))
    speak(instance, {ref: taint_run_id(taint.taint_id) for ref, taint in taints.items()})


def _ensure_run(instance: DagsterInstance, engine: Engine, taint: Taint, refs: list[str]) -> None:
    """The failed run that stands for a taint. It has no job to be run again, and is not to be retried."""
    run_id = taint_run_id(taint.taint_id)
    run = instance.get_run_by_id(run_id)
    if run is None:
        made = DagsterRun(
            job_name=IMPLICIT_ASSET_JOB_NAME,
            run_id=run_id,
            status=DagsterRunStatus.NOT_STARTED,
            tags={TAINT_TAG: taint.taint_id, MAX_RETRIES_TAG: "0"},
            asset_selection=frozenset(asset_key(asset_of(ref)) for ref in refs),
        )
        try:
            run = instance.add_run(made)
        except DagsterRunAlreadyExists:
            # Another process that ticks, in this very moment.
            run = instance.get_run_by_id(run_id)
    if run is not None and not run.is_finished:
        # Without a beginning Dagster's list of runs says that it failed to start.
        began = DagsterEvent(DagsterEventType.PIPELINE_START.value, run.job_name, message="Stands for a taint.")
        instance.report_dagster_event(began, run_id)
        dataset = engine.queries.dataset(asset_of(refs[0]))
        arrives = dataset is not None and dataset.kind is DatasetKind.BOUNDARY
        instance.report_run_failed(run, _message(taint, refs, arrives=arrives))


def _message(taint: Taint, refs: list[str], *, arrives: bool) -> str:
    at = datetime.fromtimestamp(taint.created_at, UTC)
    again = "They are" if len(refs) > 1 else "It is"
    mended = "other files arrive" if arrives else f"built anew (`databuild build {refs[0]}`, or Materialize)"
    return (
        f"{few_of(refs)} {'were' if len(refs) > 1 else 'was'} tainted by {taint.actor} at {at:%Y-%m-%d %H:%M:%S} UTC: "
        f"{taint.reason}. Nothing was run here. {again} red until {mended} or "
        f"until the taint is taken back (`databuild untaint {taint.taint_id}`)."
    )


def _paint_green(instance: DagsterInstance, engine: Engine, refs: Collection[str]) -> None:
    """What was materialized before shows through again; telling it anew would set automation going."""
    if not refs:
        return
    live = [ref for ref, state in engine.queries.states(refs).items() if state is InstanceState.LIVE]
    speak(instance, last_words(engine, live))
    _to_forget_again(engine).update(asset_of(ref) for ref in live)


def _to_forget_again(engine: Engine) -> set[str]:
    """Assets whose red is to be forgotten once more: a web server may just have been writing down what it had read before."""
    return engine.memory.of("red to forget again", set)
