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
    ROW_TYPES,
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

_to_json = msgspec.json.Encoder().encode
_ENUMS: dict[type[Row], type[Enum]] = {
    RefRow: InstanceState,
    InstanceRow: InstanceState,
    JobRunRow: JobRunState,
    WantRow: WantState,
}


class _Shape(Generic[R]):
    """How one class of rows is read and written; made once."""

    def __init__(self, cls: type[R]) -> None:
        self.cls = cls
        self.names = tuple(field.name for field in fields(cls))
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


_SHAPES: dict[type[Row], _Shape[Any]] = {cls: _Shape(cls) for cls in ROW_TYPES}


def _where(column: str, keys: Sequence[Any]) -> tuple[str, Any]:
    """One key by equality, many by a list that is one parameter: two statements to prepare, whatever the number."""
    if len(keys) == 1:
        return f"{column} = ?", keys[0]
    return f"{column} IN (SELECT value FROM json_each(?))", _to_json(keys).decode()


class _Rows(Generic[R]):
    """The rows of one class seen in this unit of work: the same object for the same key, every time."""

    def __init__(self, connection: sqlite3.Connection, cls: type[R]) -> None:
        self.shape: _Shape[R] = _SHAPES[cls]
        self.connection = connection
        self.by_id: dict[int, R] = {}
        self.loaded: dict[int, tuple[Any, ...]] = {}
        self.new: list[R] = []

    def fetch(self, condition: str, parameter: Any) -> list[R]:
        found = []
        for values in self.connection.execute(self.shape.select + condition, (parameter,)):
            row = self.by_id.get(values[0])
            if row is None:
                row = self.shape.row(values)
                self.by_id[row.id] = row
                self.loaded[row.id] = self.shape.values(row)
            found.append(row)
        return found

    def ids(self, ids: Iterable[int]) -> dict[int, R]:
        wanted = dict.fromkeys(ids)
        unknown = [i for i in wanted if i not in self.by_id]
        if unknown:
            self.fetch(*_where("id", unknown))
        return {i: self.by_id[i] for i in wanted if i in self.by_id}

    def add(self, row: R) -> None:
        self.by_id[row.id] = row
        self.new.append(row)

    def flush(self) -> None:
        shape = self.shape
        if self.loaded:
            changed = [row for i, before in self.loaded.items() if shape.values(row := self.by_id[i]) != before]
            if changed:
                self.connection.executemany(shape.update, [shape.changing(row) for row in changed])
                for row in changed:
                    self.loaded[row.id] = shape.values(row)
        if self.new:
            self.connection.executemany(shape.insert, [shape.values(row) for row in self.new])
            for row in self.new:
                self.loaded[row.id] = shape.values(row)
            self.new = []


class _Keyed(_Rows[R]):
    """Rows that also have a public key in a column of its own."""

    def __init__(self, connection: sqlite3.Connection, cls: type[R], key: str) -> None:
        super().__init__(connection, cls)
        self.key = key
        self.key_of: Callable[[R], str] = attrgetter(key)
        self.by_key: dict[str, R] = {}

    def keys(self, keys: Iterable[str]) -> dict[str, R]:
        wanted = dict.fromkeys(keys)
        unknown = [key for key in wanted if key not in self.by_key]
        if unknown:
            for row in self.fetch(*_where(self.key, unknown)):
                self.by_key[self.key_of(row)] = row
        return {key: self.by_key[key] for key in wanted if key in self.by_key}

    def add(self, row: R) -> None:
        super().add(row)
        self.by_key[self.key_of(row)] = row


class UnitOfWork:
    """`model.view.View` over one connection inside one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.unsettled: set[int] = set()
        self._datasets = _Keyed(connection, DatasetRow, "asset")
        self._refs = _Keyed(connection, RefRow, "ref")
        self._instances = _Keyed(connection, InstanceRow, "uuid")
        self._job_runs = _Keyed(connection, JobRunRow, "job_run_id")
        self._launches = _Keyed(connection, LaunchRow, "launch_id")
        self._wants = _Keyed(connection, WantRow, "want_id")
        self._taints = _Keyed(connection, TaintRow, "taint_id")
        self._rows: dict[str, _Keyed[Any]] = {
            rows.shape.cls.TABLE: rows
            for rows in (
                self._datasets,
                self._refs,
                self._instances,
                self._job_runs,
                self._launches,
                self._wants,
                self._taints,
            )
        }
        self._next_ids: dict[str, int] = {}
        self._moves: list[tuple[str, int, int, int, str | None, str]] = []
        self._place = (0, 0)
        #: Links to write, by statement.
        self._links: dict[str, list[tuple[int, ...]]] = {}

    # Datasets

    def datasets(self, assets: Iterable[str]) -> dict[str, DatasetRow]:
        return self._datasets.keys(assets)

    def datasets_of_location(self, location: str) -> list[DatasetRow]:
        self._datasets.flush()
        return self._datasets.fetch("location = ?", location)

    def asset_names(self) -> list[str]:
        return [name for (name,) in self.connection.execute(f"SELECT asset FROM {PREFIX}datasets WHERE removed = 0")]

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
                raise IllegalMove(seq=0, entity=text, state="-", on="first mention", why="its dataset is not registered")
            row = RefRow(id=self.next_id(RefRow.TABLE), ref=text, dataset_id=dataset.id)
            self._refs.add(row)
            rows[text] = row
        return rows

    def refs_by_id(self, ids: Iterable[int]) -> dict[int, RefRow]:
        return self._refs.ids(ids)

    # Instances

    def instances_by_id(self, ids: Iterable[int]) -> dict[int, InstanceRow]:
        return self._instances.ids(ids)

    def instances_by_uuid(self, uuids: Iterable[str]) -> dict[str, InstanceRow]:
        return self._instances.keys(uuids)

    def instances_of_job_runs(self, job_run_ids: Iterable[int]) -> list[InstanceRow]:
        ids = list(job_run_ids)
        if not ids:
            return []
        if self._instances.new:
            self._instances.flush()
        condition, parameter = _where("job_run_id", ids)
        return self._instances.fetch(f"{condition} ORDER BY id", parameter)

    # Job runs and launches

    def job_runs(self, job_run_ids: Iterable[str]) -> dict[str, JobRunRow]:
        return self._job_runs.keys(job_run_ids)

    def job_runs_by_id(self, ids: Iterable[int]) -> dict[int, JobRunRow]:
        return self._job_runs.ids(ids)

    def job_runs_of_launches(self, launch_ids: Iterable[int]) -> list[JobRunRow]:
        ids = list(launch_ids)
        if not ids:
            return []
        self._job_runs.flush()
        condition, parameter = _where("launch_id", ids)
        return self._job_runs.fetch(f"{condition} ORDER BY id", parameter)

    def launches(self, launch_ids: Iterable[str]) -> dict[str, LaunchRow]:
        return self._launches.keys(launch_ids)

    def launches_by_id(self, ids: Iterable[int]) -> dict[int, LaunchRow]:
        return self._launches.ids(ids)

    # Wants

    def wants(self, want_ids: Iterable[str]) -> dict[str, WantRow]:
        return self._wants.keys(want_ids)

    def wants_by_id(self, ids: Iterable[int]) -> dict[int, WantRow]:
        return self._wants.ids(ids)

    def wants_of_requests(self, request_ids: Iterable[str]) -> list[WantRow]:
        ids = list(request_ids)
        if not ids:
            return []
        self._wants.flush()
        condition, parameter = _where("request_id", ids)
        return self._wants.fetch(f"{condition} ORDER BY id", parameter)

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
        return self._taints.keys(taint_ids)

    def instances_of_taint(self, taint_id: int) -> list[int]:
        pairs = self._pairs(f"SELECT taint_id, instance_id FROM {PREFIX}taint_instances WHERE ", "taint_id", [taint_id])
        return [instance_id for _, instance_id in pairs]

    def add_taint_links(self, taint_id: int, instance_ids: Iterable[int]) -> None:
        self._link(_ADD_TAINT, ((taint_id, instance_id) for instance_id in instance_ids))

    def add_inputs(self, instance_id: int, inputs: Iterable[tuple[int, int]]) -> None:
        self._link(_ADD_INPUT, ((instance_id, ref_id, input_id) for ref_id, input_id in inputs))

    # Writing

    def next_id(self, table: str) -> int:
        """Ids follow the order of events, so that a rebuild gives the same ones."""
        following = self._next_ids.get(table)
        if following is None:
            (highest,) = self.connection.execute(f"SELECT max(id) FROM {PREFIX}{table}").fetchone()
            following = (highest or 0) + 1
        self._next_ids[table] = following + 1
        return following

    def add(self, row: Row) -> None:
        self._rows[row.TABLE].add(row)

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
                self.connection.executemany(statement, links)
        self._links = {}

    def flush(self) -> None:
        """Write what changed. What is due is derived here, so that no transition can forget it."""
        for ref in self._refs.by_id.values():
            ref.due = 1 if ref.n_open_wants and ref.schedulable else 0
        for rows in self._rows.values():
            rows.flush()
        if self._links:
            self._flush_links()
        if self._moves:
            self.connection.executemany(_ADD_MOVE, self._moves)
            self._moves = []


_LINK_WANT = f"INSERT INTO {PREFIX}want_refs (want_id, ref_id, open) VALUES (?, ?, {int(Openness.OPEN)})"
_SET_OPENNESS = f"UPDATE {PREFIX}want_refs SET open = ? WHERE want_id = ?"
_ADD_MISSING = f"INSERT INTO {PREFIX}missing (instance_id, ref_id, active) VALUES (?, ?, 1)"
_END_WAITING = f"UPDATE {PREFIX}missing SET active = 0 WHERE instance_id = ?"
_ADD_TAINT = f"INSERT INTO {PREFIX}taint_instances (taint_id, instance_id) VALUES (?, ?)"
_ADD_INPUT = f"INSERT INTO {PREFIX}instance_inputs (instance_id, ref_id, input_id) VALUES (?, ?, ?)"
_ADD_MOVE = f"INSERT INTO {PREFIX}history (kind, entity_id, seq, place, from_state, to_state) VALUES (?, ?, ?, ?, ?, ?)"
_LINK_ORDER = (_LINK_WANT, _SET_OPENNESS, _ADD_MISSING, _END_WAITING, _ADD_TAINT, _ADD_INPUT)
