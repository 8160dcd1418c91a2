"""I9 over the meta storage: an operation without a state has no keys under its root, and is not in runOps (rules 12)."""

from collections.abc import Iterator

from databuild_dagster.model.meta_storage import LAST, Entry
from databuild_dagster.model.operations.keys import ROOT, SEPARATOR
from databuild_dagster.model.operations.records import strays
from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.format import PREFIX as P
from databuild_dagster.store.invariants import Invariant
from databuild_dagster.store.unit_of_work import from_stored


def _stray_keys(connection: Connection) -> Iterator[tuple[str, str]]:
    prefix = ROOT + SEPARATOR
    rows = connection.execute(
        f"SELECT key, revision, value FROM {P}meta_entries WHERE key >= ? AND key < ? AND value IS NOT NULL ORDER BY key",
        (prefix, prefix + LAST),
    )
    try:
        entries = [Entry(key, from_stored(value), revision) for key, revision, value in rows]
    except ValueError as error:
        yield f"{P}meta_entries", f"cannot be read: {error}"
        return
    yield from strays(entries)


INVARIANTS = (Invariant("I9", _stray_keys),)
