"""The common part of the queries: the store, and pieces of SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from databuild_dagster.store.format import BITS
from databuild_dagster.store.places import Places
from databuild_dagster.store.store import Store

#: The largest seq whose row ids fit into the database's integers.
MAX_SEQ = (1 << (62 - BITS)) - 1

#: Counts that people read end here: the next number means "more than so many", and costs no more.
MAX_COUNTED = 10_000

#: The refs of one dataset, by the index over their texts: the asset itself, or the asset with an `@` and a key.
OF_DATASET = "(r.ref = ? OR (r.ref >= ? AND r.ref < ?)) "


def dataset_range(asset: str) -> tuple[str, str, str]:
    return asset, asset + "@", asset + chr(ord("@") + 1)


K = TypeVar("K")
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, tuple[V, ...]]:
    """The values of each key, in order."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in found.items()}


class Asking:
    """A store and its queries."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def url(self) -> str:
        """The url of the store."""
        return self._store.url

    @property
    def places(self) -> Places:
        """The whole paths of recorded ones."""
        return self._store.places

    @property
    def _whole(self) -> Callable[[str | None], str | None]:
        return self._store.places.whole

    def _all(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self._store.ask(sql, parameters)
