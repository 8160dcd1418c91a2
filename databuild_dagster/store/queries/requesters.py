"""The requesters of wants, by request id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import BITS, PREFIX
from databuild_dagster.store.queries.asking import Asking
from databuild_dagster.store.selection import Selection


class Requester(NamedTuple):
    """The requester of the first want of a request."""

    request_id: str
    source: str
    source_id: str | None
    comment: str
    actor: str


_REQUESTER = Selection(Requester, "w", actor=f"(SELECT e.actor FROM {PREFIX}events e WHERE e.seq = w.id >> {BITS})")


class RequesterQueries(Asking):
    """Requesters."""

    def requesters(self, request_ids: Iterable[str]) -> dict[str, Requester]:
        """The requester of each request; another name, such as a Dagster run, is left out."""
        sql = f"""
            SELECT {_REQUESTER.columns} FROM {PREFIX}wants w WHERE w.id IN (
                SELECT min(x.id) FROM {PREFIX}wants x WHERE x.request_id IN (SELECT value FROM json_each(?))
                GROUP BY x.request_id)"""
        return {requester.request_id: requester for requester in _REQUESTER.rows(self._all(sql, Keys(request_ids)))}
