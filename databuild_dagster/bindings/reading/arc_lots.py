"""The lots of an arc and how far it is with each (SPEC 10.5): the store's word, and the warehouse's on what failed attempts left.

Loads no user code. Only for lots that have failed or been tainted the warehouse is asked.
"""

from collections.abc import Iterator
from typing import NamedTuple

from dagster import DagsterInstance

from databuild_dagster.bindings.registry.catalog import refs_of_dataset
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.bindings.registry.lot_partitions import LotKeys, NoLotKey, has_lots, lot_keys_of
from databuild_dagster.model.arcs import RULES, ArcState, arc_state
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.refs import partition_key_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.errors import ManifestDamaged, ManifestMissing
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import ManifestState, read_manifest

_MATTERS = frozenset(rule.state for rule in RULES if rule.has_data is not None)
_LEFT = (ManifestState.COMPLETE, ManifestState.EMPTY, ManifestState.PARTIAL)


class ArcLot(NamedTuple):
    """One lot of an arc."""

    arc: str
    ref: str
    #: Its lot id, None where the arc's partitions are no lots.
    lot: str | None
    state: ArcState
    #: Of its canonical instance, None where there is none.
    uuid: str | None
    #: Live, and a source has got a new instance since.
    is_stale: bool


def lots_of_arc(queries: Queries, instance: DagsterInstance, dataset: DatasetSpec) -> Iterator[ArcLot]:
    """Every partition that exists by now, in the order of the definition, and whatever else was ever built of it."""
    seen = {each.ref: each for each in queries.canonical_of_dataset(dataset.asset)}
    live = [each.uuid for each in seen.values() if each.uuid is not None]
    stale = queries.stale(live) if live else set()
    left = _Left(queries, instance, dataset.asset)
    keys = lot_keys_of(dataset) if has_lots(dataset) else None
    for ref in dict.fromkeys([*refs_of_dataset(dataset, instance), *seen]):
        canonical = seen.get(ref) or Canonical(ref)
        state = arc_state(canonical.state, has_data=left.of(canonical))
        is_stale = state is ArcState.COMPLETE and canonical.uuid in stale
        yield ArcLot(dataset.asset, ref, _lot_of(keys, ref), state, canonical.uuid, is_stale)


def _lot_of(keys: LotKeys | None, ref: str) -> str | None:
    """None also for a partition of a definition that the dataset had before."""
    try:
        return None if keys is None else str(keys.lot_of(partition_key_of(ref) or ""))
    except NoLotKey:
        return None


class _Left:
    """Whether attempts at the lots of a dataset left data."""

    def __init__(self, queries: Queries, instance: DagsterInstance, asset: str) -> None:
        self._asset = asset
        newest = queries.newest_live(asset)
        # Where its data is, as far as there is any; else where it would be if nobody said otherwise.
        known = newest.manifest_uri if newest is not None else None
        self._warehouse = Warehouse.of_manifest(known, asset) if known else Warehouse(warehouse_of(instance))

    def of(self, canonical: Canonical) -> bool:
        if canonical.state not in _MATTERS or canonical.uuid is None or canonical.manifest_state == REMOVED:
            return False
        if canonical.live_at is not None and canonical.manifest_uri is None:
            return True  # A plain asset's, in a place of its own.
        uri = canonical.manifest_uri
        warehouse = self._warehouse if uri is None else Warehouse.of_manifest(uri, self._asset)
        try:
            return read_manifest(warehouse, self._asset, canonical.uuid).state in _LEFT
        except ManifestMissing:
            return False
        except ManifestDamaged:
            return True
