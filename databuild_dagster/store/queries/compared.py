"""Two instances compared: the facts of their data, and their inputs (rule 4.6)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from databuild_dagster.model.refs import Ref
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.queries.asking import Asking
from databuild_dagster.store.selection import Selection


class DataFacts(NamedTuple):
    """The data of an instance as its success recorded it; None for one that was never live, or is not in a warehouse."""

    files: int | None
    rows: int | None
    bytes: int | None


class InputPair(NamedTuple):
    """A ref of which two instances read different instances; None for the one that did not read it."""

    ref: Ref
    first: str | None
    second: str | None
    #: Both have the same rows, because one is a compaction of the other.
    is_same_rows: bool


class InputCounts(NamedTuple):
    """The inputs that only the second instance has, only the first one has, and that are other instances of their refs."""

    added: int
    removed: int
    replaced: int


_FACTS = Selection(DataFacts, "i", files="i.n_files", rows="i.n_rows", bytes="i.n_bytes")
_PAIR = Selection(
    InputPair,
    "differing",
    ref="r.ref",
    first="a.uuid",
    second="b.uuid",
    is_same_rows="coalesce(coalesce(a.same_as_id, a.id) = coalesce(b.same_as_id, b.id), 1 = 0)",
)
_ID = f"(SELECT id FROM {PREFIX}instances WHERE uuid = ?)"
#: The inputs of either, one row for each ref where they differ.
_PAIRS = f"""
    SELECT either.ref_id AS ref_id, max(either.first_id) AS first_id, max(either.second_id) AS second_id FROM (
        SELECT x.ref_id AS ref_id, x.input_id AS first_id, 0 AS second_id FROM {PREFIX}instance_inputs x WHERE x.instance_id = {_ID}
        UNION ALL
        SELECT y.ref_id, 0, y.input_id FROM {PREFIX}instance_inputs y WHERE y.instance_id = {_ID}
    ) either GROUP BY either.ref_id HAVING max(either.first_id) <> max(either.second_id)"""


class ComparedQueries(Asking):
    """The data and the inputs of two instances."""

    def data_facts(self, uuids: Iterable[str]) -> dict[str, DataFacts]:
        """By uuid; instances that do not exist are left out."""
        sql = (
            f"SELECT i.uuid, {_FACTS.columns} FROM {PREFIX}instances i WHERE i.uuid IN (SELECT value FROM json_each(?))"
        )
        return dict(_FACTS.by(self._all(sql, Keys(uuids))))

    def n_input_differences(self, first: str, second: str) -> InputCounts:
        """The number of inputs in which two instances differ."""
        sql = f"""
            SELECT coalesce(sum(CASE WHEN differing.first_id = 0 THEN 1 ELSE 0 END), 0),
                   coalesce(sum(CASE WHEN differing.second_id = 0 THEN 1 ELSE 0 END), 0), count(*) FROM ({_PAIRS}) differing"""
        ((added, removed, n),) = self._all(sql, first, second)
        return InputCounts(int(added), int(removed), int(n) - int(added) - int(removed))

    def input_differences(self, first: str, second: str, most: int) -> list[InputPair]:
        """The first inputs in which two instances differ, by ref."""
        sql = f"""
            SELECT {_PAIR.columns} FROM ({_PAIRS}) differing JOIN {PREFIX}refs r ON r.id = differing.ref_id
            LEFT JOIN {PREFIX}instances a ON a.id = differing.first_id LEFT JOIN {PREFIX}instances b ON b.id = differing.second_id
            ORDER BY r.ref LIMIT ?"""
        return _PAIR.rows(self._all(sql, first, second, most))
