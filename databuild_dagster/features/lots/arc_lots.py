"""The state of an arc for each of its lots (rule 10.5), from the store.

The warehouse is read only for failed or tainted lots, to find data that attempts left. No user code is loaded.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from dagster import DagsterInstance

from databuild_dagster.bindings.registry.catalog import refs_of_dataset
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.bindings.registry.lot_partitions import lot_keys_if_any, lot_of
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.states import ARC_RULES, ArcState, arc_state
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.errors import ManifestDamaged, ManifestMissing
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import ManifestState, read_manifest

_MATTERS = frozenset(rule.state for rule in ARC_RULES if rule.has_data is not None)
_LEFT = (ManifestState.COMPLETE, ManifestState.EMPTY, ManifestState.PARTIAL)


class ArcLot(NamedTuple):
    """A lot of an arc."""

    arc: str
    ref: Ref
    #: The lot id, None if the arc's partitions are no lots.
    lot: str | None
    state: ArcState
    #: The canonical instance, None if there is none.
    uuid: str | None
    #: It is live, and a source has a newer instance.
    stale: bool
    #: The reason of a failure.
    reason: str | None


def lots_of_arc(
    queries: Queries, instance: DagsterInstance, dataset: DatasetSpec, refs: Sequence[Ref] | None = None
) -> Iterator[ArcLot]:
    """The lots of `refs` of an arc; by default every partition that exists now, in the order of the definition, then
    further partitions that have instances.
    """
    if refs is None:
        seen = {canonical.ref: canonical for canonical in queries.canonical.of_dataset(dataset.asset)}
        refs = [*refs_of_dataset(dataset, instance), *seen]
    else:
        seen = queries.canonical.of(refs)
    live = [canonical.uuid for canonical in seen.values() if canonical.uuid is not None]
    stale = queries.instances.stale(live) if live else set()

    @cache
    def usual() -> Warehouse:
        """The place of the asset's newest data, or else the instance's default warehouse."""
        newest = queries.canonical.newest_live(dataset.asset)
        place = newest.manifest_uri if newest is not None else None
        return Warehouse.of_manifest(place, dataset.asset) if place else Warehouse(warehouse_of(instance))

    keys = lot_keys_if_any(dataset)
    for ref in dict.fromkeys(refs):
        canonical = seen.get(ref) or Canonical(ref)
        state = arc_state(canonical.state, has_data=_has_left_data(canonical, usual))
        is_stale = state is ArcState.COMPLETE and canonical.uuid in stale
        lot = lot_of(keys, partition_key_of(ref))
        yield ArcLot(
            dataset.asset, ref, None if lot is None else str(lot), state, canonical.uuid, is_stale, canonical.reason
        )


def _has_left_data(canonical: Canonical, usual: Callable[[], Warehouse]) -> bool:
    """Whether attempts at a lot left data, in the warehouse of its manifest or else in the usual warehouse."""
    if canonical.state not in _MATTERS or canonical.uuid is None or canonical.manifest_state == REMOVED:
        return False
    uri, asset = canonical.manifest_uri, asset_of(canonical.ref)
    if canonical.live_at is not None and uri is None:
        return True  # A plain asset's data is in its own place.
    try:
        warehouse = usual() if uri is None else Warehouse.of_manifest(uri, asset)
        return read_manifest(warehouse, asset, canonical.uuid).state in _LEFT
    except ManifestMissing:
        return False
    except ManifestDamaged:
        return True
