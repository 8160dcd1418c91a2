"""Row ids, sets of rows and links of one transaction. Whatever is looked up by anything but a row's own key is written first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.rows import Row
from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.row_ids import ROWS_PER_EVENT_BITS, first_id
from databuild_dagster.store.work.row_sets import Lookup, R, RowSet, Shape


class Tables(ABC):
    """What every subject of a unit of work shares: its connection, the seq it is at, and what waits to be written."""

    #: Statements that write links, in the order in which they are written.
    LINK_ORDER: tuple[str, ...] = ()

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.seq = 0
        self._numbered, self._number = -1, -1
        self._rows: dict[type, RowSet[Any]] = {}
        #: Links to write, by statement.
        self._links: dict[str, list[tuple[Any, ...]]] = {}

    @abstractmethod
    def flush(self) -> None:
        """Write what changed."""

    def _set_of(self, shape: Shape[R]) -> RowSet[R]:
        rows = self._rows[shape.cls] = RowSet(self.connection, shape)
        return rows

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
        return first_id(self.seq) | self._number

    def add(self, row: Row) -> None:
        self._rows[type(row)].add(row)

    def _link(self, statement: str, links: Iterable[tuple[Any, ...]]) -> None:
        """In order of writing: a want that is linked and ended by one event is linked first."""
        self._links.setdefault(statement, []).extend(links)

    def _linked(self, lookup: Lookup, keys: Iterable[int], *before: Any) -> Iterable[Any]:
        wanted = list(keys)
        if not wanted:
            return ()
        if self._links:
            self._flush_links()
        return lookup.ask(self.connection, wanted, *before)

    def _pairs(self, lookup: Lookup, keys: Iterable[int], *before: Any) -> list[tuple[int, int]]:
        """Sorted, so that a rebuild meets them in the same order whatever plan the database chooses."""
        return sorted(self._linked(lookup, keys, *before))

    def _flush_links(self) -> None:
        links, self._links = self._links, {}
        for statement in self.LINK_ORDER:
            if rows := links.get(statement):
                self.connection.executemany(statement, rows)
