"""Taints in Dagster: what somebody has said to be wrong is red there too, with the reason one click away, until it is
built anew; and green again when the taint is taken back (SPEC 7.1).

A failed Dagster run stands for each taint. It never ran: its failure message says who has tainted what and why, and what
to do. It has the last word about what is tainted. Painted by whoever ticks, from the log, after the tick has launched
what is to be built anew: a taint that is answered at once by a rebuild is not painted, its partitions are in progress.
Painting twice is painting once.
"""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
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
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model import events as e
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.queries.taints import Taint

#: Events looked at in one tick; the next one goes on.
MAX_EVENTS: Final = 10_000
#: Refs of a location that are painted when it has never been painted before.
MAX_REFS: Final = 10_000

#: Checks told of in one tick; each is an event in Dagster.
MAX_CHECKS: Final = 50

_CURSOR: Final = "databuild/taints_painted/"
#: Events after which something may have to be red that is not: nothing that has failed, its own run is red.
_CONCERNS: Final = (
    "TaintCreated",
    "TaintCanceled",
    "CanonicalReverted",
    "JobRunSucceeded",
    "JobRunDepMissed",
    "JobRunCanceled",
    "JobRunLost",
)
#: What has its own say in Dagster.
_SPEAKS_FOR_ITSELF: Final = (InstanceState.LIVE, InstanceState.BUILDING, InstanceState.FAILED)

_log = logging.getLogger(__name__)

#: By engine, so by process: up to which event each location has been painted here.
_painted: WeakKeyDictionary[Engine, dict[str, int]] = WeakKeyDictionary()
#: Assets whose red is to be forgotten once more: a web server may just have been writing down what it had read before.
_forget_again: WeakKeyDictionary[Engine, set[str]] = WeakKeyDictionary()


def paint_taints(instance: DagsterInstance, location: str) -> None:
    """Bring Dagster up to date with the taints of a location's assets. What goes wrong is logged: it is only shown."""
    try:
        _paint(instance, engine_for(instance), location)
    except Exception:
        _log.warning("databuild: taints could not be shown in Dagster", exc_info=True)


def _paint(instance: DagsterInstance, engine: Engine, location: str) -> None:
    forget_red(instance, _forget_again.pop(engine, ()))
    painted = _painted.setdefault(engine, {})
    head = engine.queries.head().seq
    if painted.get(location) == head:
        return
    cursor = _cursor(instance, location)
    datasets = engine.queries.datasets(location).values()
    ours = {spec.asset for spec in datasets if not spec.kind.is_foreign}
    # A boundary's taints are red as well, but it declares no check: Dagster has nothing to show a verdict beside.
    checked = {spec.asset for spec in datasets if spec.kind is DatasetKind.OURS}
    if not cursor.seq or cursor.seq > head:
        # A Dagster instance that was never painted, or a store that is not the one that was.
        tainted = engine.queries.tainted_refs(sorted(ours), MAX_REFS)
        seq, news = head, _News(frozenset(ref for _, refs in tainted.values() for ref in refs))
    else:
        seq = min(head, cursor.seq + MAX_EVENTS)
        news = _news(engine, cursor.seq, seq)
    # What one taint less leaves tainted has another one for its reason from now on.
    red = news.tainted | news.untainted | news.not_rebuilt
    _paint_red(instance, engine, {ref for ref in red if asset_of(ref) in ours})
    _paint_green(instance, engine, {ref for ref in news.untainted if asset_of(ref) in ours})
    touched = {asset_of(ref) for ref in news.tainted | news.untainted} & checked
    counts = engine.queries.tainted_refs(sorted(checked), 0)
    changed = {asset for asset, (count, _) in counts.items() if cursor.tainted.get(asset) != count}
    told = report_taint_checks(instance, engine, sorted(touched | changed)[:MAX_CHECKS])
    _keep(instance, location, _Cursor(seq, {**{a: n for a, n in cursor.tainted.items() if a in checked}, **told}))
    if told.keys() >= touched | changed:
        painted[location] = seq


class _Cursor(msgspec.Struct, frozen=True):
    """How far a location has been painted; kept in Dagster, for it is Dagster that was told."""

    seq: int = 0
    #: Asset to the number of tainted refs that Dagster was told last.
    tainted: dict[str, int] = {}


def _cursor(instance: DagsterInstance, location: str) -> _Cursor:
    name = _CURSOR + location
    kept = instance.daemon_cursor_storage.get_cursor_values({name}).get(name)
    return _Cursor() if kept is None else msgspec.json.decode(kept, type=_Cursor)


def _keep(instance: DagsterInstance, location: str, cursor: _Cursor) -> None:
    instance.daemon_cursor_storage.set_cursor_values({_CURSOR + location: msgspec.json.encode(cursor).decode()})


class _News(NamedTuple):
    """Refs that may have to look otherwise than they do."""

    tainted: frozenset[str] = frozenset()
    untainted: frozenset[str] = frozenset()
    #: Their job runs have ended without a failed Dagster run that would show them red; what is live is spared.
    not_rebuilt: frozenset[str] = frozenset()


def _news(engine: Engine, after_seq: int, last_seq: int) -> _News:
    tainted: set[str] = set()
    untainted: set[str] = set()
    job_runs: list[str] = []
    for event in engine.queries.events_named(_CONCERNS, after_seq, last_seq):
        match event.fact:
            case e.TaintCreated(refs=refs, taint_id=taint_id, downstream=downstream):
                tainted.update(engine.queries.tainted_by(taint_id) if downstream else refs)
            case e.TaintCanceled(taint_id=taint_id):
                untainted.update(engine.queries.tainted_by(taint_id))
            case e.CanonicalReverted(ref=ref):
                untainted.add(ref)
            case e.JobRunSucceeded(runs=runs):
                # Who finishes late from what a downstream taint covers is tainted at once (SPEC 7.3).
                job_runs += [run.job_run_id for run in runs]
            case e.JobRunDepMissed(misses=misses):
                job_runs += [miss.job_run_id for miss in misses]
            case e.JobRunLost(failures=failures):
                job_runs += [failure.job_run_id for failure in failures]
            case e.JobRunCanceled(job_run_ids=ids):
                job_runs += ids
    ended = engine.queries.job_runs_named(job_runs)
    not_rebuilt = frozenset(ref for run in ended.values() for ref in run.refs)
    return _News(frozenset(tainted), frozenset(untainted), not_rebuilt)


def _paint_red(instance: DagsterInstance, engine: Engine, refs: Iterable[str]) -> None:
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


def _paint_green(instance: DagsterInstance, engine: Engine, refs: Iterable[str]) -> None:
    """What was materialized before shows through again; telling it anew would set automation going."""
    live = [ref for ref, state in engine.queries.states(refs).items() if state is InstanceState.LIVE]
    speak(instance, last_words(engine, live))
    _forget_again.setdefault(engine, set()).update(asset_of(ref) for ref in live)
