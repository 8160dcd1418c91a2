"""Registered datasets, their arcs and pauses, subjects that are set aside, and the meta storage (rules 5.7, 6.13, 9.1, 10.5, 11.7)."""

from __future__ import annotations

import msgspec

from databuild_dagster.model import events as e
from databuild_dagster.model.datasets import ArcSpec
from databuild_dagster.model.fold.folding import Folding
from databuild_dagster.model.pauses import is_whole
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.rows import NEVER, ArcRow, AsideRow, DatasetRow, PauseRow
from databuild_dagster.model.set_aside import subject_of

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
    """Instances that become live from now on wake a new arc, and those since its place an arc that comes back."""
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
    """A pause replaces an earlier one of the same name whose time has passed."""
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
