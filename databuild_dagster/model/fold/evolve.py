"""An event makes new state: look the move up, do the bookkeeping, then react until nothing follows.

The fold refuses no decided event, reads no clock and makes no ids (rules 2.4, 3.2). An impossible event is an `IllegalMove`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from databuild_dagster.model import events as e
from databuild_dagster.model.coordination import FIRST_OUTCOME, Answer, DelegationOutcome
from databuild_dagster.model.datasets import ArcSpec
from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.fold import instances
from databuild_dagster.model.fold.folding import Folding
from databuild_dagster.model.fold.react import count_want, settle
from databuild_dagster.model.pauses import is_whole
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.rows import NEVER, ArcRow, AsideRow, DatasetRow, DelegationRow, PauseRow, WantRow
from databuild_dagster.model.set_aside import subject_of
from databuild_dagster.model.states import InstanceState, JobRunCause, WantCause
from databuild_dagster.model.view import View

_json = msgspec.json.Encoder()


def dataset_registered(folding: Folding, fact: e.DatasetRegistered) -> None:
    view = folding.view
    known = view.datasets([*(spec.asset for spec in fact.datasets), *fact.removed])
    for spec in fact.datasets:
        fields = (spec.location, spec.job, spec.kind.value, _json.encode(spec).decode())
        row = known.get(spec.asset)
        if row is None:
            view.add(DatasetRow(view.next_id(), spec.asset, *fields))
        else:
            row.location, row.job, row.kind, row.spec = fields
            row.removed = 0
    for asset in fact.removed:
        known[asset].removed = 1
    _arcs_registered(folding, fact)


def _arcs_registered(folding: Folding, fact: e.DatasetRegistered) -> None:
    """Instances that become live from now on wake a new arc, and instances since its place wake an arc that comes back."""
    view = folding.view
    known = view.arcs([*(spec.asset for spec in fact.datasets), *fact.removed])
    subscribing = {spec.asset for spec in fact.datasets if isinstance(spec.arc, ArcSpec)}
    for asset, arc in known.items():
        if asset in subscribing and arc.removed:
            arc.removed, arc.since = 0, folding.seq
            arc.seq = arc.seq if asset in fact.resumed else folding.seq
        elif asset not in subscribing and not arc.removed:
            arc.removed, arc.removed_at = 1, folding.at
    for spec in fact.datasets:
        if spec.asset in subscribing and spec.asset not in known:
            view.add(ArcRow(id=view.next_id(), asset=spec.asset, seq=folding.seq, since=folding.seq))


def arc_fired(folding: Folding, fact: e.ArcFired) -> None:
    view = folding.view
    arcs = folding.found(view.arcs(fact.arcs), fact.arcs, "arc")
    for arc in arcs.values():
        arc.seq = max(arc.seq, fact.up_to_seq)
    uuids = [firing.source for firing in fact.firings]
    sources = folding.found(view.instances_by_uuid(uuids), uuids, "source instance")
    fired = folding.found(arcs, [firing.arc for firing in fact.firings], "followed arc")
    view.add_firings((fired[firing.arc].id, sources[firing.source].id, folding.seq) for firing in fact.firings)


def partitions_paused(folding: Folding, fact: e.PartitionsPaused) -> None:
    """A pause replaces an earlier pause of the same name whose time has passed."""
    view = folding.view
    assets = [asset_of(ref) for ref in fact.refs]
    datasets = folding.found(view.datasets(assets), assets, "dataset")
    view.end_pauses(fact.refs, folding.at)
    view.add_pauses(
        PauseRow(
            ref=ref,
            seq=folding.seq,
            dataset_id=datasets[asset_of(ref)].id,
            is_whole=int(is_whole(ref)),
            reason=fact.reason,
            actor=folding.event.actor,
            paused_at=folding.at,
            until=NEVER if fact.until is None else fact.until,
        )
        for ref in fact.refs
    )


def partitions_resumed(folding: Folding, fact: e.PartitionsResumed) -> None:
    folding.found(folding.view.pauses(fact.refs), fact.refs, "pause")
    folding.view.end_pauses(fact.refs, folding.at)


def set_aside_changed(folding: Folding, fact: e.SetAsideChanged) -> None:
    view = folding.view
    for change in fact.changes:
        subjects = {subject_of(fact.location, change.kind, name): name for name in change.names}
        known = view.asides(subjects)
        for subject, name in subjects.items():
            row = known.get(subject)
            if row is None:
                row = AsideRow(view.next_id(), subject, change.kind, name, fact.location)
                view.add(row)
            row.reason, row.since = change.reason, folding.at


def meta_invoked(folding: Folding, fact: e.MetaInvoked) -> None:
    writes: dict[str, bytes | None] = {**dict.fromkeys(fact.removed), **fact.puts}
    for prefix in fact.cleared:
        folding.view.clear_meta(prefix, writes)
    folding.view.write_meta(writes)


def meta_compacted(folding: Folding, fact: e.MetaCompacted) -> None:
    folding.view.compact_meta(fact.revision)


def want_created(folding: Folding, fact: e.WantCreated) -> None:
    view, at = folding.view, folding.at
    expires_at = NEVER if fact.expires_at is None else fact.expires_at
    deadline = NEVER if fact.deadline is None else fact.deadline
    refs = view.ensure_refs(ref for want in fact.wants for ref in want.refs)
    for entry in fact.wants:
        want = WantRow(
            id=view.next_id(),
            want_id=entry.id,
            request_id=fact.request_id,
            source=fact.source,
            source_id=fact.source_id,
            comment=fact.comment,
            priority=fact.priority,
            created_at=at,
            data_timestamp=fact.data_timestamp,
            expires_at=expires_at,
            deadline=deadline,
            # A derivative want has a deadline and no SLA, because the want that asked raises the alert.
            sla_at=fact.deadline if fact.sla_seconds is not None else None,
            n_refs=len(entry.refs),
            fail_fast=int(fact.fail_fast),
        )
        view.add(want)
        folding.bear_want(want)
        view.link_want(want.id, [refs[ref].id for ref in entry.refs])
        for ref in entry.refs:
            row = refs[ref]
            count_want(row, want)
            folding.count_state(want, row.state, +1)
            if row.state is InstanceState.UPSTREAM_BUILDING:
                view.unsettled.add(row.id)


def want_kept(folding: Folding, fact: e.WantKept) -> None:
    view = folding.view
    for keeping in fact.keepings:
        named = [*keeping.want_ids, *keeping.made_for]
        wants = folding.found(view.wants(named), named, "want")
        keeping_id = view.next_id()
        for want_id in keeping.want_ids:
            wants[want_id].keeping = keeping_id
        view.keep_for(keeping_id, [wants[want_id].id for want_id in keeping.made_for])


def want_canceled(folding: Folding, fact: e.WantCanceled) -> None:
    for want in folding.found(folding.view.wants(fact.withdrawn), fact.withdrawn, "want").values():
        want.withdrawn = 1
    want_ended(folding, fact, WantCause.CANCELED)


def want_ended(folding: Folding, fact: e.WantCanceled | e.WantExpired, cause: WantCause) -> None:
    for want in folding.found(folding.view.wants(fact.want_ids), fact.want_ids, "want").values():
        folding.end_want(want, cause)


def want_sla_missed(folding: Folding, fact: e.WantSlaMissed) -> None:
    for want in folding.found(folding.view.wants(fact.want_ids), fact.want_ids, "want").values():
        want.sla_missed_at, want.sla_at = folding.at, None


def partition_delegated(folding: Folding, fact: e.PartitionDelegated) -> None:
    view = folding.view
    refs = folding.found(view.refs(d.ref for d in fact.delegations), [d.ref for d in fact.delegations], "ref")
    uuids = [delegation.uuid for delegation in fact.delegations]
    instances = folding.found(view.instances_by_uuid(uuids), uuids, "instance")
    before = view.delegations(fact.requester, (ref.id for ref in refs.values()))
    rows = []
    for delegation in fact.delegations:
        ref, instance = refs[delegation.ref], instances[delegation.uuid]
        kind = Answer(delegation.kind)
        outcome = FIRST_OUTCOME[kind]
        ref.n_joined += (outcome is DelegationOutcome.WAITING) - (before.get(ref.id) == DelegationOutcome.WAITING)
        rows.append(
            DelegationRow(
                requester=fact.requester,
                ref_id=ref.id,
                kind=kind.value,
                outcome=outcome.value,
                asked_at=folding.at,
                job_run_id=instance.job_run_id,
                instance_id=instance.id,
                reason=delegation.reason,
                ended_at=None if outcome is DelegationOutcome.WAITING else folding.at,
                served_id=instance.id if outcome is DelegationOutcome.LIVE else None,
            )
        )
    view.put_delegations(rows)


def delegation_given_up(folding: Folding, fact: e.DelegationGivenUp) -> None:
    refs = folding.found(folding.view.refs(fact.refs), fact.refs, "ref")
    folding.give_up(((ref, fact.requester) for ref in refs.values()), fact.reason)


def fold(view: View, event: e.Event) -> None:
    """Apply an event to the state. Raises `IllegalMove` when the log and the state cannot both be right."""
    folding = Folding(view, event)
    evolve = _EVOLVES.get(type(event.fact))
    if evolve is None:
        raise IllegalMove(seq=event.seq, on=type(event.fact).__name__, why="no fold for it")
    evolve(folding, event.fact)
    settle(folding)


_EVOLVES: dict[type[e.Fact], Callable[[Folding, Any], None]] = {
    e.WantCreated: want_created,
    e.WantKept: want_kept,
    e.WantCanceled: want_canceled,
    e.WantExpired: partial(want_ended, cause=WantCause.EXPIRED),
    e.WantSlaMissed: want_sla_missed,
    e.JobRunBuffered: instances.job_run_buffered,
    e.JobRunStarted: instances.job_run_started,
    e.JobRunSucceeded: instances.job_run_succeeded,
    e.JobRunDepMissed: instances.job_run_dep_missed,
    e.JobRunFailed: partial(instances.job_run_gave_out, cause=JobRunCause.FAILED),
    e.JobRunLost: partial(instances.job_run_gave_out, cause=JobRunCause.LOST),
    e.JobRunCanceled: instances.job_run_canceled,
    e.JobRunSkipped: instances.job_run_skipped,
    e.PartitionDelegated: partition_delegated,
    e.DelegationGivenUp: delegation_given_up,
    e.TaintCreated: instances.taint_created,
    e.TaintCanceled: instances.taint_canceled,
    e.CanonicalReverted: instances.canonical_reverted,
    e.InstancesReturned: instances.instances_returned,
    e.PartitionsPaused: partitions_paused,
    e.PartitionsResumed: partitions_resumed,
    e.ManifestRemoved: instances.manifest_removed,
    e.RemovalFinished: instances.removal_finished,
    e.LotArrived: instances.lot_arrived,
    e.InstancesBorrowed: instances.instances_borrowed,
    e.InstancesPromoted: instances.instances_promoted,
    e.ArcFired: arc_fired,
    e.DatasetRegistered: dataset_registered,
    e.SetAsideChanged: set_aside_changed,
    e.MetaInvoked: meta_invoked,
    e.MetaCompacted: meta_compacted,
}
