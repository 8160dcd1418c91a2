"""Wants, and the delegations of requests (rules 5, 8)."""

from __future__ import annotations

from databuild_dagster.model import events as e
from databuild_dagster.model.coordination import FIRST_OUTCOME, Answer, DelegationOutcome
from databuild_dagster.model.fold.folding import Folding
from databuild_dagster.model.fold.react import count_want
from databuild_dagster.model.rows import NEVER, DelegationRow, WantRow
from databuild_dagster.model.states import InstanceState, WantCause


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
