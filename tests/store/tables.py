"""All rows of the tables of a store, to compare stores with each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from databuild_dagster.store import schema
from databuild_dagster.store.store import Store


def rows_of(store: Store, tables: Iterable[sa.Table] = schema.PROJECTIONS) -> dict[str, list[Any]]:
    """Sorted by all of a row: two that are equal in their first columns have no order of their own."""
    with store.reading() as connection:
        return {
            table.name: sorted(connection.execute(f"SELECT * FROM {table.name}").fetchall(), key=repr)
            for table in tables
        }
