"""Keys of the meta storage in a unit of work, and the stored form of their values."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from databuild_dagster.model.meta_storage import LAST, Entry
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.work.row_sets import Lookup, Tables

_META_ENTRIES = Lookup(f"SELECT key, revision, value FROM {PREFIX}meta_entries WHERE", "key")
_META_UNDER = f"SELECT key, revision, value FROM {PREFIX}meta_entries WHERE key >= ? AND key < ? AND value IS NOT NULL ORDER BY key"
_ADD_ENTRY = f"INSERT INTO {PREFIX}meta_entries (revision, value, key) VALUES (?, ?, ?)"
_CHANGE_ENTRY = f"UPDATE {PREFIX}meta_entries SET revision = ?, value = ? WHERE key = ?"
_ADD_CHANGE = f"INSERT INTO {PREFIX}meta_changes (revision, key, value) VALUES (?, ?, ?)"
_CLEARED = "key >= ? AND key < ? AND value IS NOT NULL AND key NOT IN (SELECT value FROM json_each(?))"
_CLEAR_CHANGES = (
    f"INSERT INTO {PREFIX}meta_changes (revision, key, value) "
    f"SELECT CAST(? AS BIGINT), key, NULL FROM {PREFIX}meta_entries WHERE {_CLEARED}"
)
_CLEAR_ENTRIES = f"UPDATE {PREFIX}meta_entries SET revision = ?, value = NULL WHERE {_CLEARED}"
_META_COMPACTED = f"SELECT coalesce(max(revision), 0) FROM {PREFIX}meta_compactions"
_FORGET_CHANGES = f"DELETE FROM {PREFIX}meta_changes WHERE revision <= ?"
_FORGET_TOMBSTONES = f"DELETE FROM {PREFIX}meta_entries WHERE value IS NULL AND revision <= ?"
_ADD_COMPACTION = f"INSERT INTO {PREFIX}meta_compactions (seq, revision) VALUES (?, ?)"


def to_stored(value: bytes | None) -> str | None:
    """A value of the meta storage as its tables have it."""
    return None if value is None else b64encode(value).decode()


def from_stored(value: str | None) -> bytes | None:
    return None if value is None else b64decode(value, validate=True)


class MetaWork(Tables):
    """`model.view.Keyed`."""

    #: The keys that were loaded; None for a key that never was.
    _entries: dict[str, Entry | None]
    #: Keys to write, with true for a new one; and all their changes.
    _entries_written: dict[str, bool]
    _changes: list[tuple[int, str, str | None]]

    def meta_entries(self, keys: Iterable[str]) -> dict[str, Entry]:
        wanted, known = list(keys), self._entries
        if unknown := [key for key in dict.fromkeys(wanted) if key not in known]:
            known.update(dict.fromkeys(unknown))
            for key, revision, value in _META_ENTRIES.ask(self.connection, unknown):
                known[key] = Entry(key, from_stored(value), revision)
        return {key: entry for key in wanted if (entry := known[key]) is not None}

    def meta_under(self, prefix: str) -> list[Entry]:
        self._flush_meta()
        found = self.connection.execute(_META_UNDER, (prefix, prefix + LAST))
        return [Entry(key, from_stored(value), revision) for key, revision, value in found]

    def write_meta(self, writes: Mapping[str, bytes | None]) -> None:
        met = self.meta_entries(writes)
        for key, value in writes.items():
            self._entries_written.setdefault(key, key not in met)
            self._entries[key] = Entry(key, value, self.seq)
            self._changes.append((self.seq, key, to_stored(value)))

    def clear_meta(self, prefix: str, but: Iterable[str]) -> None:
        """By statements over the whole prefix, because it may have very many keys."""
        self._flush_meta()
        place = (prefix, prefix + LAST, Keys(but))
        self.connection.execute(_CLEAR_CHANGES, (self.seq, *place))
        self.connection.execute(_CLEAR_ENTRIES, (self.seq, *place))
        self._entries.clear()

    def meta_compacted(self) -> int:
        return int(self.connection.execute(_META_COMPACTED).fetchone()[0])

    def compact_meta(self, revision: int) -> None:
        self._flush_meta()
        self.connection.execute(_FORGET_CHANGES, (revision,))
        self.connection.execute(_FORGET_TOMBSTONES, (revision,))
        self.connection.execute(_ADD_COMPACTION, (self.seq, revision))
        self._entries.clear()

    def _flush_meta(self) -> None:
        written, self._entries_written = self._entries_written, {}
        changes, self._changes = self._changes, []
        new: list[tuple[Any, ...]] = []
        old: list[tuple[Any, ...]] = []
        for key, is_new in written.items():
            entry = self._entries[key]
            assert entry is not None, "it was written"
            (new if is_new else old).append((entry.revision, to_stored(entry.value), key))
        for statement, rows in ((_ADD_ENTRY, new), (_CHANGE_ENTRY, old), (_ADD_CHANGE, changes)):
            if rows:
                self.connection.executemany(statement, rows)
