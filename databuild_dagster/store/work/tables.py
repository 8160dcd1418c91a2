"""Row ids, sets of rows, links and moves of one transaction.

Rows and links are written before a query that asks for them by anything but a row's own key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Generic

from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.rows import Row
from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.format import BITS, PREFIX, first_id
from databuild_dagster.store.work.row_sets import Lookup, R, RowSet, Shape

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
        """Written in `LINK_ORDER`: a want that one event links and ends is linked first."""
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
