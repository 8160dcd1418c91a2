"""Promoted instances in the Dagster of the base, as materializations, and in its tables and copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from databuild_dagster.calls.answers import refresh_copies
from databuild_dagster.features.environments.promoting import Promotion
from databuild_dagster.model.refs import asset_of, partition_key_of
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
    from databuild_dagster.bindings.display.materialization import report_live
    from databuild_dagster.bindings.display.report_dead_runs import is_reported
    from databuild_dagster.bindings.registry.instance import engine_for, warehouse_of
    from databuild_dagster.bindings.registry.registration import dagster_partition

    instance = open_instance()
    engine = engine_for(instance)
    datasets = {spec.asset: spec for spec in engine.queries.datasets.all().values()}
    why = f"Built in the environment {done.environment}, and promoted."
    for ref, one in engine.queries.canonical.of(refs).items():
        dataset = datasets.get(asset_of(ref))
        if dataset is None or one.uuid is None or one.state is not InstanceState.LIVE:
            continue
        if not is_reported(instance, ref, dagster_partition(dataset.partitions, partition_key_of(ref)), one.uuid):
            report_live(instance, dataset, ref, one.uuid, one.rows or 0, why)
    refresh_copies(engine, refs, lambda: warehouse_of(instance), lambda: instance)
