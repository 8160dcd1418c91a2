"""Copies of manifests and arc states for other tools: each tick rewrites the changed copies (rule 10.2).

The copies of a ref depend only on its present canonical instance and on the manifest beside the data. So a writer needs
no earlier state, a repetition is harmless, and a process that dies leaves only a cursor from which the next writer
continues. Dagster stores the cursor, with the warehouse in which a location's copies are. A tick without new events
asks a single question.

`wrong_lot_copies` and `repair_lot_copies` read all copies. They skip locations that no tick has followed, because the
place of their copies is not known, and a copy that the next tick will rewrite is not wrong.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

from dagster import DagsterInstance

from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.registry.instance import DagsterCursors, engine_for, warehouse_of
from databuild_dagster.bindings.registry.lot_partitions import lot_id_of
from databuild_dagster.data.lost_run_output import MOST_ATTEMPTS
from databuild_dagster.data.ownership import Ownership
from databuild_dagster.data.recorded_figures import check_recorded
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.follower import Cursor, LogFollower, Step, all_touched, apart, steps
from databuild_dagster.features.lots.copies.copies import (
    NO_VERSION,
    CopiedFiles,
    LotFolder,
    Present,
    all_copies,
    arc_copy,
    arc_folder,
    copies_in,
    lot_folder,
    manifest_copy,
    put_all_copies,
    remove_copies,
    wrong_copies,
)
from databuild_dagster.model.datasets import ArcSpec, DatasetSpec
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.states import ARC_RULES, InstanceState, arc_state
from databuild_dagster.model.touched import TOUCHING
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse import errors
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest, ManifestState, kept_manifests, read_manifests
from databuild_dagster.warehouse.threads import in_threads

#: Refs that a tick writes and seconds that it takes; the rest waits for the next tick.
MAX_REFS: Final = 5_000
MAX_SECONDS: Final = 1.0
#: Refs written between two looks at the clock.
PORTION: Final = 50
#: Times that a ref is written in a tick because it changed meanwhile.
MAX_MOVES: Final = 5
#: Refs whose copies are checked at once.
CHECKED_AT_ONCE: Final = 500
#: Lots that wait for inputs, and are read again by each tick.
MAX_WAITING: Final = 10_000

#: States of the manifest of a live instance, and of an instance that ended otherwise.
_LIVE: Final = frozenset({ManifestState.COMPLETE, ManifestState.EMPTY})
_ENDED: Final = frozenset({ManifestState.PARTIAL, ManifestState.REMOVED})
#: Instance states whose arc state depends on whether data exists.
_MATTERS: Final = frozenset(rule.state for rule in ARC_RULES if rule.has_data is not None)


class CopiesCursor(Cursor, frozen=True, kw_only=True):
    """How far a location has been followed, and the warehouse of its copies; its entries are refs."""

    warehouse: str
    #: Lots that wait for inputs: the end of the wait is no event of their own.
    waiting: tuple[Ref, ...] = ()


@apart("the copies of lots for other tools could not be brought up to date", errors.DiskTrouble, errors.StorageTrouble)
def keep_copies(
    instance: DagsterInstance,
    deployment: Deployment,
    datasets: Collection[DatasetSpec] | None = None,
    *,
    head: int | None = None,
    max_seconds: float | None = None,
    portion_refs: int | None = None,
) -> bool | None:
    """Bring the copies of a location's lots up to date, as far as a tick may; returns whether none is left.

    An error is logged, and the next tick tries again; then it returns None. `datasets` are the location's registered datasets, if
    the caller has them. It looks at the clock after each `portion_refs`.
    """
    engine, location = engine_for(instance), deployment.location
    root = Warehouse(deployment.warehouse or warehouse_of(instance)).root
    follower = LogFollower(engine, _name(location), CopiesCursor, DagsterCursors(instance), about=root, head=head)
    if follower.is_at_end or not Ownership(engine.store).may_write(Warehouse(root)):
        return True
    kept = follower.load()
    cursor = kept if kept is not None and kept.warehouse == root else CopiesCursor(warehouse=root)
    writer = Writer(engine.queries, Warehouse(root), location, datasets)
    until = time.monotonic() + (MAX_SECONDS if max_seconds is None else max_seconds)
    waiting, done = dict.fromkeys(cursor.waiting), set[Ref]()
    states = engine.queries.canonical.states(waiting)
    moved = [Step(ref, cursor) for ref in waiting if states[ref] is not InstanceState.UPSTREAM_BUILDING]
    left = chain(moved, touched_after(engine.queries, cursor, follower.last_seq(cursor)))
    after: Cursor = cursor
    is_at_end = False
    while (
        len(done) < MAX_REFS and time.monotonic() <= until and (portion := list(islice(left, portion_refs or PORTION)))
    ):
        fresh = {step.entry for step in portion if step.entry is not None} - done
        for ref in fresh:
            waiting.pop(ref, None)
        waiting |= dict.fromkeys(writer.write(sorted(fresh)))
        done |= fresh
        after, is_at_end = portion[-1].after, portion[-1].entry is None
    follower.keep(CopiesCursor(after.seq, after.entry, warehouse=root, waiting=tuple(waiting)[:MAX_WAITING]))
    if is_at_end:
        follower.rest(after.seq)
    return is_at_end and after.seq >= follower.head


def refresh_copies(instance: DagsterInstance, refs: Collection[Ref]) -> None:
    """Bring the copies of some refs up to date, of every location that has copies. Raises `DiskTrouble`, `StorageTrouble`."""
    engine = engine_for(instance)
    for root, cursors in _by_warehouse(instance, engine).items():
        for location in cursors:
            Writer(engine.queries, Warehouse(root), location).write(sorted(set(refs)))


def cursor_of(instance: DagsterInstance, location: str) -> CopiesCursor | None:
    """How far a location has been followed; None if it never was."""
    return DagsterCursors(instance).load(_name(location), CopiesCursor)


def touched_after(queries: Queries, cursor: Cursor, last_seq: int) -> Iterator[Step[Ref]]:
    """The refs touched by events that a location has not followed yet."""
    events = queries.events.named(TOUCHING, cursor.seq, last_seq)
    return steps(events, cursor, last_seq, lambda event: all_touched(queries, [event]))


def _name(location: str) -> str:
    return f"lot_copies/{location}"


class Writer:
    """Writes the copies of a location's refs into one warehouse."""

    def __init__(
        self, queries: Queries, warehouse: Warehouse, location: str, datasets: Collection[DatasetSpec] | None = None
    ) -> None:
        self._queries = queries
        self.warehouse = warehouse
        found = queries.datasets.all(location).values() if datasets is None else datasets
        self.datasets = {spec.asset: spec for spec in found if not spec.kind.is_foreign}

    def write(self, refs: Iterable[Ref]) -> list[Ref]:
        """Bring each ref's folders up to date; returns the refs that wait for inputs. Refs of other locations are left
        out.

        Raises `DiskTrouble`, `StorageTrouble`.
        """
        left = [ref for ref in refs if asset_of(ref) in self.datasets]
        written: dict[Ref, Canonical] = {}
        for _ in range(MAX_MOVES):
            seen = self._queries.canonical.of(left) if left else {}
            left = [ref for ref in left if written.get(ref) != seen[ref]]
            if not left:
                break
            put = self.put([seen[ref] for ref in left])
            written |= {ref: seen[ref] for ref in left}
            # The last writer must have seen the newest state, so a ref is read again after it was written. A process
            # that found its folders up to date is not the last writer.
            if put == CopiedFiles(0, 0):
                break
        return [
            ref
            for ref, canonical in written.items()
            if canonical.state is InstanceState.UPSTREAM_BUILDING and self._is_arc(ref)
        ]

    def put(self, canonicals: Sequence[Canonical], present: Mapping[str, Present] | None = None) -> CopiedFiles:
        """The same for known canonical instances; `present` has the files of each folder."""
        before = self.attempts_before(canonicals)
        if present is None:
            folders = [folder for canonical in canonicals for folder in self.folders_of(canonical.ref)]
            present = copies_in(self.warehouse, folders)
        found = in_threads(lambda canonical: self.files_of(canonical, before.get(canonical.ref, ())), canonicals)
        files = {folder: files for of_ref in found for folder, files in of_ref.items()}
        return put_all_copies(
            self.warehouse, [LotFolder(folder, wanted, present.get(folder, {})) for folder, wanted in files.items()]
        )

    def attempts_before(self, canonicals: Iterable[Canonical]) -> dict[Ref, list[str]]:
        """Of each ref that is not live, the newest `MOST_ATTEMPTS` instances since its last live instance, without the canonical one."""
        canonical = {
            one.ref: one.uuid for one in canonicals if one.uuid is not None and one.state is not InstanceState.LIVE
        }
        found = self._queries.instances.attempts_since_live(canonical) if canonical else {}
        return {
            ref: [attempt.uuid for attempt in attempts if attempt.uuid != canonical[ref]][-MOST_ATTEMPTS:]
            for ref, attempts in found.items()
        }

    def files_of(self, canonical: Canonical, before: Iterable[str]) -> dict[str, dict[str, bytes]]:
        """The files that each folder of a ref has to have; `before` are its attempts since it was live."""
        dataset = self.datasets[asset_of(canonical.ref)]
        record = self._record(canonical)
        of_lot, *of_arc = self.folders_of(canonical.ref)
        lot = _lot_of(dataset, canonical.ref)
        arcs = {folder: _arc_files(folder, dataset, lot, canonical, record) for folder in of_arc}
        files = _manifest_files(of_lot, canonical, record)
        for uuid in before:
            if (manifest := self._kept(canonical.ref, uuid)) is not None:
                files |= [manifest_copy(self.warehouse, of_lot, manifest)]
        return {of_lot: files, **arcs}

    def _kept(self, ref: Ref, uuid: str) -> Manifest | None:
        """The manifest of an attempt that left files, or whose files were removed."""
        try:
            (manifest,) = read_manifests(self.warehouse, asset_of(ref), [uuid])
        except (errors.ManifestMissing, errors.ManifestDamaged, errors.EscapingFile, errors.NewerManifest):
            return None
        return manifest if manifest.state in _ENDED else None

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
            read = read_manifests if canonical.manifest_state == ManifestState.REMOVED else kept_manifests
            (manifest,) = read(warehouse, asset, [canonical.uuid])
            check_recorded(warehouse, manifest, canonical)
        except errors.ManifestMissing:
            return _Record(warehouse, None, has_data=False)
        except (errors.ManifestDamaged, errors.EscapingFile, errors.NewerManifest):
            return _Record(warehouse, None, has_data=True)
        return _Record(warehouse, manifest, has_data=manifest.state is not ManifestState.REMOVED)

    def _is_arc(self, ref: Ref) -> bool:
        return isinstance(self.datasets[asset_of(ref)].arc, ArcSpec)


class _Record(NamedTuple):
    """The manifest beside the data of an instance."""

    warehouse: Warehouse
    #: None for a missing or unreadable manifest.
    manifest: Manifest | None
    has_data: bool


def _manifest_files(folder: str, canonical: Canonical, record: _Record) -> dict[str, bytes]:
    """The manifest that readers see, or that of a failed attempt."""
    counts = _LIVE if canonical.state is InstanceState.LIVE else _ENDED
    if record.manifest is None or record.manifest.state not in counts:
        return {}
    return dict([manifest_copy(record.warehouse, folder, record.manifest)])


def _arc_files(
    folder: str, dataset: DatasetSpec, lot: str | None, canonical: Canonical, record: _Record
) -> dict[str, bytes]:
    if canonical.state is None:
        return {}
    state = arc_state(canonical.state, has_data=record.has_data)
    facts = {"arc": dataset.asset, "instance_uuid": canonical.uuid, "lot": lot, "ref": canonical.ref}
    return dict([arc_copy(folder, state.value, {**facts, "state": state.value})])


def _lot_of(dataset: DatasetSpec, ref: Ref) -> str | None:
    """The lot id, or else the partition key; None for an unpartitioned asset."""
    key = partition_key_of(ref)
    return lot_id_of(dataset, key) or key


# Check and repair


class WrongCopy(NamedTuple):
    """A copy that is missing, outdated or superfluous."""

    path: str
    #: None for a file that belongs to no ref.
    ref: Ref | None
    why: str


class CopyRepair(NamedTuple):
    """The result of a repair."""

    written: int
    removed: int
    #: Refs whose copies were compared.
    refs: int


def wrong_lot_copies(instance: DagsterInstance) -> Iterator[WrongCopy]:
    """Each copy that is missing, outdated or superfluous. Raises `DiskTrouble`, `StorageTrouble`."""
    engine = engine_for(instance)
    for root, cursors in _by_warehouse(instance, engine).items():
        warehouse = Warehouse(root)
        left = all_copies(warehouse)
        for location, cursor in cursors.items():
            writer = Writer(engine.queries, warehouse, location)
            for refs in _portions(engine, writer):
                suspects = [ref for ref, found in _wrong(engine, writer, refs, left) if found]
                # Compared twice, because a tick may just write it; and a copy that a tick will rewrite is not wrong.
                behind = _behind(engine, cursor_of(instance, location) or cursor) if suspects else frozenset()
                for ref, found in _wrong(engine, writer, suspects):
                    if ref not in behind:
                        yield from (WrongCopy(path, ref, why) for path, why in sorted(found.items()))
        for path in sorted(path for paths in left.values() for path in paths):
            yield WrongCopy(path, None, "it belongs to no ref")


def repair_lot_copies(instance: DagsterInstance) -> CopyRepair:
    """Write missing and outdated copies, and remove superfluous copies. Raises `DiskTrouble`, `StorageTrouble`."""
    engine = engine_for(instance)
    n_refs, written, removed = 0, 0, 0
    for root, cursors in _by_warehouse(instance, engine).items():
        warehouse = Warehouse(root)
        # Listed first, so that the copies of a new lot are not taken for superfluous ones.
        left = all_copies(warehouse)
        for location in cursors:
            writer = Writer(engine.queries, warehouse, location)
            for refs in _portions(engine, writer):
                seen = engine.queries.canonical.of(refs)
                put = writer.put(list(seen.values()), {folder: dict.fromkeys(paths) for folder, paths in left.items()})
                for canonical in seen.values():
                    for folder in writer.folders_of(canonical.ref):
                        left.pop(folder, None)
                # Again for refs that changed meanwhile.
                writer.write([ref for ref, now in engine.queries.canonical.of(refs).items() if now != seen[ref]])
                n_refs, written, removed = n_refs + len(refs), written + put.written, removed + put.removed
        foreign = sorted(path for paths in left.values() for path in paths)
        remove_copies(warehouse, foreign)
        removed += len(foreign)
    return CopyRepair(written, removed, n_refs)


def _by_warehouse(instance: DagsterInstance, engine: Engine) -> dict[str, dict[str, CopiesCursor]]:
    """Warehouse to the locations whose copies are in it; without warehouses of other stores (rule 3.11)."""
    found: dict[str, dict[str, CopiesCursor]] = {}
    ownership = Ownership(engine.store)
    for location in sorted({dataset.location for dataset in engine.queries.datasets.all().values()}):
        cursor = cursor_of(instance, location)
        # A copied home has the cursor of its original, which names the original's warehouse.
        if cursor is not None and ownership.may_write(Warehouse(cursor.warehouse)):
            found.setdefault(cursor.warehouse, {})[location] = cursor
    return found


def _portions(engine: Engine, writer: Writer) -> Iterator[list[Ref]]:
    for asset in sorted(writer.datasets):
        refs = [canonical.ref for canonical in engine.queries.canonical.of_dataset(asset)]
        yield from (refs[at : at + CHECKED_AT_ONCE] for at in range(0, len(refs), CHECKED_AT_ONCE))


def _wrong(
    engine: Engine, writer: Writer, refs: list[Ref], left: dict[str, set[str]] | None = None
) -> Iterator[tuple[Ref, dict[str, str]]]:
    """Each ref with the problems in its folders; the folders are removed from `left`."""
    seen = engine.queries.canonical.of(refs) if refs else {}
    before = writer.attempts_before(seen.values())
    for ref, canonical in seen.items():
        found: dict[str, str] = {}
        for folder, files in writer.files_of(canonical, before.get(ref, ())).items():
            present = None if left is None else left.pop(folder, set())
            found |= wrong_copies(writer.warehouse, folder, files, present)
        yield ref, found


def _behind(engine: Engine, cursor: CopiesCursor) -> frozenset[Ref]:
    """The refs that the next ticks will rewrite."""
    later = touched_after(engine.queries, cursor, engine.queries.events.head().seq)
    return frozenset(step.entry for step in later if step.entry is not None) | frozenset(cursor.waiting)
