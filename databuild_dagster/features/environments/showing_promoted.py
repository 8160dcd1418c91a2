"""Promoted instances in the Dagster of the base, as materializations, and in its tables and copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from databuild_dagster.calls.answers import refresh_copies
from databuild_dagster.features.environments.promoting import Promotion
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.states import InstanceState

if TYPE_CHECKING:
    from dagster import DagsterInstance


def announce(done: Promotion, open_instance: Callable[[], DagsterInstance]) -> None:
    """Show what a promotion moved, and what an earlier promotion moved and could not show, in the base's Dagster.

    Dagster is imported when there is something to show.
    """
    refs = [*(move.ref for move in done.moved), *done.there]
    if not refs:
        return
    from databuild_dagster.bindings.adapter.event_batches import report_materializations
    from databuild_dagster.bindings.display.materialization import LiveRef, live_events, unseen
    from databuild_dagster.bindings.registry.instance import engine_for, warehouse_of

    instance = open_instance()
    engine = engine_for(instance)
    datasets = {spec.asset: spec for spec in engine.queries.datasets.all().values()}
    why = f"Built in the environment {done.environment}, and promoted."
    live = [
        LiveRef(ref, one.uuid, one.rows, why)
        for ref, one in engine.queries.canonical.of(refs).items()
        if asset_of(ref) in datasets and one.uuid is not None and one.state is InstanceState.LIVE
    ]
    # What an earlier promotion moved is shown already, if that one was not killed before it showed it.
    moved = {move.ref for move in done.moved}
    there = live_events(engine, datasets.values(), [one for one in live if one.ref not in moved])
    now = live_events(engine, datasets.values(), [one for one in live if one.ref in moved])
    report_materializations(instance, [*now, *unseen(instance, there)])
    refresh_copies(engine, refs, lambda: warehouse_of(instance), lambda: instance)
