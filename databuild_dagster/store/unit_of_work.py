"""The view of one transaction: rows loaded by key in bulk, changed in memory, written in bulk where they changed.

One transition function serves commands, rebuild and tests because of this file; it was measured against set-based
SQL, whose plans flip, and against an ORM, which is five to fifteen times slower. Whatever is looked up by anything
but a row's own key is written first, so that a lookup always sees what this transaction did.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum, StrEnum
from itertools import compress
from operator import attrgetter, itemgetter, ne
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import astuple

from databuild_dagster.model.coordination import Answer, DelegationOutcome
from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.meta_storage import LAST, Entry
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.rows import (
    ArcRow,
    DatasetRow,
    DelegationRow,
    InstanceRow,
    JobRunRow,
    LaunchRow,
    RefRow,
    Row,
    TaintRow,
    WantRow,
)
from databuild_dagster.model.states import InstanceState, JobRunState, WantState
from databuild_dagster.model.view import Openness
from databuild_dagster.store.backends.base import Connection, Keys
from databuild_dagster.store.schema import PREFIX

K = TypeVar("K")
R = TypeVar("R", bound=Row)

#: Rows that one event may make: a million. Leaves 43 bits for the seq.
ROWS_PER_EVENT_BITS = 20

_list_decoder = msgspec.json.Decoder(list[str])


def _first_id(seq: int) -> int:
    return seq << ROWS_PER_EVENT_BITS


def _end_of_event(row_id: int) -> int:
    """Above every id that is born of the same event."""
    return _first_id((row_id >> ROWS_PER_EVENT_BITS) + 1)


class _Lookup:
    """A question by key: one key by equality, many by a list that is one parameter; two statements in all."""

    def __init__(self, select: str, column: str) -> None:
        self.one = f"{select} {column} = ?"
        self.many = f"{select} {column} IN (SELECT value FROM json_each(?))"

    def ask(self, connection: Connection, keys: list[Any], *before: Any) -> Iterable[Any]:
        """`before` stands for the marks in front of the keys'."""
        if len(keys) == 1:
            return connection.execute(self.one, (*before, keys[0]))
        return connection.execute(self.many, (*before, Keys(keys)))


class _Shape(Generic[R]):
    """How one class of rows is read and written; made once."""

    def __init__(self, cls: type[R], key: str, states: type[Enum] | None = None) -> None:
        self.cls = cls
        self.names: tuple[str, ...] = cls.__struct_fields__
        self.key = key
        self.key_at = self.names.index(key)
        self.table = PREFIX + cls.TABLE
        #: Its columns under a letter for the table, for statements that join.
        self.columns = ", ".join(f"{cls.TABLE[0]}.{name}" for name in self.names)
        self.select = f"SELECT {', '.join(self.names)} FROM {self.table} WHERE"
        self.by_id = _Lookup(self.select, "id")
        self.by_key = _Lookup(self.select, key)
        self.states = {state.value: state for state in states or ()}
        self.state_at = self.names.index("state") if states else -1
        #: What a row that is not written yet is compared with.
        self.unborn = (None,) * len(self.names)
        #: By what is written, whether the row is new and which of its columns: the statement, and what picks its values.
        self._writes: dict[tuple[bool, bytes], tuple[str, Callable[[tuple[Any, ...]], tuple[Any, ...]]]] = {}

    def row(self, values: tuple[Any, ...]) -> R:
        row = self.cls(*values)
        if self.states and (state := values[self.state_at]) is not None:
            row.state = self.states[state]  # type: ignore[union-attr]
        return row

    def write(self, new: bool, changed: bytes) -> tuple[str, Callable[[tuple[Any, ...]], tuple[Any, ...]]]:
        """What writes some columns, a byte each. Few sets of columns change together, so they are few."""
        found = self._writes.get((new, changed))
        if found is None:
            names = list(compress(self.names, changed))
            places = list(compress(range(len(changed)), changed))
            if new:
                marks = ", ".join("?" * len(names))
                statement = f"INSERT INTO {self.table} ({', '.join(names)}) VALUES ({marks})"
            else:
                assignments = ", ".join(f"{name} = ?" for name in names)
                statement = f"UPDATE {self.table} SET {assignments} WHERE id = ?"
                places.append(0)
            found = self._writes[new, changed] = statement, itemgetter(*places)
        return found


_DATASETS = _Shape(DatasetRow, "asset")
_REFS = _Shape(RefRow, "ref", InstanceState)
_INSTANCES = _Shape(InstanceRow, "uuid", InstanceState)
_JOB_RUNS = _Shape(JobRunRow, "job_run_id", JobRunState)
_LAUNCHES = _Shape(LaunchRow, "launch_id")
_WANTS = _Shape(WantRow, "want_id", WantState)
_TAINTS = _Shape(TaintRow, "taint_id")
_ARCS = _Shape(ArcRow, "asset")


class _Rows(Generic[R]):
    """The rows of one class seen in this unit of work: the same object for the same key, every time."""

    def __init__(self, connection: Connection, shape: _Shape[R]) -> None:
        self.shape = shape
        self.connection = connection
        self.by_id: dict[int, R] = {}
        self.by_key: dict[str, R] = {}
        #: What was asked for in vain: only this transaction writes, so nobody else can have made it since.
        self.absent: set[Any] = set()
        #: The columns of each row as the database has them.
        self.stored: dict[int, tuple[Any, ...]] = {}

    def take(self, values: tuple[Any, ...]) -> R:
        """The row behind a database's row: as this unit of work has it, if it was met before."""
        row = self.by_id.get(values[0])
        if row is None:
            shape = self.shape
            row = self.by_id[values[0]] = self.by_key[values[shape.key_at]] = shape.row(values)
            self.stored[values[0]] = values
        return row

    def fetch(self, condition: str, *parameters: Any) -> list[R]:
        found = self.connection.execute(f"{self.shape.select} {condition}", parameters)
        return [self.take(values) for values in found]

    def ids(self, ids: Iterable[int]) -> dict[int, R]:
        return self._known(ids, self.by_id, self.shape.by_id)

    def keys(self, keys: Iterable[str]) -> dict[str, R]:
        return self._known(keys, self.by_key, self.shape.by_key)

    def _known(self, keys: Iterable[K], known: dict[K, R], lookup: _Lookup) -> dict[K, R]:
        """In the order of the keys, whatever was known before, so that a rebuild meets them in the same order."""
        found: dict[K, R] = {}
        unknown: dict[K, None] = {}
        for key in keys:
            if (row := known.get(key)) is None and key not in self.absent:
                unknown[key] = None
            found[key] = row  # type: ignore[assignment]  # None keeps its place, and is gone below
        if unknown:
            for values in lookup.ask(self.connection, list(unknown)):
                self.take(values)
            self.absent.update(key for key in unknown if key not in known)
        if unknown or self.absent:
            found = {key: row for key in found if (row := known.get(key)) is not None}
        return found

    def add(self, row: R) -> None:
        self.by_id[row.id] = row
        self.by_key[getattr(row, self.shape.key)] = row
        self.stored[row.id] = self.shape.unborn

    def flush(self) -> None:
        """Write what differs from what is stored, so that no index over anything else is touched."""
        shape, by_id, stored = self.shape, self.by_id, self.stored
        unborn = shape.unborn
        alike: dict[tuple[bool, bytes], list[tuple[Any, ...]]] = {}
        for row_id, before in stored.items():
            after = astuple(by_id[row_id])
            if after == before:
                continue
            how = (before is unborn, bytes(map(ne, after, before)))
            if how in alike:
                alike[how].append(after)
            else:
                alike[how] = [after]
            stored[row_id] = after
        for how, rows in alike.items():
            statement, pick = shape.write(*how)
            self.connection.executemany(statement, map(pick, rows))


class UnitOfWork:
    """`model.view.View` over one connection inside one transaction."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.unsettled: set[int] = set()
        self._datasets = _Rows(connection, _DATASETS)
        self._refs = _Rows(connection, _REFS)
        self._instances = _Rows(connection, _INSTANCES)
        self._job_runs = _Rows(connection, _JOB_RUNS)
        self._launches = _Rows(connection, _LAUNCHES)
        self._wants = _Rows(connection, _WANTS)
        self._taints = _Rows(connection, _TAINTS)
        self._arcs = _Rows(connection, _ARCS)
        self._rows: dict[type[Row], _Rows[Any]] = {
            DatasetRow: self._datasets,
            RefRow: self._refs,
            InstanceRow: self._instances,
            JobRunRow: self._job_runs,
            LaunchRow: self._launches,
            WantRow: self._wants,
            TaintRow: self._taints,
            ArcRow: self._arcs,
        }
        self._outputs: dict[int, list[InstanceRow]] = {}
        self.seq = 0
        self._numbered, self._number = -1, -1
        self._moves: list[tuple[str, int, int, int, str | None, str]] = []
        self._place = (0, 0)
        #: Links to write, by statement.
        self._links: dict[str, list[tuple[Any, ...]]] = {}
        #: Wants whose hold on their refs turned, in order.
        self._turned: list[tuple[int, Openness]] = []
        #: How the delegations of (requester, ref) stand, as far as they were met; None where there is none.
        self._outcomes: dict[tuple[str, int], str | None] = {}
        #: Keys of the meta storage, as far as they were met; None for those that never were.
        self._entries: dict[str, Entry | None] = {}
        #: Of these, what is not written yet, and whether it is new; and every change of it.
        self._entries_written: dict[str, bool] = {}
        self._changes: list[tuple[int, str, str | None]] = []
        #: Refs of wants, as far as they were met.
        self._seen_links: dict[int, Collection[int]] = {}

    # Datasets

    def datasets(self, assets: Iterable[str]) -> dict[str, DatasetRow]:
        return self._datasets.keys(assets)

    def datasets_of_location(self, location: str) -> list[DatasetRow]:
        self._datasets.flush()
        return self._datasets.fetch("location = ? ORDER BY id", location)

    def asset_names(self) -> list[str]:
        return [name for (name,) in self.connection.execute(f"SELECT asset FROM {PREFIX}datasets WHERE removed = 0")]

    # Arcs

    def arcs(self, assets: Iterable[str]) -> dict[str, ArcRow]:
        return self._arcs.keys(assets)

    def arcs_in_force(self) -> list[ArcRow]:
        self._arcs.flush()
        return self._arcs.fetch("removed = 0 ORDER BY id")

    def add_firings(self, firings: Iterable[tuple[int, int, int]]) -> None:
        self._link(_ADD_FIRING, firings)

    # Refs

    def refs(self, texts: Iterable[str]) -> dict[str, RefRow]:
        return self._refs.keys(texts)

    def ensure_refs(self, texts: Iterable[str]) -> dict[str, RefRow]:
        wanted = list(dict.fromkeys(texts))
        rows = self._refs.keys(wanted)
        if len(rows) == len(wanted):
            return rows
        fresh = [text for text in wanted if text not in rows]
        datasets = self._datasets.keys(asset_of(text) for text in fresh)
        for text in fresh:
            dataset = datasets.get(asset_of(text))
            if dataset is None:
                raise IllegalMove(
                    seq=0, entity=text, state="-", on="first mention", why="its dataset is not registered"
                )
            row = RefRow(id=self.next_id(), ref=text, dataset_id=dataset.id)
            self._refs.add(row)
            rows[text] = row
        return rows

    def refs_by_id(self, ids: Iterable[int]) -> dict[int, RefRow]:
        return self._refs.ids(ids)

    def ref_by_id(self, ref_id: int) -> RefRow:
        return self._refs.by_id.get(ref_id) or self._refs.ids([ref_id])[ref_id]

    # Instances

    def instances_by_id(self, ids: Iterable[int]) -> dict[int, InstanceRow]:
        return self._instances.ids(ids)

    def instances_by_uuid(self, uuids: Iterable[str]) -> dict[str, InstanceRow]:
        return self._instances.keys(uuids)

    def instances_of_job_runs(self, job_run_ids: Iterable[int]) -> list[InstanceRow]:
        """Numbered right behind their job run, so they are found without an index. Remembered: decide and evolve both ask."""
        ids = list(job_run_ids)
        if unknown := [i for i in ids if i not in self._outputs]:
            self._meet_outputs(unknown)
        return [instance for i in ids for instance in self._outputs[i]]

    def _meet_outputs(self, job_run_ids: list[int]) -> None:
        """With their refs, which whoever asks for outputs looks at next."""
        known = self._instances.by_id
        numbers = {
            job_run.id + 1 + place: job_run.id
            for job_run in self.job_runs_by_id(job_run_ids).values()
            for place in range(len(_list_decoder.decode(job_run.refs)))
        }
        if unknown := [number for number in numbers if number not in known]:
            width = len(_INSTANCES.names)
            for values in _OUTPUTS.ask(self.connection, unknown):
                self._instances.take(values[:width])
                self._refs.take(values[width:])
        self._outputs.update((job_run_id, []) for job_run_id in job_run_ids)
        for number, job_run_id in numbers.items():
            instance = known.get(number)
            if instance is not None and instance.job_run_id == job_run_id:
                self._outputs[job_run_id].append(instance)

    # Job runs and launches

    def job_runs(self, job_run_ids: Iterable[str]) -> dict[str, JobRunRow]:
        return self._job_runs.keys(job_run_ids)

    def job_runs_by_id(self, ids: Iterable[int]) -> dict[int, JobRunRow]:
        return self._job_runs.ids(ids)

    def job_runs_of_launches(self, launch_ids: Iterable[int]) -> list[JobRunRow]:
        """Born of the same event as their launch, so found by the range of its ids."""
        rows = self._job_runs
        rows.flush()
        return [
            row
            for launch_id in launch_ids
            for row in rows.fetch("id > ? AND id < ? ORDER BY id", launch_id, _end_of_event(launch_id))
            if row.launch_id == launch_id
        ]

    def launches(self, launch_ids: Iterable[str]) -> dict[str, LaunchRow]:
        return self._launches.keys(launch_ids)

    def ids_taken(self, launch_id: str | None, job_run_ids: Iterable[str]) -> set[str]:
        self._launches.flush()
        self._job_runs.flush()
        return {name for (name,) in _IDS_TAKEN.ask(self.connection, list(job_run_ids), launch_id)}

    # Wants

    def wants(self, want_ids: Iterable[str]) -> dict[str, WantRow]:
        return self._wants.keys(want_ids)

    def wants_of_requests(self, request_ids: Iterable[str]) -> list[WantRow]:
        ids = list(request_ids)
        if not ids:
            return []
        self._wants.flush()
        found = [self._wants.take(values) for values in _WANTS_OF_REQUESTS.ask(self.connection, ids)]
        return sorted(found, key=attrgetter("id"))

    def wants_holding(self, ref_ids: Iterable[int], openness: Openness) -> list[tuple[int, WantRow]]:
        ids = list(ref_ids)
        if len(ids) == 1 and not self._wants.by_id:
            # The wants come with the answer: one statement less in each command on one ref.
            found = sorted(self._linked(_WANTS_HOLDING_ONE[openness], ids))
            for values in found:
                self._wants.take(values[2:])
            return self._with_wants([values[:2] for values in found])
        return self._with_wants(self._pairs(_WANTS_HOLDING[openness], ids))

    def wants_to_reopen(self, ref_ids: Iterable[int], at: float) -> list[tuple[int, WantRow]]:
        self._wants.flush()
        found = sorted(self._linked(_WANTS_TO_REOPEN, ref_ids, at))
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
            # Mostly so; and a hundred thousand sets are a lot to look through for the garbage collector.
            self._seen_links[want.id] = (ref_id,)
        else:
            seen = self._seen_links.setdefault(want.id, set())
            assert isinstance(seen, set)
            seen.add(ref_id)

    def refs_of_wants(self, want_ids: Iterable[int]) -> list[tuple[int, int]]:
        links = self._links_of(want_ids)
        return sorted((want_id, ref_id) for want_id, refs in links for ref_id in refs)

    def _links_of(self, want_ids: Iterable[int]) -> list[tuple[int, Collection[int]]]:
        """A want keeps its refs for ever, so one of which all have been met is not asked for: mostly it has but one."""
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

    # Waiting

    def waiters(self, ref_ids: Iterable[int]) -> list[tuple[int, int]]:
        """Refs know how many wait for them: mostly nobody, and then there is nothing to ask."""
        return self._pairs(_WAITERS, [ref.id for ref in self._refs.ids(ref_ids).values() if ref.n_waiters])

    def missing_of(self, instance_ids: Iterable[int]) -> list[tuple[int, int]]:
        return self._pairs(_MISSING_OF, instance_ids)

    def add_missing(self, instance_id: int, ref_ids: Iterable[int]) -> None:
        missing = self._refs.ids(ref_ids)
        for ref in missing.values():
            ref.n_waiters += 1
        self._link(_ADD_MISSING, [(instance_id, ref_id) for ref_id in missing])

    def end_waiting(self, instance_id: int) -> None:
        for ref in self._refs.ids(ref_id for _, ref_id in self.missing_of([instance_id])).values():
            ref.n_waiters -= 1
        self._link(_END_WAITING, [(0, instance_id)])

    # Taints and lineage

    def taints(self, taint_ids: Iterable[str]) -> dict[str, TaintRow]:
        return self._taints.keys(taint_ids)

    def taints_by_id(self, ids: Iterable[int]) -> dict[int, TaintRow]:
        return self._taints.ids(ids)

    def instances_of_taint(self, taint_id: int) -> list[int]:
        return [instance_id for _, instance_id in self._pairs(_INSTANCES_OF_TAINT, [taint_id])]

    def taints_of_instances(self, instance_ids: Iterable[int]) -> list[tuple[int, int]]:
        return self._pairs(_TAINTS_OF_INSTANCE, instance_ids)

    def cancel_taint_links(self, pairs: Iterable[tuple[int, int]], at: float) -> None:
        """Of (instance, taint) pairs."""
        self._link(_CANCEL_TAINT, [(at, taint_id, instance_id) for instance_id, taint_id in pairs])

    def instances_built_from(self, instance_ids: Iterable[int]) -> list[int]:
        return sorted({instance_id for _, instance_id in self._linked(_BUILT_FROM, instance_ids)})

    def instances_same_as(self, instance_ids: Iterable[int]) -> list[int]:
        self.flush()
        return sorted(found for (found,) in self.connection.execute(_SAME_AS, (Keys(instance_ids),)))

    def inputs_of(self, instance_ids: Iterable[int]) -> list[int]:
        return sorted({input_id for _, input_id in self._linked(_INPUTS_OF, instance_ids)})

    def pointings(self, ref_ids: Iterable[int]) -> list[tuple[int, int, int]]:
        self.flush()
        refs = Keys(ref_ids)
        return sorted(self.connection.execute(POINTINGS, (refs, refs)), key=itemgetter(0, 1))

    def moved_by(self, instance_ids: Iterable[int]) -> dict[int, int]:
        self.flush()
        return dict(self.connection.execute(_MOVED_BY, (Keys(instance_ids),)))

    def building_since(self) -> int | None:
        self.flush()
        ((oldest,),) = self.connection.execute(OLDEST_OPEN)
        return None if oldest is None else int(oldest) >> ROWS_PER_EVENT_BITS

    def add_revert(self, ref_id: int, seq: int, instance_id: int) -> None:
        self._link(_ADD_REVERT, [(ref_id, seq, instance_id)])

    def add_taint_links(self, taint_id: int, instance_ids: Iterable[int]) -> None:
        self._link(_ADD_TAINT, ((taint_id, instance_id) for instance_id in instance_ids))

    def add_inputs(self, instance_id: int, inputs: Iterable[tuple[int, int]]) -> None:
        self._link(_ADD_INPUT, ((instance_id, ref_id, input_id) for ref_id, input_id in inputs))

    # Delegations

    def meet_delegations(self, asked: Mapping[str, Iterable[int]]) -> None:
        known = self._outcomes
        pairs = [(who, ref_id) for who, ref_ids in asked.items() for ref_id in ref_ids if (who, ref_id) not in known]
        if not pairs:
            return
        known.update(dict.fromkeys(pairs))
        requesters, refs = Keys({who for who, _ in pairs}), Keys({ref_id for _, ref_id in pairs})
        for who, ref_id, outcome in self.connection.execute(_DELEGATIONS, (requesters, refs)):
            known[who, ref_id] = outcome

    def delegations(self, requester: str, ref_ids: Iterable[int]) -> dict[int, str]:
        wanted = list(ref_ids)
        self.meet_delegations({requester: wanted})
        known = self._outcomes
        return {ref_id: outcome for ref_id in wanted if (outcome := known[requester, ref_id]) is not None}

    def waiting_delegations(self, ref_ids: Iterable[int]) -> list[tuple[int, str]]:
        """Refs know how many wait: mostly nobody, and then there is nothing to ask."""
        return sorted(self._linked(_WAITING_FOR, [ref.id for ref in self._refs.ids(ref_ids).values() if ref.n_joined]))

    def waiting_delegations_of(self, requester: str) -> list[int]:
        self._flush_links()
        found = self.connection.execute(_WAITING_OF, (requester, DelegationOutcome.WAITING.value))
        return sorted(ref_id for (ref_id,) in found)

    def put_delegations(self, rows: Iterable[DelegationRow]) -> None:
        """One that ended earlier in this transaction is put anew, so the end is written first."""
        if _END_DELEGATION in self._links:
            self._flush_links()
        put = list(rows)
        self._outcomes.update({(row.requester, row.ref_id): row.outcome for row in put})
        self._link(_PUT_DELEGATION, put)

    def take_delegations(self, pairs: Iterable[tuple[str, int]]) -> None:
        self._link(_TAKE_DELEGATION, pairs)

    def end_delegations(self, ends: Iterable[tuple[str, int | None, float, str, str, int]]) -> None:
        ended = list(ends)
        self._outcomes.update({(who, ref_id): outcome for outcome, _, _, _, who, ref_id in ended})
        self._link(_END_DELEGATION, ended)

    # Meta storage

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
        """By whole statements: there may be very many."""
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

    # Writing

    def next_id(self) -> int:
        """Made of the event's seq and a number within it: needs no look at the table, and a rebuild gives the same."""
        if self._numbered != self.seq:
            self._numbered, self._number = self.seq, -1
        self._number += 1
        if self._number >> ROWS_PER_EVENT_BITS:
            raise IllegalMove(
                seq=self.seq,
                entity="log",
                state="-",
                on="new row",
                why=f"one event makes more than {1 << ROWS_PER_EVENT_BITS:,} rows",
            )
        return _first_id(self.seq) | self._number

    def add(self, row: Row) -> None:
        self._rows[type(row)].add(row)

    @property
    def n_moves(self) -> int:
        """How many moves are not written yet."""
        return len(self._moves)

    @property
    def moves(self) -> list[tuple[str, int, str | None, str]]:
        """The moves that are not written yet, in order: (table, row id, from, to)."""
        return [(kind, entity_id, before, after) for kind, entity_id, _, _, before, after in self._moves]

    def record_move(self, kind: str, entity_id: int, seq: int, from_state: StrEnum | None, to_state: StrEnum) -> None:
        last_seq, place = self._place
        place = place + 1 if last_seq == seq else 0
        self._place = (seq, place)
        # As plain texts, which nobody has to adapt, nor the garbage collector to look at.
        before = None if from_state is None else from_state._value_
        self._moves.append((kind, entity_id, seq, place, before, to_state._value_))

    def _link(self, statement: str, links: Iterable[tuple[Any, ...]]) -> None:
        """In order of writing: a want that is linked and ended by one event is linked first."""
        self._links.setdefault(statement, []).extend(links)

    def _linked(self, lookup: _Lookup, keys: Iterable[int], *before: Any) -> Iterable[Any]:
        wanted = list(keys)
        if not wanted:
            return ()
        if self._links or self._turned:
            self._flush_links()
        return lookup.ask(self.connection, wanted, *before)

    def _pairs(self, lookup: _Lookup, keys: Iterable[int], *before: Any) -> list[tuple[int, int]]:
        """Sorted, so that a rebuild meets them in the same order whatever plan the database chooses."""
        return sorted(self._linked(lookup, keys, *before))

    def _flush_links(self) -> None:
        links, self._links = self._links, {}
        turned, self._turned = self._turned, []
        for statement in _LINK_ORDER:
            if rows := links.get(statement):
                self.connection.executemany(statement, rows)
        if turned:
            self.connection.executemany(_TURN_HOLD, self._turns(turned))

    def _turns(self, turned: list[tuple[int, Openness]]) -> Iterator[tuple[int, int, int, int]]:
        """What was open ends, well or not; what is opened again had ended well (SPEC 5.3)."""
        refs = dict(self._links_of(want_id for want_id, _ in turned))
        for want_id, openness in turned:
            before = Openness.SUCCESSFUL if openness is Openness.OPEN else Openness.OPEN
            for ref_id in refs[want_id]:
                yield int(openness), ref_id, int(before), want_id

    def flush(self) -> None:
        """Write what changed. What is due is derived here, so that no transition can forget it."""
        for ref in self._refs.by_id.values():
            ref.due = 1 if ref.n_open_wants and ref.schedulable else 0
        for rows in self._rows.values():
            if rows.stored:
                rows.flush()
        if self._links or self._turned:
            self._flush_links()
        if self._changes:
            self._flush_meta()
        if self._moves:
            self.connection.executemany(_ADD_MOVE, self._moves)
            self._moves = []


def to_stored(value: bytes | None) -> str | None:
    """A value of the meta storage as its tables have it."""
    return None if value is None else b64encode(value).decode()


def from_stored(value: str | None) -> bytes | None:
    return None if value is None else b64decode(value, validate=True)


_META_ENTRIES = _Lookup(f"SELECT key, revision, value FROM {PREFIX}meta_entries WHERE", "key")
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

_IDS_TAKEN = _Lookup(
    f"SELECT launch_id FROM {PREFIX}launches WHERE launch_id = ? "
    f"UNION ALL SELECT job_run_id FROM {PREFIX}job_runs WHERE",
    "job_run_id",
)
_WANTS_OF_REQUESTS = _Lookup(_WANTS.select, "request_id")
_WANTS_HOLDING = {
    openness: _Lookup(f"SELECT ref_id, want_id FROM {PREFIX}holds WHERE open = {int(openness)} AND", "ref_id")
    for openness in Openness
}
_WANTS_HOLDING_ONE = {
    openness: _Lookup(
        f"SELECT x.ref_id, x.want_id, {_WANTS.columns} FROM {PREFIX}holds x JOIN {PREFIX}wants w "
        f"ON w.id = x.want_id WHERE x.open = {int(openness)} AND",
        "x.ref_id",
    )
    for openness in Openness
}
#: Among what is asked for here most has been over for long, so it is left out before it is read.
_WANTS_TO_REOPEN = _Lookup(
    f"SELECT x.ref_id, x.want_id, {_WANTS.columns} FROM {PREFIX}holds x JOIN {PREFIX}wants w ON w.id = x.want_id "
    f"WHERE x.open = {int(Openness.SUCCESSFUL)} AND w.expires_at > ? AND",
    "x.ref_id",
)
_OUTPUTS = _Lookup(
    f"SELECT {_INSTANCES.columns}, {_REFS.columns} FROM {PREFIX}instances i JOIN {PREFIX}refs r "
    "ON r.id = i.ref_id WHERE",
    "i.id",
)
_REFS_OF_WANTS = _Lookup(f"SELECT want_id, ref_id FROM {PREFIX}want_refs WHERE", "want_id")
_WAITERS = _Lookup(f"SELECT ref_id, instance_id FROM {PREFIX}missing WHERE active = 1 AND", "ref_id")
_MISSING_OF = _Lookup(f"SELECT instance_id, ref_id FROM {PREFIX}missing WHERE", "instance_id")
_INSTANCES_OF_TAINT = _Lookup(
    f"SELECT taint_id, instance_id FROM {PREFIX}taint_instances WHERE canceled_at IS NULL AND", "taint_id"
)
_TAINTS_OF_INSTANCE = _Lookup(
    f"SELECT instance_id, taint_id FROM {PREFIX}taint_instances WHERE canceled_at IS NULL AND", "instance_id"
)
_BUILT_FROM = _Lookup(f"SELECT input_id, instance_id FROM {PREFIX}instance_inputs WHERE", "input_id")
_INPUTS_OF = _Lookup(f"SELECT instance_id, input_id FROM {PREFIX}instance_inputs WHERE", "instance_id")

#: An instance is canonical from its creation on (SPEC 4.2), and its id begins with the seq of that.
POINTINGS = f"""
WITH RECURSIVE chain(ref_id, id) AS (
    SELECT r.id, r.last_id FROM {PREFIX}refs r
    WHERE r.last_id IS NOT NULL AND r.id IN (SELECT value FROM json_each(?))
    UNION ALL
    SELECT chain.ref_id, p.previous_id FROM chain JOIN {PREFIX}instances p ON p.id = chain.id
    WHERE p.previous_id IS NOT NULL
)
SELECT ref_id, id >> {ROWS_PER_EVENT_BITS}, id FROM chain
UNION ALL
SELECT ref_id, seq, instance_id FROM {PREFIX}reverts WHERE ref_id IN (SELECT value FROM json_each(?))"""
#: What was compacted names the first of its kind, however often it was compacted since.
_SAME_AS = f"""
WITH roots(id) AS (
    SELECT coalesce(same_as_id, id) FROM {PREFIX}instances WHERE id IN (SELECT value FROM json_each(?))
)
SELECT id FROM roots UNION SELECT i.id FROM roots JOIN {PREFIX}instances i ON i.same_as_id = roots.id"""
_MOVED_BY = (
    f"SELECT entity_id, max(seq) FROM {PREFIX}history WHERE kind = 'instances' "
    "AND entity_id IN (SELECT value FROM json_each(?)) GROUP BY entity_id"
)
#: A job run that has not ended holds the lease of each of its refs, and there is an index of what is being built.
OLDEST_OPEN = (
    f"SELECT min(i.job_run_id) FROM {PREFIX}refs r JOIN {PREFIX}instances i ON i.id = r.canonical_id "
    f"WHERE r.due = 0 AND r.state = '{InstanceState.BUILDING}'"
)

_LINK_WANT = f"INSERT INTO {PREFIX}want_refs (want_id, ref_id) VALUES (?, ?)"
_ADD_HOLD = f"INSERT INTO {PREFIX}holds (ref_id, open, want_id) VALUES (?, {int(Openness.OPEN)}, ?)"
_TURN_HOLD = f"UPDATE {PREFIX}holds SET open = ? WHERE ref_id = ? AND open = ? AND want_id = ?"
_ADD_MISSING = f"INSERT INTO {PREFIX}missing (instance_id, ref_id, active) VALUES (?, ?, 1)"
_END_WAITING = f"UPDATE {PREFIX}missing SET active = ? WHERE instance_id = ?"
_ADD_TAINT = f"INSERT INTO {PREFIX}taint_instances (taint_id, instance_id) VALUES (?, ?)"
_CANCEL_TAINT = f"UPDATE {PREFIX}taint_instances SET canceled_at = ? WHERE taint_id = ? AND instance_id = ?"
_ADD_REVERT = f"INSERT INTO {PREFIX}reverts (ref_id, seq, instance_id) VALUES (?, ?, ?)"
_ADD_INPUT = f"INSERT INTO {PREFIX}instance_inputs (instance_id, ref_id, input_id) VALUES (?, ?, ?)"
_ADD_FIRING = f"INSERT INTO {PREFIX}arc_firings (arc_id, instance_id, seq) VALUES (?, ?, ?)"
_ADD_MOVE = f"INSERT INTO {PREFIX}history (kind, entity_id, seq, place, from_state, to_state) VALUES (?, ?, ?, ?, ?, ?)"
_DELEGATION_COLUMNS = ", ".join(DelegationRow._fields)
_PUT_DELEGATION = (
    f"INSERT INTO {PREFIX}delegations ({_DELEGATION_COLUMNS}) VALUES ({', '.join('?' * len(DelegationRow._fields))}) "
    "ON CONFLICT (requester, ref_id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in DelegationRow._fields[2:])
)
_END_DELEGATION = (
    f"UPDATE {PREFIX}delegations SET outcome = ?, served_id = ?, ended_at = ?, reason = ? "
    "WHERE requester = ? AND ref_id = ?"
)
_TAKE_DELEGATION = f"UPDATE {PREFIX}delegations SET kind = '{Answer.BUILD.value}' WHERE requester = ? AND ref_id = ?"
_DELEGATIONS = (
    f"SELECT requester, ref_id, outcome FROM {PREFIX}delegations "
    "WHERE requester IN (SELECT value FROM json_each(?)) AND ref_id IN (SELECT value FROM json_each(?))"
)
_WAITING_FOR = _Lookup(
    f"SELECT ref_id, requester FROM {PREFIX}delegations WHERE outcome = '{DelegationOutcome.WAITING.value}' AND",
    "ref_id",
)
_WAITING_OF = f"SELECT ref_id FROM {PREFIX}delegations WHERE requester = ? AND outcome = ?"
_LINK_ORDER = (
    _LINK_WANT,
    _ADD_HOLD,
    _ADD_MISSING,
    _END_WAITING,
    _ADD_TAINT,
    _CANCEL_TAINT,
    _ADD_REVERT,
    _ADD_INPUT,
    _ADD_FIRING,
    _PUT_DELEGATION,
    _TAKE_DELEGATION,
    _END_DELEGATION,
)
