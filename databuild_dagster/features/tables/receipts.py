"""From an instance to the snapshot of its table in which every engine reads it (rules 4.6, 10.10).

The mark of a snapshot says up to which seq it holds, and the log says which instance a partition had then. So no manifest of the
table is read; `databuild log check --deep` compares the manifests with the log.
"""

from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from databuild_dagster.features.tables.errors import NotInTable, NotPublished, PublishConflict
from databuild_dagster.features.tables.live_files import is_shown
from databuild_dagster.features.tables.opening import open_table, place_of
from databuild_dagster.features.tables.port import Listed, OpenTable, Place, within
from databuild_dagster.features.tables.publisher import MAX_TRIES, is_of_this_log
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import Store

#: Snapshots of a table that a search looks at, newest first. A snapshot of each tick of a day is fewer.
MAX_SNAPSHOTS: Final = 5_000


class InTable(NamedTuple):
    """The newest snapshot of a table that holds an instance, or why none is named."""

    #: The name of the table, or the folder of a Delta table.
    table: str
    format: str
    #: The snapshot id of Iceberg, the version of Delta.
    snapshot: int | None = None
    #: The snapshot holds up to this event.
    seq: int | None = None
    tags: tuple[str, ...] = ()
    why: str | None = None


def in_tables(
    store: Store,
    warehouse: str,
    instances: Mapping[str, Ref],
    *,
    seconds: float | None,
    open_table: OpenTable = open_table,
) -> dict[str, InTable]:
    """By uuid, the given instances whose datasets are published as tables. A table that cannot be read is a `why`.

    `warehouse` is the home's own; `seconds` bound the wait for each table.
    """
    queries = Queries(store)
    found: dict[str, InTable] = {}
    by_asset: dict[str, dict[str, Ref]] = {}
    for uuid, ref in instances.items():
        by_asset.setdefault(asset_of(ref), {})[uuid] = ref
    for asset, wanted in sorted(by_asset.items()):
        dataset = queries.datasets.get(asset)
        if dataset is None or not dataset.table:
            continue
        place = place_of(dataset, warehouse)
        nowhere = InTable(place.shown, place.spec.format.value, why="no snapshot holds it")
        try:
            held = _holding(store, queries, place, wanted, seconds, open_table)
        except DatabuildError as error:
            held, nowhere = {}, nowhere._replace(why=error.message)
        for uuid in wanted:
            snapshot = held.get(uuid)
            found[uuid] = (
                nowhere
                if snapshot is None
                else nowhere._replace(snapshot=snapshot.id, seq=snapshot.mark.seq, tags=snapshot.tags, why=None)
            )
    return found


def tag_snapshot(
    store: Store,
    dataset: DatasetSpec,
    warehouse: str,
    uuid: str,
    ref: Ref,
    tag: str,
    *,
    seconds: float | None,
    open_table: OpenTable = open_table,
) -> None:
    """Name the newest snapshot that holds an instance of a ref, so that it does not expire. A snapshot with the tag stays as it is.

    Raises `NotPublished`, `NotInTable`, `TableSilent`, and what the table raises.
    """
    if not dataset.table:
        raise NotPublished(asset=dataset.asset)
    place = place_of(dataset, warehouse)
    for n_try in range(1, MAX_TRIES + 1):
        held = _holding(store, Queries(store), place, {uuid: ref}, seconds, open_table).get(uuid)
        if held is None:
            raise NotInTable(asset=place.asset, table=place.shown, uuid=uuid)
        try:
            within(seconds, place, partial(_tag, open_table, place, tag, held.id))
            return
        except PublishConflict:
            if n_try == MAX_TRIES:
                raise


def _tag(open_table: OpenTable, place: Place, tag: str, snapshot: int) -> None:
    open_table(place).tag(tag, snapshot)


def _holding(
    store: Store,
    queries: Queries,
    place: Place,
    instances: Mapping[str, Ref],
    seconds: float | None,
    open_table: OpenTable,
) -> dict[str, Listed]:
    """The newest snapshot of this store by the uuid of an instance that readers of the snapshot see."""
    own = store.identity().id
    # Delta has no record of versions whose files are gone.
    gone = {one.uuid for one in queries.instances.named(instances) if one.manifest_state == REMOVED}
    instances = {uuid: ref for uuid, ref in instances.items() if uuid not in gone}
    if not instances:
        return {}

    def search() -> dict[str, Listed]:
        found: dict[str, Listed] = {}
        for snapshot in islice(open_table(place).history(), MAX_SNAPSHOTS):
            if snapshot.mark.store_id != own or not is_of_this_log(queries, snapshot.mark):
                continue
            refs = [ref for uuid, ref in instances.items() if uuid not in found]
            then = queries.canonical.at(refs, snapshot.mark.seq).values()
            for one in then:
                if one.uuid is not None and one.uuid in instances and is_shown(one, place.spec):
                    found.setdefault(one.uuid, snapshot)
            if len(found) == len(instances):
                break
        return found

    return within(seconds, place, search)
