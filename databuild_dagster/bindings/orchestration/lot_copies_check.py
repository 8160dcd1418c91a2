"""Whether the keys that other tools look at say what is so, and writing all of them anew (SPEC 10.2).

Only for locations that a tick has followed, each in the warehouse that it was followed for: where the keys of others lie
nobody knows. What a tick has not come to yet is not wrong.
"""

from collections.abc import Iterator
from typing import NamedTuple

from dagster import DagsterInstance

from databuild_dagster.bindings.orchestration.lot_copies import CopiesCursor, Writer, cursor_of, touched_after
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.refs import Ref
from databuild_dagster.warehouse.copies import all_copies, remove_copies, wrong_copies
from databuild_dagster.warehouse.layout import Warehouse

#: Refs whose keys are computed at once.
PORTION = 500


class WrongCopy(NamedTuple):
    """A key that is not as it should be."""

    path: str
    #: None where it is nobody's.
    ref: Ref | None
    why: str


class Repaired(NamedTuple):
    """What was done to make all keys say what is so."""

    written: int
    removed: int
    #: Refs whose keys were looked at.
    refs: int


def wrong_lot_copies(instance: DagsterInstance) -> Iterator[WrongCopy]:
    """Each key that is missing, says something else, or is nobody's. Raises `DiskTrouble`, `StorageTrouble`."""
    engine = engine_for(instance)
    for root, cursors in _by_warehouse(instance, engine).items():
        warehouse = Warehouse(root)
        left = all_copies(warehouse)
        for location, cursor in cursors.items():
            writer = Writer(engine.queries, warehouse, location)
            for refs in _portions(engine, writer):
                suspects = [ref for ref, found in _wrong(engine, writer, refs, left) if found]
                # Looked at twice, for a tick may have been about to write it; and what it has not come to is not wrong.
                behind = _behind(engine, cursor_of(instance, location) or cursor) if suspects else frozenset()
                for ref, found in _wrong(engine, writer, suspects):
                    if ref not in behind:
                        yield from (WrongCopy(path, ref, why) for path, why in sorted(found.items()))
        for path in sorted(path for paths in left.values() for path in paths):
            yield WrongCopy(path, None, "it is the key of nothing")


def repair_lot_copies(instance: DagsterInstance) -> Repaired:
    """Write what is missing or says something else, and remove what is nobody's. Raises `DiskTrouble`, `StorageTrouble`."""
    engine = engine_for(instance)
    n_refs, written, removed = 0, 0, 0
    for root, cursors in _by_warehouse(instance, engine).items():
        warehouse = Warehouse(root)
        # Listed first, so that no key of a lot that comes meanwhile is taken for nobody's.
        left = all_copies(warehouse)
        for location in cursors:
            writer = Writer(engine.queries, warehouse, location)
            for refs in _portions(engine, writer):
                seen = engine.queries.canonical(refs)
                put = writer.put(list(seen.values()), left)
                for canonical in seen.values():
                    for folder in writer.folders_of(canonical.ref):
                        left.pop(folder, None)
                # Once more for what has moved while it was written.
                writer.write([ref for ref, now in engine.queries.canonical(refs).items() if now != seen[ref]])
                n_refs, written, removed = n_refs + len(refs), written + put.written, removed + put.removed
        foreign = sorted(path for paths in left.values() for path in paths)
        remove_copies(warehouse, foreign)
        removed += len(foreign)
    return Repaired(written, removed, n_refs)


def _by_warehouse(instance: DagsterInstance, engine: Engine) -> dict[str, dict[str, CopiesCursor]]:
    """Warehouse to the locations whose keys lie there."""
    found: dict[str, dict[str, CopiesCursor]] = {}
    for location in sorted({dataset.location for dataset in engine.queries.datasets().values()}):
        if (cursor := cursor_of(instance, location)) is not None:
            found.setdefault(cursor.warehouse, {})[location] = cursor
    return found


def _portions(engine: Engine, writer: Writer) -> Iterator[list[Ref]]:
    for asset in sorted(writer.datasets):
        refs = [each.ref for each in engine.queries.canonical_of_dataset(asset)]
        yield from (refs[start : start + PORTION] for start in range(0, len(refs), PORTION))


def _wrong(
    engine: Engine, writer: Writer, refs: list[Ref], left: dict[str, set[str]] | None = None
) -> Iterator[tuple[Ref, dict[str, str]]]:
    """Each ref with what is wrong in its folders; of those that were listed, they are taken out."""
    for ref, canonical in engine.queries.canonical(refs).items() if refs else ():
        found: dict[str, str] = {}
        for keys in writer.keys_of(canonical):
            present = None if left is None else left.pop(keys.folder, set())
            found |= wrong_copies(writer.warehouse, keys.folder, keys.files, present)
        yield ref, found


def _behind(engine: Engine, cursor: CopiesCursor) -> frozenset[Ref]:
    """The refs that the next ticks will come to."""
    later = touched_after(engine.queries, cursor, engine.queries.head().seq)
    return frozenset(step.entry for step in later if step.entry is not None) | frozenset(cursor.waiting)
