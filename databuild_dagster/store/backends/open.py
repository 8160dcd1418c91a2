"""From a url to the database that it names."""

from __future__ import annotations

import sqlalchemy as sa

from databuild_dagster.store.backends.base import Database
from databuild_dagster.store.errors import UnsupportedDatabase


def database_of(url: str) -> Database:
    """Raises `UnsupportedDatabase`, `MissingDriver`, `StoreUnusable`."""
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        # The text after an @ is not a password.
        raise UnsupportedDatabase(url=url.rpartition("@")[2]) from None
    backend = parsed.get_backend_name()
    # Loaded on use: one needs a driver that most installations lack, the other locks by the kernel.
    if backend == "sqlite":
        from databuild_dagster.store.backends.sqlite import SqliteDatabase

        return SqliteDatabase(url, parsed)
    if backend == "postgresql":
        from databuild_dagster.store.backends.postgres import PostgresDatabase

        return PostgresDatabase(url, parsed)
    raise UnsupportedDatabase(url=parsed.render_as_string(hide_password=True))
