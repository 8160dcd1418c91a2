"""An event makes new state: look the move up, do the bookkeeping, then react until nothing follows.

The fold refuses no decided event, reads no clock and makes no ids (rules 2.4, 3.2). An impossible event is an `IllegalMove`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from databuild_dagster.model import events as e
from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.fold import datasets, instances, wants
from databuild_dagster.model.fold.folding import Folding
from databuild_dagster.model.fold.react import settle
from databuild_dagster.model.states import JobRunCause, WantCause
from databuild_dagster.model.view import View


def fold(view: View, event: e.Event) -> None:
    """Apply one event to the state. Raises `IllegalMove` when the log and the state cannot both be right."""
    folding = Folding(view, event)
    evolve = _EVOLVES.get(type(event.fact))
    if evolve is None:
        raise IllegalMove(seq=event.seq, on=type(event.fact).__name__, why="no fold for it")
    evolve(folding, event.fact)
    settle(folding)


_EVOLVES: dict[type[e.Fact], Callable[[Folding, Any], None]] = {
    e.WantCreated: wants.want_created,
    e.WantKept: wants.want_kept,
    e.WantCanceled: wants.want_canceled,
    e.WantExpired: partial(wants.want_ended, cause=WantCause.EXPIRED),
    e.WantSlaMissed: wants.want_sla_missed,
    e.JobRunBuffered: instances.job_run_buffered,
    e.JobRunStarted: instances.job_run_started,
    e.JobRunSucceeded: instances.job_run_succeeded,
    e.JobRunDepMissed: instances.job_run_dep_missed,
    e.JobRunFailed: partial(instances.job_run_gave_out, cause=JobRunCause.FAILED),
    e.JobRunLost: partial(instances.job_run_gave_out, cause=JobRunCause.LOST),
    e.JobRunCanceled: instances.job_run_canceled,
    e.JobRunSkipped: instances.job_run_skipped,
    e.PartitionDelegated: wants.partition_delegated,
    e.DelegationGivenUp: wants.delegation_given_up,
    e.TaintCreated: instances.taint_created,
    e.TaintCanceled: instances.taint_canceled,
    e.CanonicalReverted: instances.canonical_reverted,
    e.PartitionsPaused: datasets.partitions_paused,
    e.PartitionsResumed: datasets.partitions_resumed,
    e.ManifestRemoved: instances.manifest_removed,
    e.RemovalFinished: instances.removal_finished,
    e.LotArrived: instances.lot_arrived,
    e.ArcFired: datasets.arc_fired,
    e.DatasetRegistered: datasets.dataset_registered,
    e.SetAsideChanged: datasets.set_aside_changed,
    e.MetaInvoked: datasets.meta_invoked,
    e.MetaCompacted: datasets.meta_compacted,
}
