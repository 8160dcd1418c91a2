"""The keys that other tools look at follow the log: each tick writes anew what has changed since (SPEC 10.2).

What the keys of a ref are is a function of what is so now: of its canonical instance, and of the manifest beside the data.
So whoever writes them need not know what was so before, doing it twice is doing it once, and a process that dies leaves
nothing but a place in the log from which the next one goes on. That place is kept in Dagster, with the warehouse that a
location's keys lie in. A tick asks where the log ends and, if it has not grown, nothing else.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
from dagster import DagsterInstance

from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.registry.instance import engine_for, warehouse_of
from databuild_dagster.bindings.registry.lot_partitions import lot_id_of
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model import events as e
from databuild_dagster.model.arcs import RULES, arc_state
from databuild_dagster.model.datasets import ArcSpec, DatasetSpec
from databuild_dagster.model.refs import asset_of, partition_key_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.spark.staging import in_threads
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

#: Events looked at, refs written and seconds spent by one tick; the next one goes on.
MAX_EVENTS: Final = 10_000
MAX_REFS: Final = 5_000
MAX_SECONDS: Final = 1.0
#: Refs written between two looks at the clock.
PORTION: Final = 50
#: Times that a ref is written anew in one go, for it moved meanwhile.
MAX_MOVES: Final = 5
#: Lots that wait for inputs, and are looked at again by each tick.
MAX_WAITING: Final = 10_000

_CURSOR: Final = "databuild/lot_copies/"
#: Events after which the canonical instance of a ref, or its state, may be another.
_CONCERNS: Final = (
    "JobRunBuffered",
    "JobRunSucceeded",
    "JobRunDepMissed",
    "JobRunFailed",
    "JobRunLost",
    "JobRunCanceled",
    "TaintCreated",
    "TaintCanceled",
    "CanonicalReverted",
    "LotArrived",
    "ManifestRemoved",
    "RemovalFinished",
)
#: What a manifest may say of an instance that is live, and of one that has ended otherwise.
_LIVE: Final = frozenset({ManifestState.COMPLETE, ManifestState.EMPTY})
_ENDED: Final = frozenset({ManifestState.PARTIAL, ManifestState.REMOVED})
#: For which states of an instance it matters to an arc whether data is left.
_MATTERS: Final = frozenset(rule.state for rule in RULES if rule.has_data is not None)

_log = logging.getLogger(__name__)

#: By engine, so by process: for which warehouse, and up to which event, each location has nothing left to do.
_followed: WeakKeyDictionary[Engine, dict[str, tuple[str, int]]] = WeakKeyDictionary()


class Cursor(msgspec.Struct, frozen=True):
    """How far a location has been followed, and where its keys lie."""

    warehouse: str
    #: Events up to this one are done.
    seq: int = 0
    #: Of the next one that matters, the refs up to this one.
    ref: str = ""
    #: Lots that wait for inputs: what ends that is no event of theirs.
    waiting: tuple[str, ...] = ()


class Keys(NamedTuple):
    """What one folder of one ref has to hold."""

    folder: str
    files: dict[str, bytes]


def keep_copies(instance: DagsterInstance, deployment: Deployment) -> None:
    """Bring the keys of a location's lots up to date, as far as a tick may. What goes wrong is logged, and tried again."""
    try:
        root = Warehouse(deployment.warehouse or warehouse_of(instance)).root
        _follow(instance, engine_for(instance), deployment.location, root)
    except (DiskTrouble, StorageTrouble) as trouble:
        _log.warning(
            "databuild: the keys that other tools look at could not be brought up to date: %s", trouble.message
        )
    except Exception:
        _log.warning("databuild: the keys that other tools look at could not be brought up to date", exc_info=True)


def rewrite_copies(instance: DagsterInstance, refs: Iterable[str]) -> None:
    """Bring the keys of refs up to date whose manifests were changed by something that is no event, such as a clean-up.

    Of locations that no tick has followed yet, none. Raises `DiskTrouble`, `StorageTrouble`.
    """
    queries = engine_for(instance).queries
    left = list(refs)
    locations = {dataset.location for dataset in queries.datasets().values()}
    for location in sorted(locations):
        if (cursor := cursor_of(instance, location)) is not None:
            Writer(queries, Warehouse(cursor.warehouse), location).write(left)


def cursor_of(instance: DagsterInstance, location: str) -> Cursor | None:
    """How far a location has been followed; None if it never was."""
    name = _CURSOR + location
    kept = instance.daemon_cursor_storage.get_cursor_values({name}).get(name)
    return None if kept is None else msgspec.json.decode(kept, type=Cursor)


def touched_after(queries: Queries, cursor: Cursor, last_seq: int) -> Iterator[tuple[int, list[str]]]:
    """(event, the refs that it may have changed, in order) for what a location has not been followed through yet."""
    is_first = True
    for event in queries.events_named(_CONCERNS, cursor.seq, last_seq):
        refs = sorted(_refs_of(queries, event))
        yield event.seq, [ref for ref in refs if ref > cursor.ref] if is_first else refs
        is_first = False


def _follow(instance: DagsterInstance, engine: Engine, location: str, root: str) -> None:
    followed = _followed.setdefault(engine, {})
    queries = engine.queries
    head = queries.head().seq
    if followed.get(location) == (root, head):
        return
    cursor = cursor_of(instance, location) or Cursor(root)
    if cursor.warehouse != root or cursor.seq > head:
        # Another place, or a store that is not the one that was followed.
        cursor = Cursor(root)
    share = _Share(Writer(queries, Warehouse(root), location))
    states = queries.states(cursor.waiting)
    moved = [each for each in cursor.waiting if states[each] is not InstanceState.UPSTREAM_BUILDING]
    n_moved = share.write(moved)
    last_seq = min(head, cursor.seq + MAX_EVENTS)
    seq, ref = cursor.seq, cursor.ref
    for event_seq, refs in touched_after(queries, cursor, last_seq):
        n_written = share.write(refs)
        if n_written < len(refs):
            ref = refs[n_written - 1] if n_written else ref
            break
        seq, ref = event_seq, ""
    else:
        seq, ref = last_seq, ""
    written = set(moved[:n_moved])
    still = dict.fromkeys(each for each in cursor.waiting if each not in written)
    now = Cursor(root, seq, ref, tuple(still | share.waiting)[:MAX_WAITING])
    if now != cursor:
        instance.daemon_cursor_storage.set_cursor_values({_CURSOR + location: msgspec.json.encode(now).decode()})
    if seq == head and n_moved == len(moved):
        followed[location] = (root, head)


class _Share:
    """What one tick may write."""

    def __init__(self, writer: "Writer") -> None:
        self._writer = writer
        self._until = time.monotonic() + MAX_SECONDS
        self._done: set[str] = set()
        #: Of what was written, the lots that wait for inputs.
        self.waiting: dict[str, None] = {}

    def write(self, refs: Sequence[str]) -> int:
        """Write refs, in their order, that have not been written yet; how many of them are by now."""
        for start in range(0, len(refs), PORTION):
            if len(self._done) >= MAX_REFS or time.monotonic() > self._until:
                return start
            news = [ref for ref in refs[start : start + PORTION] if ref not in self._done]
            self.waiting |= dict.fromkeys(self._writer.write(news))
            self._done.update(news)
        return len(refs)


def _refs_of(queries: Queries, event: e.Event) -> set[str]:
    job_runs: Sequence[str] = ()
    match event.fact:
        case e.JobRunBuffered(runs=runs):
            return {ref for run in runs for ref in run.refs}
        case e.JobRunSucceeded(runs=runs):
            return {output.ref for run in runs for output in run.outputs}
        case e.LotArrived(arrivals=arrivals):
            return {arrival.ref for arrival in arrivals}
        case e.CanonicalReverted(ref=ref):
            return {ref}
        case e.TaintCreated(refs=refs, taint_id=taint_id):
            return {*refs, *queries.tainted_by(taint_id)}
        case e.TaintCanceled(taint_id=taint_id):
            return set(queries.tainted_by(taint_id))
        case e.JobRunDepMissed(misses=misses):
            job_runs = [miss.job_run_id for miss in misses]
            cycles = {ref for miss in misses for impact in miss.impacted for ref in impact.cycle}
            return cycles | _outputs(queries, job_runs)
        case e.JobRunFailed(failures=failures) | e.JobRunLost(failures=failures):
            job_runs = [failure.job_run_id for failure in failures]
        case e.JobRunCanceled(job_run_ids=ids):
            job_runs = ids
        case e.ManifestRemoved(uuids=uuids) | e.RemovalFinished(uuids=uuids):
            return {kept.ref for kept in queries.kept(uuids).values()}
    return _outputs(queries, job_runs)


def _outputs(queries: Queries, job_runs: Iterable[str]) -> set[str]:
    return {ref for run in queries.job_runs_named(job_runs).values() for ref in run.refs}


class Writer:
    """Writes the keys of a location's refs into one warehouse."""

    def __init__(self, queries: Queries, warehouse: Warehouse, location: str) -> None:
        self._queries = queries
        self.warehouse = warehouse
        found = (each for each in queries.datasets(location).values() if not each.kind.is_foreign)
        self.datasets = {each.asset: each for each in found}

    def write(self, refs: Iterable[str]) -> list[str]:
        """Have each ref's folders hold what they should; those that wait for inputs. Others' refs are left out.

        Raises `DiskTrouble`, `StorageTrouble`.
        """
        left = [ref for ref in refs if asset_of(ref) in self.datasets]
        written: dict[str, Canonical] = {}
        for _ in range(MAX_MOVES):
            seen = self._queries.canonical(left) if left else {}
            # Looked at once more after it was written: whoever writes last has seen the newest.
            left = [ref for ref in left if written.get(ref) != seen[ref]]
            if not left:
                break
            self.put([seen[ref] for ref in left])
            written |= {ref: seen[ref] for ref in left}
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

    def folders_of(self, ref: str) -> list[str]:
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

    def _is_arc(self, ref: str) -> bool:
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


def _lot_of(dataset: DatasetSpec, ref: str) -> str | None:
    """The lot id, or the partition key that takes its place; None where there are no partitions."""
    key = partition_key_of(ref)
    return lot_id_of(dataset, key) or key
