"""From a url to the database that it names. A database is imported on use, and a file's url needs no SQLAlchemy."""

from __future__ import annotations

import re
from urllib.parse import unquote

from databuild_dagster.store.backends.base import Database
from databuild_dagster.store.errors import AtInPassword, UnsupportedDatabase

_FILE = "sqlite:///"


def database_of(url: str) -> Database:
    """Raises `UnsupportedDatabase`, `MissingDriver`, `StoreUnusable`."""
    if url.startswith(_FILE):
        return _sqlite(url, unquote(url.removeprefix(_FILE).partition("?")[0]))
    import sqlalchemy as sa

    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        # The text after an @ is not a password.
        raise UnsupportedDatabase(url=url.rpartition("@")[2]) from None
    if _has_bare_at(url):
        raise AtInPassword(url=url)
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return _sqlite(url, parsed.database or "")
    if backend == "postgresql":
        from databuild_dagster.store.backends.postgres import PostgresDatabase

        return PostgresDatabase(url, parsed)
    raise UnsupportedDatabase(url=parsed.render_as_string(hide_password=True))


def _has_bare_at(url: str) -> bool:
    """SQLAlchemy ends a password at its first `@`, so the driver would quote the rest of it as the name of a host."""
    after = url.partition("://")[2].partition(":")[2]
    return after.count("@") > 1 or ("@" in after and re.match(r"\d+[/?]", after) is not None)


def _sqlite(url: str, path: str) -> Database:
    from databuild_dagster.store.backends.sqlite import SqliteDatabase

    return SqliteDatabase(url, path)
