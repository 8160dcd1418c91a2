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
_INPUTS = f"{PREFIX}instance_inputs"
#: A row for each ref of which the two read different instances, by the key of the table: of fifty thousand inputs each, a sort of
#: all took four times as long.
_DIFFERING = f"""
    SELECT x.ref_id AS ref_id, x.input_id AS first_id, coalesce(y.input_id, 0) AS second_id
    FROM {_INPUTS} x LEFT JOIN {_INPUTS} y ON y.instance_id = {_ID} AND y.ref_id = x.ref_id
    WHERE x.instance_id = {_ID} AND coalesce(y.input_id, 0) <> x.input_id
    UNION ALL
    SELECT y.ref_id, 0, y.input_id FROM {_INPUTS} y LEFT JOIN {_INPUTS} x ON x.instance_id = {_ID} AND x.ref_id = y.ref_id
    WHERE y.instance_id = {_ID} AND x.input_id IS NULL"""


class ComparedQueries(Asking):
    """The data and the inputs of two instances."""

    def data_facts(self, uuids: Iterable[str]) -> dict[str, DataFacts]:
        """By uuid; instances that do not exist are left out."""
        sql = (
            f"SELECT i.uuid, {_FACTS.columns} FROM {PREFIX}instances i WHERE i.uuid IN (SELECT value FROM json_each(?))"
        )
        return dict(_FACTS.by(self._all(sql, Keys(uuids))))

    def input_differences(self, first: str, second: str, most: int) -> tuple[InputCounts, list[InputPair]]:
        """The number of inputs in which two instances differ, and the first of them by ref."""
        sql = f"""
            SELECT n_added, n_removed, n, {_PAIR.columns} FROM (
                SELECT ref_id, first_id, second_id, sum(CASE WHEN first_id = 0 THEN 1 ELSE 0 END) OVER () AS n_added,
                    sum(CASE WHEN second_id = 0 THEN 1 ELSE 0 END) OVER () AS n_removed, count(*) OVER () AS n
                FROM ({_DIFFERING}) either
            ) differing JOIN {PREFIX}refs r ON r.id = differing.ref_id
            LEFT JOIN {PREFIX}instances a ON a.id = differing.first_id LEFT JOIN {PREFIX}instances b ON b.id = differing.second_id
            ORDER BY r.ref LIMIT ?"""
        rows = self._all(sql, second, first, first, second, most)
        if not rows:
            return InputCounts(0, 0, 0), []
        n_added, n_removed, n = map(int, rows[0][:3])
        return InputCounts(n_added, n_removed, n - n_added - n_removed), _PAIR.rows([row[3:] for row in rows])
