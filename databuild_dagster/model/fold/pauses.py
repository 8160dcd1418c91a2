"""Pauses and their ends (rule 6.13)."""

from __future__ import annotations

from databuild_dagster.model import events as e
from databuild_dagster.model.fold.folding import Folding
from databuild_dagster.model.pauses import is_whole
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.rows import NEVER, PauseRow


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
