"""`log check` as tests ask it: with the invariants of all features."""

from __future__ import annotations

from databuild_dagster.feature import rows
from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.check import check as check_store
from databuild_dagster.store.invariants import Violation
from databuild_dagster.store.invariants import violations as violations_of
from databuild_dagster.store.store import Store


def check(store: Store, *, deep: bool = False) -> list[Violation]:
    """All violations of a store."""
    return check_store(store, deep=deep, further=rows(lambda feature: feature.invariants))


def violations(connection: Connection) -> list[Violation]:
    """The violations of the invariants, without a fold of the log."""
    return violations_of(connection, rows(lambda feature: feature.invariants))
