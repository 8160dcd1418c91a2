"""The view of a transaction: rows loaded by key in bulk, changed in memory, written in bulk where they changed.

It lets the same transition function serve commands, rebuild and tests. Set-based SQL was measured, whose plans flip, and an ORM,
which is five to fifteen times slower. Wants and the meta storage are here; `work` has the other subjects.
"""

from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any

from databuild_dagster.model.meta_storage import LAST, Entry
from databuild_dagster.model.rows import WantRow
from databuild_dagster.model.states import WantState
from databuild_dagster.model.view import Openness
from databuild_dagster.store.backends.base import Connection, Keys
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.log import BEFORE_ALL, Head, Mark
from databuild_dagster.store.work import builds
from databuild_dagster.store.work.builds import DelegationWork, TaintWork
from databuild_dagster.store.work.row_sets import Lookup, Rows, Shape, Tables

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
    """The meta storage."""

    #: The keys that were loaded; None for a key that never was.
    _entries: dict[str, Entry | None]
    #: Keys to write, with true for a new key; and all their changes.
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


WANTS = Shape(WantRow, "want_id", WantState)
_WANTS_OF_REQUESTS = Lookup(WANTS.select, "request_id")
_WANTS_HOLDING = {
    openness: Lookup(f"SELECT ref_id, want_id FROM {PREFIX}holds WHERE open = {int(openness)} AND", "ref_id")
    for openness in Openness
}
_WANTS_HOLDING_ONE = {
    openness: Lookup(
        f"SELECT x.ref_id, x.want_id, {WANTS.columns} FROM {PREFIX}holds x JOIN {PREFIX}wants w "
        f"ON w.id = x.want_id WHERE x.open = {int(openness)} AND",
        "x.ref_id",
    )
    for openness in Openness
}
#: Most successful wants have expired, so the query leaves expired wants out, and a kept want does not open again (rule 6.14).
_WANTS_TO_REOPEN = Lookup(
    f"SELECT x.ref_id, x.want_id, {WANTS.columns} FROM {PREFIX}holds x JOIN {PREFIX}wants w ON w.id = x.want_id "
    f"WHERE x.open = {int(Openness.SUCCESSFUL)} AND w.keeping IS NULL AND w.expires_at > ? AND",
    "x.ref_id",
)
_REFS_OF_WANTS = Lookup(f"SELECT want_id, ref_id FROM {PREFIX}want_refs WHERE", "want_id")
_KEPT = Lookup(WANTS.select, "keeping")
_KEPT_FOR = Lookup(f"SELECT keeping, want_id FROM {PREFIX}kept_for WHERE", "keeping")
_KEEPINGS_FOR = Lookup(f"SELECT keeping, want_id FROM {PREFIX}kept_for WHERE", "want_id")
_KEEP_FOR = f"INSERT INTO {PREFIX}kept_for (keeping, want_id) VALUES (?, ?)"
_LINK_WANT = f"INSERT INTO {PREFIX}want_refs (want_id, ref_id) VALUES (?, ?)"
_ADD_HOLD = f"INSERT INTO {PREFIX}holds (ref_id, open, want_id) VALUES (?, {int(Openness.OPEN)}, ?)"
_TURN_HOLD = f"UPDATE {PREFIX}holds SET open = ? WHERE ref_id = ? AND open = ? AND want_id = ?"

LINKS = (_LINK_WANT, _ADD_HOLD, _KEEP_FOR)


class WantWork(Tables):
    """Wants, and which refs they hold."""

    _wants = Rows(WANTS)
    #: Wants whose holds changed, in order.
    _turned: list[tuple[int, Openness]]
    #: The refs of wants that were loaded.
    _seen_links: dict[int, Collection[int]]

    def wants(self, want_ids: Iterable[str]) -> dict[str, WantRow]:
        return self._wants.keys(want_ids)

    def wants_by_id(self, ids: Iterable[int]) -> dict[int, WantRow]:
        return self._wants.ids(ids)

    def wants_of_requests(self, request_ids: Iterable[str]) -> list[WantRow]:
        return self._wants_by(_WANTS_OF_REQUESTS, list(request_ids))

    def wants_kept(self, keepings: Iterable[int]) -> list[WantRow]:
        return self._wants_by(_KEPT, list(keepings))

    def _wants_by(self, lookup: Lookup, keys: list[Any]) -> list[WantRow]:
        if not keys:
            return []
        self._wants.flush()
        return sorted(map(self._wants.take, lookup.ask(self.connection, keys)), key=attrgetter("id"))

    def kept_for(self, keepings: Iterable[int]) -> list[tuple[int, int]]:
        return self._pairs(_KEPT_FOR, keepings)

    def keepings_for(self, want_ids: Iterable[int]) -> list[tuple[int, int]]:
        return self._pairs(_KEEPINGS_FOR, want_ids)

    def keep_for(self, keeping: int, want_ids: Iterable[int]) -> None:
        self._link(_KEEP_FOR, [(keeping, want_id) for want_id in want_ids])

    def wants_holding(self, ref_ids: Iterable[int], openness: Openness) -> list[tuple[int, WantRow]]:
        ids = list(ref_ids)
        if len(ids) == 1 and not self._wants.by_id:
            # The wants are part of the answer: one statement less in each command on one ref.
            return self._taken(self._linked(_WANTS_HOLDING_ONE[openness], ids))
        return self._with_wants(self._pairs(_WANTS_HOLDING[openness], ids))

    def wants_to_reopen(self, ref_ids: Iterable[int], at: float) -> list[tuple[int, WantRow]]:
        self._wants.flush()
        return self._taken(self._linked(_WANTS_TO_REOPEN, ref_ids, at))

    def _taken(self, answer: Iterable[Any]) -> list[tuple[int, WantRow]]:
        """Of (ref, want, the columns of the want)."""
        found = sorted(answer)
        for values in found:
            self._wants.take(values[2:])
        return self._with_wants([values[:2] for values in found])

    def _with_wants(self, pairs: list[tuple[int, int]]) -> list[tuple[int, WantRow]]:
        wants = self._wants.ids(dict.fromkeys(want_id for _, want_id in pairs))
        for ref_id, want_id in pairs:
            self._meet_link(wants[want_id], ref_id)
        return [(ref_id, wants[want_id]) for ref_id, want_id in pairs]

    def _meet_link(self, want: WantRow, ref_id: int) -> None:
        if want.n_refs == 1:
            # A tuple for the common case: a hundred thousand sets would slow the garbage collector.
            self._seen_links[want.id] = (ref_id,)
        else:
            seen = self._seen_links.setdefault(want.id, set())
            assert isinstance(seen, set)
            seen.add(ref_id)

    def refs_of_wants(self, want_ids: Iterable[int]) -> list[tuple[int, int]]:
        links = self._links_of(want_ids)
        return sorted((want_id, ref_id) for want_id, refs in links for ref_id in refs)

    def _links_of(self, want_ids: Iterable[int]) -> list[tuple[int, Collection[int]]]:
        """The refs of a want never change, so a want with all of them loaded needs no query."""
        seen, wants = self._seen_links, self._wants.ids(want_ids)
        unknown = [want.id for want in wants.values() if len(seen.get(want.id, ())) < want.n_refs]
        for want_id, ref_id in self._pairs(_REFS_OF_WANTS, unknown):
            self._meet_link(wants[want_id], ref_id)
        return [(want_id, seen[want_id]) for want_id in wants]

    def link_want(self, want_id: int, ref_ids: Iterable[int]) -> None:
        refs = self._seen_links[want_id] = set(ref_ids)
        self._link(_LINK_WANT, [(want_id, ref_id) for ref_id in refs])
        self._link(_ADD_HOLD, [(ref_id, want_id) for ref_id in refs])

    def set_openness(self, want_id: int, openness: Openness) -> None:
        self._turned.append((want_id, openness))
        # An empty list, by which a lookup that follows writes the links first.
        self._links.setdefault(_TURN_HOLD, [])

    def _flush_links(self) -> None:
        super()._flush_links()
        turned, self._turned = self._turned, []
        if turned:
            self.connection.executemany(_TURN_HOLD, self._turns(turned))

    def _turns(self, turned: list[tuple[int, Openness]]) -> Iterator[tuple[int, int, int, int]]:
        """An open want ends; a want that opens again was successful (rule 5.3)."""
        refs = dict(self._links_of(want_id for want_id, _ in turned))
        for want_id, openness in turned:
            before = Openness.SUCCESSFUL if openness is Openness.OPEN else Openness.OPEN
            for ref_id in refs[want_id]:
                yield int(openness), ref_id, int(before), want_id


class UnitOfWork(WantWork, TaintWork, DelegationWork, MetaWork):
    """`model.view.View` over a connection, inside a transaction."""

    unsettled: set[int]
    failed_upstream: list[WantRow]
    LINK_ORDER = (*LINKS, *builds.LINKS, *builds.TAINT_LINKS, *builds.DELEGATION_LINKS)

    def __init__(self, connection: Connection, head: Head = BEFORE_ALL) -> None:
        #: The log's end when the transaction began.
        self.head = head
        # One for all subjects, because a chain of seven takes 2 µs more of every command.
        self.connection = connection
        self.seq = 0
        #: The last event that the transaction appended.
        self.appended: Mark | None = None
        self._numbered, self._number, self._place = -1, -1, (0, 0)
        self.unsettled, self.failed_upstream = set(), []
        self._row_sets = []
        self._links, self._moves, self._turned, self._changes = {}, [], [], []
        self._outputs, self._seen_links, self._outcomes = {}, {}, {}
        self._entries, self._entries_written = {}, {}

    def flush(self) -> None:
        """Write the changed rows. `due` is computed here, so that no transition can forget it."""
        for ref in self._refs.by_id.values():
            ref.due = 1 if ref.n_open_wants and ref.schedulable else 0
        for rows in self._row_sets:
            if rows.stored:
                rows.flush()
        if self._links:
            self._flush_links()
        if self._changes:
            self._flush_meta()
        self._flush_moves()
