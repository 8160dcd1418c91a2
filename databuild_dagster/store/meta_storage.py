"""Queries to the meta storage (rule 9.1). Each answer is consistent and has its revision."""

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from databuild_dagster.model.meta_storage import LAST, Batch, CompactedRevision, Entry, check_key
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.store import Store
from databuild_dagster.store.unit_of_work import from_stored

#: Revisions of an answer at most.
MAX_BATCHES = 1_000

#: A single statement, so that the answer is consistent. It has a row also without an entry.
_HEAD = f"(SELECT coalesce(max(seq), 0) AS seq FROM {PREFIX}events) head"
_GET = (
    f"SELECT head.seq, m.key, m.revision, m.value FROM {_HEAD} LEFT JOIN {PREFIX}meta_entries m "
    "ON m.key IN (SELECT value FROM json_each(?))"
)
_RANGE = (
    f"SELECT head.seq, m.key, m.revision, m.value FROM {_HEAD} LEFT JOIN {PREFIX}meta_entries m "
    "ON m.key >= ? AND m.key < ? AND m.value IS NOT NULL ORDER BY m.key LIMIT ?"
)
_CHANGES = (
    "SELECT head.seq, head.compacted, m.revision, m.key, m.value FROM (SELECT coalesce(max(seq), 0) AS seq, "
    f"(SELECT coalesce(max(revision), 0) FROM {PREFIX}meta_compactions) AS compacted FROM {PREFIX}events) head "
    f"LEFT JOIN {PREFIX}meta_changes m ON m.revision > ? AND m.key >= ? AND m.key < ? AND m.revision <= "
    f"(SELECT max(l.revision) FROM (SELECT DISTINCT revision FROM {PREFIX}meta_changes "
    "WHERE revision > ? AND key >= ? AND key < ? ORDER BY revision LIMIT ?) l) "
    "ORDER BY m.revision, m.key"
)
#: Without values, which may be large.
_NEWEST = (
    f"SELECT m.key, m.revision FROM {PREFIX}meta_entries m WHERE m.key >= ? AND m.key < ? AND m.value IS NOT NULL "
    "AND m.revision < ? ORDER BY m.revision DESC, m.key LIMIT ?"
)
#: More entries than exist.
_ALL = 1 << 40


class Look(NamedTuple):
    """Entries at a revision of the log."""

    revision: int
    entries: tuple[Entry, ...]


class Changes(NamedTuple):
    """Changes of keys, complete up to a revision."""

    up_to: int
    batches: tuple[Batch, ...]


class MetaQueries:
    """Questions to the meta storage of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get_all(self, keys: Iterable[str]) -> Look:
        """An entry for each key, in their order; a key that never was has revision 0."""
        wanted = [check_key(key) for key in keys]
        rows = self._store.ask(_GET, (Keys(wanted),))
        found = {key: Entry(key, from_stored(value), revision) for _, key, revision, value in rows if key is not None}
        return Look(rows[0][0], tuple(found.get(key) or Entry(key, None, 0) for key in wanted))

    def range(self, start: str, end: str, limit: int = _ALL) -> Look:
        """Keys with a value from `start` up to `end`, exclusive."""
        rows = self._store.ask(_RANGE, (start, end, limit))
        found = tuple(Entry(key, from_stored(value), revision) for _, key, revision, value in rows if key is not None)
        return Look(rows[0][0], found)

    def prefix(self, prefix: str) -> Look:
        return self.range(prefix, prefix + LAST)

    def newest(self, prefix: str, before: int, limit: int) -> list[tuple[str, int]]:
        """(key, revision) of the keys with a prefix that changed last before a revision, the newest first."""
        return [(key, revision) for key, revision in self._store.ask(_NEWEST, (prefix, prefix + LAST, before, limit))]

    def changes(self, after: int, start: str, end: str, limit: int = MAX_BATCHES) -> Changes:
        """Changes of keys of a range after a revision, the oldest first. Raises `CompactedRevision`."""
        place = (after, start, end)
        rows = self._store.ask(_CHANGES, (*place, *place, limit))
        head, compacted = rows[0][0], rows[0][1]
        if after < compacted:
            raise CompactedRevision(revision=after, compacted=compacted)
        batches = tuple(
            Batch(revision, tuple(Entry(key, from_stored(value), revision) for _, _, _, key, value in changes))
            for revision, changes in groupby(rows, key=itemgetter(2))
            if revision is not None
        )
        return Changes(batches[-1].revision if len(batches) >= limit else max(head, after), batches)

    def compacted(self) -> int:
        """The revision up to which changes are compacted; 0 for none."""
        return int(self._store.ask(f"SELECT coalesce(max(revision), 0) FROM {PREFIX}meta_compactions")[0][0])
