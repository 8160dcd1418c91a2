"""The moves of a unit of work: rows of history."""

from __future__ import annotations

from enum import StrEnum

from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.schema import PREFIX
from databuild_dagster.store.work.tables import Tables

_ADD_MOVE = f"INSERT INTO {PREFIX}history (kind, entity_id, seq, place, from_state, to_state) VALUES (?, ?, ?, ?, ?, ?)"


class MoveWork(Tables):
    """Each change of a state, in the order of the changes."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._moves: list[tuple[str, int, int, int, str | None, str]] = []
        self._place = (0, 0)

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

    def _flush_moves(self) -> None:
        if self._moves:
            self.connection.executemany(_ADD_MOVE, self._moves)
            self._moves = []
