"""What the questions of every subject share: the store that is asked, and pieces of SQL."""

from __future__ import annotations

from typing import Any

from databuild_dagster.store.schema import BITS
from databuild_dagster.store.store import Store

#: Ids that begin with a larger one would not fit into the database's integers.
MAX_SEQ = (1 << (62 - BITS)) - 1


#: The refs of one dataset, by the index over their texts: the asset itself, or whatever stands behind its first `@`.
OF_DATASET = "(r.ref = ? OR (r.ref >= ? AND r.ref < ?)) "


def dataset_range(asset: str) -> tuple[str, str, str]:
    return asset, asset + "@", asset + chr(ord("@") + 1)


class Asking:
    """A store, and how it is asked."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def url(self) -> str:
        """Of the store that is asked."""
        return self._store.url

    def _all(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self._store.ask(sql, parameters)
