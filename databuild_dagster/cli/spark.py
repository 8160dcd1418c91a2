"""`databuild spark status|stop`: the shared local Spark server of the home."""

from __future__ import annotations

import click

from databuild_dagster.cli.options import common, tabular
from databuild_dagster.cli.output import answer, emit, picked, table
from databuild_dagster.cli.state import dagster_home
from databuild_dagster.spark.server import server_statuses, stop_server


@click.command()
@tabular
def status(as_json: bool) -> None:
    """Show the shared Spark server: address, age and UI."""
    found = server_statuses(dagster_home())
    if as_json:
        emit(
            [
                picked(s, "pid", "host", "port", "version")
                | {"uptime_seconds": round(s.uptime_seconds, 1), "ui": s.ui_url}
                for s in found
            ]
        )
        return
    rows = [
        (
            s.pid,
            f"{s.host}:{s.port}",
            f"{s.uptime_seconds:.0f} s",
            s.version,
            "yes" if s.in_use else "no",
            s.ui_url,
            s.log,
        )
        for s in found
    ]
    columns = ("pid", "address", "up", "Spark", "in use", "UI", "log")
    table(columns, rows, empty="No Spark server runs; the next build starts one.")


@click.command()
@common
def stop(as_json: bool) -> None:
    """Stop the shared Spark server; the next build starts one.

    Builds that use the server lose it and retry.
    """
    home = dagster_home()
    in_use = any(server.in_use for server in server_statuses(home))
    stopped = stop_server(home)
    sentence = "The Spark server is stopped." if stopped else "No Spark server was running."
    if stopped and in_use:
        sentence += " Builds that used it are retried."
    answer({"stopped": stopped}, sentence, as_json=as_json)
