"""The view of one transaction: rows loaded by key in bulk, changed in memory, written in bulk where they changed.

One transition function serves commands, rebuild and tests because of this file; it was measured against set-based
SQL, whose plans flip, and against an ORM, which is five to fifteen times slower. Whatever is looked up by anything
but a row's own key is written first, so that a lookup always sees what this transaction did.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from enum import Enum
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec

from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.rows import (
    DatasetRow,
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
from databuild_dagster.store.schema import PREFIX

R = TypeVar("R", bound=Row)

#: Rows that one event may make: a million. Leaves 43 bits for the seq.
ROWS_PER_EVENT_BITS = 20

_list_decoder = msgspec.json.Decoder(list[str])
_to_json = msgspec.json.Encoder().encode
_ENUMS: dict[type[Row], type[Enum]] = {
    RefRow: InstanceState,
    InstanceRow: InstanceState,
    JobRunRow: JobRunState,
    WantRow: WantState,
}


class _Shape(Generic[R]):
    """How one class of rows is read and written; made once."""

    def __init__(self, cls: type[R], key: str) -> None:
        self.cls = cls
        self.key = key
        self.names = tuple(field.name for field in fields(cls))
        self.key_at = self.names.index(key)
        self.values: Callable[[R], tuple[Any, ...]] = attrgetter(*self.names)
        changing = tuple(name for name in self.names if name not in cls.KEPT)
        self.changing: Callable[[R], tuple[Any, ...]] = attrgetter(*changing, "id")
        self.table = PREFIX + cls.TABLE
        columns = ", ".join(self.names)
        marks = ", ".join("?" * len(self.names))
        self.select = f"SELECT {columns} FROM {self.table} WHERE "
        self.insert = f"INSERT INTO {self.table} ({columns}) VALUES ({marks})"
        self.update = f"UPDATE {self.table} SET {', '.join(f'{name} = ?' for name in changing)} WHERE id = ?"
        enum = _ENUMS.get(cls)
        self.enum = {member.value: member for member in enum} if enum else None
        self.state_at = self.names.index("state") if enum else -1

    def row(self, values: tuple[Any, ...]) -> R:
        if self.enum is None or values[self.state_at] is None:
            return self.cls(*values)
        listed = list(values)
        listed[self.state_at] = self.enum[listed[self.state_at]]
        return self.cls(*listed)


#: The public key of each class of rows, in a column of its own beside the id.
_KEYS: dict[type[Row], str] = {
    DatasetRow: "asset",
    RefRow: "ref",
    InstanceRow: "uuid",
    JobRunRow: "job_run_id",
    LaunchRow: "launch_id",
    WantRow: "want_id",
    TaintRow: "taint_id",
}
_SHAPES: dict[type[Row], _Shape[Any]] = {cls: _Shape(cls, key) for cls, key in _KEYS.items()}


def _where(column: str, keys: Sequence[Any]) -> tuple[str, Any]:
    """One key by equality, many by a list that is one parameter: two statements to prepare, whatever the number."""
    if len(keys) == 1:
        return f"{column} = ?", keys[0]
    return f"{column} IN (SELECT value FROM json_each(?))", _to_json(keys).decode()


def _execute(connection: sqlite3.Connection, statement: str, rows: list[tuple[Any, ...]]) -> None:
    """One row by `execute`, which is cheaper for one."""
    if len(rows) == 1:
        connection.execute(statement, rows[0])
    else:
        connection.executemany(statement, rows)


class _Rows(Generic[R]):
    """The rows of one class seen in this unit of work: the same object for the same key, every time."""

    def __init__(self, connection: sqlite3.Connection, cls: type[R]) -> None:
        self.shape: _Shape[R] = _SHAPES[cls]
        self.connection = connection
        self.by_id: dict[int, R] = {}
        self.by_key: dict[str, R] = {}
        self.loaded: dict[int, tuple[Any, ...]] = {}
        self.new: list[R] = []

    def fetch(self, condition: str, *parameters: Any) -> list[R]:
        found = []
        for values in self.connection.execute(self.shape.select + condition, parameters):
            row = self.by_id.get(values[0])
            if row is None:
                row = self.shape.row(values)
                self.by_id[row.id] = row
                self.by_key[values[self.shape.key_at]] = row
                self.loaded[row.id] = values
            found.append(row)
        return found

    def fetch_between(self, after: int, before: int) -> list[R]:
        return self.fetch("id > ? AND id < ? ORDER BY id", after, before)

    def ids(self, ids: Iterable[int]) -> dict[int, R]:
        wanted = dict.fromkeys(ids)
        unknown = [i for i in wanted if i not in self.by_id]
        if unknown:
            self.fetch(*_where("id", unknown))
        return {i: self.by_id[i] for i in wanted if i in self.by_id}

    def keys(self, keys: Iterable[str]) -> dict[str, R]:
        wanted = dict.fromkeys(keys)
        unknown = [key for key in wanted if key not in self.by_key]
        if unknown:
            self.fetch(*_where(self.shape.key, unknown))
        return {key: self.by_key[key] for key in wanted if key in self.by_key}

    def add(self, row: R) -> None:
        self.by_id[row.id] = row
        self.by_key[getattr(row, self.shape.key)] = row
        self.new.append(row)

    def flush(self) -> None:
        shape = self.shape
        if self.loaded:
            changed = [row for i, before in self.loaded.items() if shape.values(row := self.by_id[i]) != before]
            if changed:
                _execute(self.connection, shape.update, [shape.changing(row) for row in changed])
                for row in changed:
                    self.loaded[row.id] = shape.values(row)
        if self.new:
            _execute(self.connection, shape.insert, [shape.values(row) for row in self.new])
            for row in self.new:
                self.loaded[row.id] = shape.values(row)
            self.new = []


class UnitOfWork:
    """`model.view.View` over one connection inside one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.unsettled: set[int] = set()
        #: Made when first used, for most commands touch few kinds of rows.
        self._rows: dict[type[Row], _Rows[Any]] = {}
        self._outputs: dict[int, list[InstanceRow]] = {}
        self.seq = 0
        self._numbered, self._number = -1, -1
        self._moves: list[tuple[str, int, int, int, str | None, str]] = []
        self._place = (0, 0)
        #: Links to write, by statement.
        self._links: dict[str, list[tuple[int, ...]]] = {}

    def _of(self, cls: type[R]) -> _Rows[R]:
        rows = self._rows.get(cls)
        if rows is None:
            rows = self._rows[cls] = _Rows(self.connection, cls)
        return rows

    # Datasets

    def datasets(self, assets: Iterable[str]) -> dict[str, DatasetRow]:
        return self._of(DatasetRow).keys(assets)

    def datasets_of_location(self, location: str) -> list[DatasetRow]:
        self._of(DatasetRow).flush()
        return self._of(DatasetRow).fetch("location = ?", location)

    def asset_names(self) -> list[str]:
        return [name for (name,) in self.connection.execute(f"SELECT asset FROM {PREFIX}datasets WHERE removed = 0")]

    # Refs

    def refs(self, texts: Iterable[str]) -> dict[str, RefRow]:
        return self._of(RefRow).keys(texts)

    def ensure_refs(self, texts: Iterable[str]) -> dict[str, RefRow]:
        wanted = list(dict.fromkeys(texts))
        rows = self._of(RefRow).keys(wanted)
        if len(rows) == len(wanted):
            return rows
        fresh = [text for text in wanted if text not in rows]
        datasets = self._of(DatasetRow).keys(asset_of(text) for text in fresh)
        for text in fresh:
            dataset = datasets.get(asset_of(text))
            if dataset is None:
                raise IllegalMove(seq=0, entity=text, state="-", on="first mention", why="its dataset is not registered")
            row = RefRow(id=self.next_id(), ref=text, dataset_id=dataset.id)
            self._of(RefRow).add(row)
            rows[text] = row
        return rows

    def refs_by_id(self, ids: Iterable[int]) -> dict[int, RefRow]:
        return self._of(RefRow).ids(ids)

    # Instances

    def instances_by_id(self, ids: Iterable[int]) -> dict[int, InstanceRow]:
        return self._of(InstanceRow).ids(ids)

    def instances_by_uuid(self, uuids: Iterable[str]) -> dict[str, InstanceRow]:
        return self._of(InstanceRow).keys(uuids)

    def instances_of_job_runs(self, job_run_ids: Iterable[int]) -> list[InstanceRow]:
        """Numbered right behind their job run, so they are found without an index. Remembered: decide and evolve both ask."""
        ids = list(job_run_ids)
        if unknown := [i for i in ids if i not in self._outputs]:
            rows = self._of(InstanceRow)
            numbers = {
                job_run.id + 1 + place: job_run.id
                for job_run in self.job_runs_by_id(unknown).values()
                for place in range(len(_list_decoder.decode(job_run.refs)))
            }
            self._outputs.update((i, []) for i in unknown)
            for instance in rows.ids(numbers).values():
                if instance.job_run_id == numbers[instance.id]:
                    self._outputs[instance.job_run_id].append(instance)
        return [instance for i in ids for instance in self._outputs[i]]

    # Job runs and launches

    def job_runs(self, job_run_ids: Iterable[str]) -> dict[str, JobRunRow]:
        return self._of(JobRunRow).keys(job_run_ids)

    def job_runs_by_id(self, ids: Iterable[int]) -> dict[int, JobRunRow]:
        return self._of(JobRunRow).ids(ids)

    def job_runs_of_launches(self, launch_ids: Iterable[int]) -> list[JobRunRow]:
        """Born of the same event as their launch, so found by the range of its ids."""
        rows = self._of(JobRunRow)
        rows.flush()
        return [
            row
            for launch_id in launch_ids
            for row in rows.fetch_between(launch_id, ((launch_id >> ROWS_PER_EVENT_BITS) + 1) << ROWS_PER_EVENT_BITS)
            if row.launch_id == launch_id
        ]

    def launches(self, launch_ids: Iterable[str]) -> dict[str, LaunchRow]:
        return self._of(LaunchRow).keys(launch_ids)

    def launches_by_id(self, ids: Iterable[int]) -> dict[int, LaunchRow]:
        return self._of(LaunchRow).ids(ids)

    # Wants

    def wants(self, want_ids: Iterable[str]) -> dict[str, WantRow]:
        return self._of(WantRow).keys(want_ids)

    def wants_by_id(self, ids: Iterable[int]) -> dict[int, WantRow]:
        return self._of(WantRow).ids(ids)

    def wants_of_requests(self, request_ids: Iterable[str]) -> list[WantRow]:
        ids = list(request_ids)
        if not ids:
            return []
        self._of(WantRow).flush()
        condition, parameter = _where("request_id", ids)
        return self._of(WantRow).fetch(f"{condition} ORDER BY id", parameter)

    def wants_holding(self, ref_ids: Iterable[int], openness: Openness) -> list[tuple[int, int]]:
        return self._pairs(
            f"SELECT ref_id, want_id FROM {PREFIX}want_refs WHERE open = {int(openness)} AND ", "ref_id", ref_ids
        )

    def refs_of_wants(self, want_ids: Iterable[int]) -> list[tuple[int, int]]:
        return self._pairs(f"SELECT want_id, ref_id FROM {PREFIX}want_refs WHERE ", "want_id", want_ids)

    def link_want(self, want_id: int, ref_ids: Iterable[int]) -> None:
        self._link(_LINK_WANT, ((want_id, ref_id) for ref_id in ref_ids))

    def set_openness(self, want_id: int, openness: Openness) -> None:
        self._link(_SET_OPENNESS, [(int(openness), want_id)])

    # Waiting

    def waiters(self, ref_ids: Iterable[int]) -> list[tuple[int, int]]:
        return self._pairs(f"SELECT ref_id, instance_id FROM {PREFIX}missing WHERE active = 1 AND ", "ref_id", ref_ids)

    def missing_of(self, instance_ids: Iterable[int]) -> list[tuple[int, int]]:
        return self._pairs(f"SELECT instance_id, ref_id FROM {PREFIX}missing WHERE ", "instance_id", instance_ids)

    def add_missing(self, instance_id: int, ref_ids: Iterable[int]) -> None:
        self._link(_ADD_MISSING, ((instance_id, ref_id) for ref_id in ref_ids))

    def end_waiting(self, instance_id: int) -> None:
        self._link(_END_WAITING, [(instance_id,)])

    # Taints and lineage

    def taints(self, taint_ids: Iterable[str]) -> dict[str, TaintRow]:
        return self._of(TaintRow).keys(taint_ids)

    def instances_of_taint(self, taint_id: int) -> list[int]:
        pairs = self._pairs(f"SELECT taint_id, instance_id FROM {PREFIX}taint_instances WHERE ", "taint_id", [taint_id])
        return [instance_id for _, instance_id in pairs]

    def add_taint_links(self, taint_id: int, instance_ids: Iterable[int]) -> None:
        self._link(_ADD_TAINT, ((taint_id, instance_id) for instance_id in instance_ids))

    def add_inputs(self, instance_id: int, inputs: Iterable[tuple[int, int]]) -> None:
        self._link(_ADD_INPUT, ((instance_id, ref_id, input_id) for ref_id, input_id in inputs))

    # Writing

    def next_id(self) -> int:
        """Made of the event's seq and a number within it: needs no look at the table, and a rebuild gives the same."""
        if self._numbered != self.seq:
            self._numbered, self._number = self.seq, -1
        self._number += 1
        return self.seq << ROWS_PER_EVENT_BITS | self._number

    def add(self, row: Row) -> None:
        self._of(type(row)).add(row)

    def record_move(self, kind: str, entity_id: int, seq: int, from_state: str | None, to_state: str) -> None:
        last_seq, place = self._place
        place = place + 1 if last_seq == seq else 0
        self._place = (seq, place)
        self._moves.append((kind, entity_id, seq, place, from_state, to_state))

    def _link(self, statement: str, links: Iterable[tuple[int, ...]]) -> None:
        """In order of writing: a want that is linked and ended by one event is linked first."""
        self._links.setdefault(statement, []).extend(links)

    def _pairs(self, select: str, column: str, keys: Iterable[int]) -> list[tuple[int, int]]:
        wanted = list(keys)
        if not wanted:
            return []
        if self._links:
            self._flush_links()
        condition, parameter = _where(column, wanted)
        # Sorted, so that a rebuild meets them in the same order whatever plan the database chooses.
        return sorted(self.connection.execute(select + condition, (parameter,)))

    def _flush_links(self) -> None:
        for statement in _LINK_ORDER:
            if links := self._links.get(statement):
                _execute(self.connection, statement, links)
        self._links = {}

    def flush(self) -> None:
        """Write what changed. What is due is derived here, so that no transition can forget it."""
        if RefRow in self._rows:
            for ref in self._of(RefRow).by_id.values():
                ref.due = 1 if ref.n_open_wants and ref.schedulable else 0
        for rows in self._rows.values():
            rows.flush()
        if self._links:
            self._flush_links()
        if self._moves:
            _execute(self.connection, _ADD_MOVE, self._moves)
            self._moves = []


_LINK_WANT = f"INSERT INTO {PREFIX}want_refs (want_id, ref_id, open) VALUES (?, ?, {int(Openness.OPEN)})"
_SET_OPENNESS = f"UPDATE {PREFIX}want_refs SET open = ? WHERE want_id = ?"
_ADD_MISSING = f"INSERT INTO {PREFIX}missing (instance_id, ref_id, active) VALUES (?, ?, 1)"
_END_WAITING = f"UPDATE {PREFIX}missing SET active = 0 WHERE instance_id = ?"
_ADD_TAINT = f"INSERT INTO {PREFIX}taint_instances (taint_id, instance_id) VALUES (?, ?)"
_ADD_INPUT = f"INSERT INTO {PREFIX}instance_inputs (instance_id, ref_id, input_id) VALUES (?, ?, ?)"
_ADD_MOVE = f"INSERT INTO {PREFIX}history (kind, entity_id, seq, place, from_state, to_state) VALUES (?, ?, ?, ?, ?, ?)"
_LINK_ORDER = (_LINK_WANT, _SET_OPENNESS, _ADD_MISSING, _END_WAITING, _ADD_TAINT, _ADD_INPUT)
