"""The local Spark server of a home, as the tests and the benchmarks look at it."""

from __future__ import annotations

from pathlib import Path

from databuild_dagster.spark.server import ServerStatus, server_statuses


def server_status(home: str | Path) -> ServerStatus | None:
    """The youngest running server of a home, None if there is none."""
    return next(iter(server_statuses(home)), None)
