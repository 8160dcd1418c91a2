"""Row ids, sets of rows, links and moves of one transaction.

Rows and links are written before a query that asks for them by anything but a row's own key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.rows import Row
from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.format import BITS, PREFIX, first_id
from databuild_dagster.store.work.row_sets import Lookup, RowSet

_ADD_MOVE = f"INSERT INTO {PREFIX}history (kind, entity_id, seq, place, from_state, to_state) VALUES (?, ?, ?, ?, ?, ?)"


class Tables(ABC):
    """The parts that all subjects of a unit of work share: its connection, its seq, and the rows that wait to be written."""

    #: Statements that write links, in the order in which they are written.
    LINK_ORDER: tuple[str, ...] = ()

    connection: Connection
    seq: int
    _numbered: int
    _number: int
    _rows: dict[type, RowSet[Any]]
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
        self._rows[type(row)].add(row)

    def newest_names(self, row_type: type[Row], most: int) -> list[str]:
        shape = self._rows[row_type].shape
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
