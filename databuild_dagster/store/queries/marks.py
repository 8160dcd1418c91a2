"""The state of many partitions at once, as a calendar shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.queries.asking import OF_DATASET, Asking, dataset_range
from databuild_dagster.store.selection import Selection


class Marked(NamedTuple):
    """A ref with the state of its canonical instance."""

    ref: Ref
    state: InstanceState | None
    #: "complete" or "empty" once the instance was live, "removed" after a removal.
    manifest_state: str | None
    uuid: str | None
    is_wanted: bool


class MarkedGroup(NamedTuple):
    """The number of refs with equal beginnings that have the same state."""

    #: The first characters of the partition keys.
    beginning: str
    state: InstanceState | None
    is_wanted: bool
    n: int


_MARKED = Selection(Marked, "r", manifest_state="i.manifest_state", uuid="i.uuid", is_wanted="r.n_open_wants > 0")
_GROUP = Selection(
    MarkedGroup, "r", beginning="substr(r.ref, ?, ?)", is_wanted="r.n_open_wants > 0 AS is_wanted", n="count(*)"
)


class MarkQueries(Asking):
    """States for calendars."""

    def marked(self, refs: Iterable[Ref]) -> list[Marked]:
        """Those of the refs that were ever wanted or built, by key."""
        sql = f"""
            SELECT {_MARKED.columns} FROM {PREFIX}refs r LEFT JOIN {PREFIX}instances i ON i.id = r.canonical_id
            WHERE r.ref IN (SELECT value FROM json_each(?))"""
        return _MARKED.rows(self._all(sql, Keys(refs)))

    def marked_groups(self, asset: str, n_characters: int) -> list[MarkedGroup]:
        """The refs of a dataset, counted by the beginning of their partition keys. Looks at every ref of the dataset."""
        sql = f"""
            SELECT {_GROUP.columns} FROM {PREFIX}refs r WHERE {OF_DATASET} GROUP BY 1, 2, 3"""
        return _GROUP.rows(self._all(sql, len(asset) + 2, n_characters, *dataset_range(asset)))
