"""What can go wrong with the database itself."""

from __future__ import annotations

from databuild_dagster.model.errors import DatabuildError


class StoreUnusable(DatabuildError):
    """The build state in {url} cannot be used: {why}."""

    hint = "Look at the rights of that folder and at the free space of its disk, then try again: nothing was half-recorded."


class NewerStore(DatabuildError):
    """The build state in {url} was written by a newer databuild_dagster (log version {found}; this one reads {known})."""

    hint = "Upgrade the package here: pip install --upgrade databuild_dagster."


class OlderProjection(DatabuildError):
    """The tables in {url} were computed by another version ({found}; this one needs {known})."""

    hint = "Run `databuild rebuild`: the log is untouched, the tables are computed anew from it."


class UnsupportedDatabase(DatabuildError):
    """{url} is no database this version can keep its log in."""

    hint = "Use sqlite:///path/to/databuild.db in DATABUILD_DB_URL, or leave it unset."
