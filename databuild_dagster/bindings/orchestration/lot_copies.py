"""The keys that other tools look at follow the log: each tick writes anew what has changed since (SPEC 10.2).

What the keys of a ref are is a function of what is so now: of its canonical instance, and of the manifest beside the data.
So whoever writes them need not know what was so before, doing it twice is doing it once, and a process that dies leaves
nothing but a place in the log from which the next one goes on. That place is kept in Dagster, with the warehouse that a
location's keys lie in. A tick asks where the log ends and, if it has not grown, nothing else.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

from dagster import DagsterInstance

from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.registry.instance import DagsterCursors, engine_for, warehouse_of
from databuild_dagster.bindings.registry.lot_partitions import lot_id_of
from databuild_dagster.engine.follower import Cursor, LogFollower, Step, all_touched, apart, steps
from databuild_dagster.model.arcs import RULES, arc_state
from databuild_dagster.model.datasets import ArcSpec, DatasetSpec
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.touched import TOUCHING
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.copies import (
    NO_VERSION,
    Put,
    arc_copy,
    arc_folder,
    lot_folder,
    manifest_copy,
    put_copies,
)
from databuild_dagster.warehouse.errors import (
    DiskTrouble,
    EscapingFile,
    ManifestDamaged,
    ManifestMissing,
    NewerManifest,
    StorageTrouble,
)
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest, ManifestState, read_manifest
from databuild_dagster.warehouse.threads import in_threads

#: Refs written and seconds spent by one tick; the next one goes on.
MAX_REFS: Final = 5_000
MAX_SECONDS: Final = 1.0
#: Refs written between two looks at the clock.
PORTION: Final = 50
#: Times that a ref is written anew in one go, for it moved meanwhile.
MAX_MOVES: Final = 5
#: Lots that wait for inputs, and are looked at again by each tick.
MAX_WAITING: Final = 10_000

#: What a manifest may say of an instance that is live, and of one that has ended otherwise.
_LIVE: Final = frozenset({ManifestState.COMPLETE, ManifestState.EMPTY})
_ENDED: Final = frozenset({ManifestState.PARTIAL, ManifestState.REMOVED})
#: For which states of an instance it matters to an arc whether data is left.
_MATTERS: Final = frozenset(rule.state for rule in RULES if rule.has_data is not None)


class CopiesCursor(Cursor, frozen=True, kw_only=True):
    """How far a location has been followed, and where its keys lie; its entries are refs."""

    warehouse: str
    #: Lots that wait for inputs: what ends that is no event of theirs.
    waiting: tuple[Ref, ...] = ()


class Keys(NamedTuple):
    """What one folder of one ref has to hold."""

    folder: str
    files: dict[str, bytes]


@apart("the keys that other tools look at could not be brought up to date", DiskTrouble, StorageTrouble)
def keep_copies(
    instance: DagsterInstance,
    deployment: Deployment,
    datasets: Collection[DatasetSpec] | None = None,
    *,
    head: int | None = None,
) -> None:
    """Bring the keys of a location's lots up to date, as far as a tick may. An error is logged, and the next tick tries again.

    `datasets` are the location's registered ones, for a caller that has just asked.
    """
    engine, location = engine_for(instance), deployment.location
    root = Warehouse(deployment.warehouse or warehouse_of(instance)).root
    follower = LogFollower(engine, _name(location), CopiesCursor, DagsterCursors(instance), about=root, head=head)
    if follower.is_at_end:
        return
    kept = follower.load()
    cursor = kept if kept is not None and kept.warehouse == root else CopiesCursor(warehouse=root)
    writer = Writer(engine.queries, Warehouse(root), location, datasets)
    until = time.monotonic() + MAX_SECONDS
    waiting, done = dict.fromkeys(cursor.waiting), set[Ref]()
    states = engine.queries.states(waiting) if waiting else {}
    moved = [Step(ref, cursor) for ref in waiting if states[ref] is not InstanceState.UPSTREAM_BUILDING]
    left = chain(moved, touched_after(engine.queries, cursor, follower.last_seq(cursor)))
    after: Cursor = cursor
    is_at_end = False
    while len(done) < MAX_REFS and time.monotonic() <= until and (portion := list(islice(left, PORTION))):
        fresh = {step.entry for step in portion if step.entry is not None} - done
        for ref in fresh:
            waiting.pop(ref, None)
        waiting |= dict.fromkeys(writer.write(sorted(fresh)))
        done |= fresh
        after, is_at_end = portion[-1].after, portion[-1].entry is None
    follower.keep(CopiesCursor(after.seq, after.entry, warehouse=root, waiting=tuple(waiting)[:MAX_WAITING]))
    if is_at_end:
        follower.rest(after.seq)


def cursor_of(instance: DagsterInstance, location: str) -> CopiesCursor | None:
    """How far a location has been followed; None if it never was."""
    return DagsterCursors(instance).load(_name(location), CopiesCursor)


def touched_after(queries: Queries, cursor: Cursor, last_seq: int) -> Iterator[Step[Ref]]:
    """The refs that events may have changed for which a location has not been followed yet."""
    events = queries.events_named(TOUCHING, cursor.seq, last_seq)
    return steps(events, cursor, last_seq, lambda event: all_touched(queries, [event]))


def _name(location: str) -> str:
    return f"lot_copies/{location}"


class Writer:
    """Writes the keys of a location's refs into one warehouse."""

    def __init__(
        self,
        queries: Queries,
        warehouse: Warehouse,
        location: str,
        datasets: Collection[DatasetSpec] | None = None,
    ) -> None:
        self._queries = queries
        self.warehouse = warehouse
        found = queries.datasets(location).values() if datasets is None else datasets
        self.datasets = {spec.asset: spec for spec in found if not spec.kind.is_foreign}

    def write(self, refs: Iterable[Ref]) -> list[Ref]:
        """Have each ref's folders hold what they should; those that wait for inputs. Others' refs are left out.

        Raises `DiskTrouble`, `StorageTrouble`.
        """
        left = [ref for ref in refs if asset_of(ref) in self.datasets]
        written: dict[Ref, Canonical] = {}
        for _ in range(MAX_MOVES):
            seen = self._queries.canonical(left) if left else {}
            left = [ref for ref in left if written.get(ref) != seen[ref]]
            if not left:
                break
            put = self.put([seen[ref] for ref in left])
            written |= {ref: seen[ref] for ref in left}
            # The last writer has to have seen the newest state, so a ref is looked at once more after it was written.
            # A process that found its folders as they should be is not the last writer.
            if put == Put(0, 0):
                break
        return [
            ref
            for ref, canonical in written.items()
            if canonical.state is InstanceState.UPSTREAM_BUILDING and self._is_arc(ref)
        ]

    def put(self, canonicals: Sequence[Canonical], present: dict[str, set[str]] | None = None) -> Put:
        """The same for refs whose canonical instances are known; `present` has what each folder holds."""

        def there(folder: str) -> set[str] | None:
            return None if present is None else present.get(folder, set())

        def put(canonical: Canonical) -> Put:
            puts = [
                put_copies(self.warehouse, keys.folder, keys.files, there(keys.folder))
                for keys in self.keys_of(canonical)
            ]
            return Put(sum(each.written for each in puts), sum(each.removed for each in puts))

        done = in_threads(put, canonicals)
        return Put(sum(each.written for each in done), sum(each.removed for each in done))

    def keys_of(self, canonical: Canonical) -> list[Keys]:
        """What each folder of a ref has to hold."""
        dataset = self.datasets[asset_of(canonical.ref)]
        record = self._record(canonical)
        of_lot, *of_arc = self.folders_of(canonical.ref)
        found = [Keys(of_lot, dict(_manifest_files(of_lot, canonical, record)))]
        lot = _lot_of(dataset, canonical.ref)
        return found + [Keys(folder, dict(_arc_files(folder, dataset, lot, canonical, record))) for folder in of_arc]

    def folders_of(self, ref: Ref) -> list[str]:
        """The folder of its lot, and for an arc that of its state."""
        dataset = self.datasets[asset_of(ref)]
        version = dataset.version if isinstance(dataset.version, str) else NO_VERSION
        lot = _lot_of(dataset, ref)
        folders = [lot_folder(self.warehouse, dataset.asset, version, lot)]
        if self._is_arc(ref):
            folders.append(arc_folder(self.warehouse, dataset.location, version, dataset.asset, lot))
        return folders

    def _record(self, canonical: Canonical) -> "_Record":
        warehouse, asset = self.warehouse, asset_of(canonical.ref)
        if canonical.manifest_uri is not None:
            warehouse = Warehouse.of_manifest(canonical.manifest_uri, asset)
        if canonical.uuid is None or canonical.state not in _MATTERS | {InstanceState.LIVE}:
            return _Record(warehouse, None, has_data=False)
        try:
            manifest = read_manifest(warehouse, asset, canonical.uuid)
        except ManifestMissing:
            return _Record(warehouse, None, has_data=False)
        except (ManifestDamaged, EscapingFile, NewerManifest):
            return _Record(warehouse, None, has_data=True)
        return _Record(warehouse, manifest, has_data=manifest.state is not ManifestState.REMOVED)

    def _is_arc(self, ref: Ref) -> bool:
        return isinstance(self.datasets[asset_of(ref)].arc, ArcSpec)


class _Record(NamedTuple):
    """What lies beside the data of an instance."""

    warehouse: Warehouse
    #: None where there is none, or none that can be read.
    manifest: Manifest | None
    has_data: bool


def _manifest_files(folder: str, canonical: Canonical, record: _Record) -> Iterator[tuple[str, bytes]]:
    """The manifest that readers see, or what an attempt that failed has left; of what is tainted, none."""
    counts = _LIVE if canonical.state is InstanceState.LIVE else _ENDED
    is_tainted = canonical.state is InstanceState.TAINTED
    if record.manifest is not None and record.manifest.state in counts and not is_tainted:
        yield manifest_copy(record.warehouse, folder, record.manifest)


def _arc_files(
    folder: str, dataset: DatasetSpec, lot: str | None, canonical: Canonical, record: _Record
) -> Iterator[tuple[str, bytes]]:
    if canonical.state is None:
        return
    state = arc_state(canonical.state, has_data=record.has_data)
    facts = {"arc": dataset.asset, "instance_uuid": canonical.uuid, "lot": lot, "ref": canonical.ref}
    yield arc_copy(folder, state.value, {**facts, "state": state.value})


def _lot_of(dataset: DatasetSpec, ref: Ref) -> str | None:
    """The lot id, or the partition key that takes its place; None where there are no partitions."""
    key = partition_key_of(ref)
    return lot_id_of(dataset, key) or key
