"""Row ids, sets of rows, links and moves of a transaction.

The rows of a class are read by key in bulk, changed in memory, written where they changed. Rows and links are written before a
query that asks for them by anything but a row's own key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from enum import Enum, StrEnum
from itertools import compress
from operator import itemgetter, ne
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec.structs import astuple

from databuild_dagster.model.errors import IllegalMove, MissingRow
from databuild_dagster.model.refs import Ref, derive_partition_uuid
from databuild_dagster.model.rows import Row
from databuild_dagster.store.backends.base import Connection, Keys
from databuild_dagster.store.format import BITS, PREFIX, first_id
from databuild_dagster.store.format import PREFIX as P

K = TypeVar("K")
S = TypeVar("S", bound=str)
R = TypeVar("R", bound=Row)


class Lookup:
    """A query by key: a single key by equality, many keys by a list in a parameter; two statements in all."""

    def __init__(self, select: str, column: str) -> None:
        self.one = f"{select} {column} = ?"
        self.many = f"{select} {column} IN (SELECT value FROM json_each(?))"

    def ask(self, connection: Connection, keys: list[Any], *before: Any) -> Iterable[Any]:
        """`before` has the parameters in front of the keys."""
        if len(keys) == 1:
            return connection.execute(self.one, (*before, keys[0]))
        return connection.execute(self.many, (*before, Keys(keys)))


class Shape(Generic[R]):
    """The statements that read and write a class of rows; made once."""

    def __init__(self, cls: type[R], key: str, states: type[Enum] | None = None) -> None:
        self.cls = cls
        self.names: tuple[str, ...] = cls.__struct_fields__
        self.key = key
        self.key_at = self.names.index(key)
        self.table = PREFIX + cls.TABLE
        #: Its columns with the first letter of the table, for joins.
        self.columns = ", ".join(f"{cls.TABLE[0]}.{name}" for name in self.names)
        self.select = f"SELECT {', '.join(self.names)} FROM {self.table} WHERE"
        self.by_id = Lookup(self.select, "id")
        self.by_key = Lookup(self.select, key)
        self.states = {state.value: state for state in states or ()}
        self.state_at = self.names.index("state") if states else -1
        #: The stored values of a row that is not written yet.
        self.unborn = (None,) * len(self.names)
        #: By (new, changed columns): the statement, and the function that picks its values.
        self._writes: dict[tuple[bool, bytes], tuple[str, Callable[[tuple[Any, ...]], tuple[Any, ...]]]] = {}

    def row(self, values: tuple[Any, ...]) -> R:
        row = self.cls(*values)
        if self.states and (state := values[self.state_at]) is not None:
            row.state = self.states[state]  # type: ignore[union-attr]
        return row

    def write(self, new: bool, changed: bytes) -> tuple[str, Callable[[tuple[Any, ...]], tuple[Any, ...]]]:
        """The statement for some columns, a byte each. Few sets of columns change together, so they are few."""
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


class RowSet(msgspec.Struct, Generic[R]):
    """The loaded rows of a class: the same object for the same key, every time.

    Every transaction makes all of them, and a struct is made in half of the time.
    """

    shape: Shape[R]
    connection: Connection
    by_id: dict[int, R] = {}
    by_key: dict[Any, R] = {}
    #: Keys without a row. Only this transaction writes, so none appears.
    absent: set[Any] = set()
    #: The stored columns of each row.
    stored: dict[int, tuple[Any, ...]] = {}

    def take(self, values: tuple[Any, ...]) -> R:
        """The row of stored values: the object of this unit of work, if it was loaded before."""
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
        """Rows to which other rows refer. Raises `MissingRow` for an id without a row (rule 3.5)."""
        return self._known(ids, self.by_id, self.shape.by_id)

    def keys(self, keys: Iterable[S]) -> dict[S, R]:
        return self._known(keys, self.by_key, self.shape.by_key)

    def _known(self, keys: Iterable[K], known: dict[K, R], lookup: Lookup) -> dict[K, R]:
        """In the order of the keys, also for loaded rows, so that a rebuild has the same order."""
        found: dict[K, R | None] = {}
        whole = True
        for key in keys:
            if (row := known.get(key)) is None:
                whole = False
            found[key] = row  # None keeps its place and is removed below
        if whole:
            return cast("dict[K, R]", found)
        unknown = [key for key, row in found.items() if row is None and key not in self.absent]
        if unknown:
            for values in lookup.ask(self.connection, unknown):
                self.take(values)
            absent = [key for key in unknown if key not in known]
            if absent and known is self.by_id:
                raise missing_row(self.connection, self.shape.cls.TABLE, absent[0])  # type: ignore[arg-type]  # ids are numbers
            self.absent.update(absent)
        return {key: row for key in found if (row := known.get(key)) is not None}

    def add(self, row: R) -> None:
        self.by_id[row.id] = row
        self.by_key[getattr(row, self.shape.key)] = row
        self.stored[row.id] = self.shape.unborn

    def flush(self) -> None:
        """Write only the columns that differ, so that no index over other columns is touched."""
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


#: By table, a row that refers to one of its rows, and the state of the referring row. Nothing indexes these questions.
_REFERRING = {
    "refs": f"SELECT 'instance ' || uuid, state FROM {P}instances WHERE ref_id = ?",
    "instances": f"SELECT ref, state FROM {P}refs WHERE ? IN (canonical_id, last_id, learned_id)",
    "job_runs": f"""SELECT r.ref || ', instance ' || i.uuid, i.state FROM {P}instances i JOIN {P}refs r ON r.id = i.ref_id
        WHERE i.job_run_id = ?""",
    "wants": f"SELECT r.ref, r.state FROM {P}holds h JOIN {P}refs r ON r.id = h.ref_id WHERE h.want_id = ?",
    "taints": f"""SELECT 'instance ' || i.uuid, i.state FROM {P}taint_instances t JOIN {P}instances i ON i.id = t.instance_id
        WHERE t.taint_id = ?""",
}
_LAST_STATE = f"SELECT to_state FROM {P}history WHERE entity_id = ? AND kind = ? ORDER BY seq DESC, place DESC LIMIT 1"
#: The instances of a job run are numbered after it, in the order of its refs.
_JOB_RUN = f"SELECT id, job_run_id, refs FROM {P}job_runs WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT 1"


def missing_row(connection: Connection, table: str, row_id: int) -> MissingRow:
    """The error about a row of a table, without its prefix, that some row refers to, in words (rule 3.5).

    Row ids come from other rows only, so an id without a row is a damage of the tables. The rows that are left name it.
    """
    referring = connection.execute(f"{_REFERRING[table]} LIMIT 1", (row_id,)).fetchall() if table in _REFERRING else []
    entity, state = referring[0] if referring else ("a row", None)
    last = connection.execute(_LAST_STATE, (row_id, table)).fetchall()
    return MissingRow(
        seq=row_id >> BITS,
        entity=entity,
        state=state or "-",
        on=_named(connection, table, row_id),
        why=f"its last state was {last[0][0]}" if last else "it has no history either",
    )


def _named(connection: Connection, table: str, row_id: int) -> str:
    kind = table.removesuffix("s").replace("_", " ")
    if table == "instances":
        seq = row_id >> BITS
        for job_run_row, job_run_id, listed in connection.execute(_JOB_RUN, (seq << BITS, row_id)):
            refs = msgspec.json.decode(listed, type=list[Ref])
            if (place := row_id - job_run_row - 1) < len(refs):
                return f"instance {derive_partition_uuid(job_run_id, refs[place])} of {refs[place]}"
    return f"{kind} {row_id}"


_ADD_MOVE = f"INSERT INTO {PREFIX}history (kind, entity_id, seq, place, from_state, to_state) VALUES (?, ?, ?, ?, ?, ?)"


class Rows(Generic[R]):
    """The set of rows of a unit of work, made at its first use: a command uses three or four of the nine.

    Its attribute is the name of the table with an underscore in front.
    """

    def __init__(self, shape: Shape[R]) -> None:
        self.shape = shape

    def __set_name__(self, _: type[Tables], name: str) -> None:
        self.name = name

    def __get__(self, work: Tables, _: type[Tables]) -> RowSet[R]:
        rows = RowSet(self.shape, work.connection)
        # From now on the attribute is found before this descriptor.
        setattr(work, self.name, rows)
        work._row_sets.append(rows)
        return rows


class Tables(ABC):
    """The parts that all subjects of a unit of work share: its connection, its seq, and the rows that wait to be written."""

    #: Statements that write links, in the order in which they are written.
    LINK_ORDER: tuple[str, ...] = ()

    connection: Connection
    seq: int
    _numbered: int
    _number: int
    #: The sets of rows that were used.
    _row_sets: list[RowSet[Any]]
    #: Links to write, by statement.
    _links: dict[str, list[tuple[Any, ...]]]
    _moves: list[tuple[str, int, int, int, str | None, str]]
    _place: tuple[int, int]

    @abstractmethod
    def flush(self) -> None:
        """Write what changed."""

    def next_id(self) -> int:
        """The event's seq and a number within it: it needs no query, and a rebuild makes the same."""
        if self._numbered != self.seq:
            self._numbered, self._number = self.seq, -1
        self._number += 1
        if self._number >> BITS:
            raise IllegalMove(seq=self.seq, on="new row", why=f"one event makes more than {1 << BITS:,} rows")
        return first_id(self.seq) | self._number

    def add(self, row: Row) -> None:
        self._rows_of(type(row)).add(row)

    def _rows_of(self, row_type: type[Row]) -> RowSet[Any]:
        rows: RowSet[Any] = getattr(self, f"_{row_type.TABLE}")
        return rows

    def newest_names(self, row_type: type[Row], most: int) -> list[str]:
        shape = self._rows_of(row_type).shape
        found = self.connection.execute(f"SELECT {shape.key} FROM {shape.table} ORDER BY id DESC LIMIT ?", (most,))
        return [name for (name,) in found]

    def _link(self, statement: str, links: Iterable[tuple[Any, ...]]) -> None:
        """Written in `LINK_ORDER`: a want that an event links and also ends is linked first."""
        self._links.setdefault(statement, []).extend(links)

    def _linked(self, lookup: Lookup, keys: Iterable[int | str], *before: Any) -> Iterable[Any]:
        wanted = list(keys)
        if not wanted:
            return ()
        if self._links:
            self._flush_links()
        return lookup.ask(self.connection, wanted, *before)

    def _pairs(self, lookup: Lookup, keys: Iterable[int], *before: Any) -> list[tuple[int, int]]:
        """Sorted, so that a rebuild has the same order for any plan of the database."""
        return sorted(self._linked(lookup, keys, *before))

    def _flush_links(self) -> None:
        links, self._links = self._links, {}
        for statement in self.LINK_ORDER:
            if rows := links.get(statement):
                self.connection.executemany(statement, rows)

    @property
    def n_moves(self) -> int:
        """The number of moves that are not written yet."""
        return len(self._moves)

    @property
    def moves(self) -> list[tuple[str, int, str | None, str]]:
        """The moves that are not written yet, in order: (table, row id, from, to)."""
        return [(kind, entity_id, before, after) for kind, entity_id, _, _, before, after in self._moves]

    def record_move(self, kind: str, entity_id: int, seq: int, from_state: StrEnum | None, to_state: StrEnum) -> None:
        last_seq, place = self._place
        place = place + 1 if last_seq == seq else 0
        self._place = (seq, place)
        # As plain texts: the driver need not adapt them, and the garbage collector passes over them.
        before = None if from_state is None else from_state._value_
        self._moves.append((kind, entity_id, seq, place, before, to_state._value_))

    def _flush_moves(self) -> None:
        if self._moves:
            self.connection.executemany(_ADD_MOVE, self._moves)
            self._moves = []
