"""`databuild spark status|stop`: the shared local Spark server of the home."""

from __future__ import annotations

import click

from databuild_dagster.cli.options import common, tabular
from databuild_dagster.cli.output import emit, table
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
                {
                    "pid": s.pid,
                    "host": s.host,
                    "port": s.port,
                    "uptime_seconds": round(s.uptime_seconds, 1),
                    "version": s.version,
                    "ui": s.ui_url,
                }
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
            s.ui_url or "-",
            s.log,
        )
        for s in found
    ]
    table(
        ("pid", "address", "up", "Spark", "in use", "UI", "log"),
        rows,
        empty="No Spark server runs; the next build starts one.",
    )


@click.command()
@common
def stop(as_json: bool) -> None:
    """Stop the shared Spark server; the next build starts one.

    Builds that use the server lose it and retry.
    """
    home = dagster_home()
    in_use = any(server.in_use for server in server_statuses(home))
    stopped = stop_server(home)
    if as_json:
        emit({"stopped": stopped})
    elif not stopped:
        click.echo("No Spark server was running.")
    elif in_use:
        click.echo("The Spark server is stopped. Builds that used it are retried.")
    else:
        click.echo("The Spark server is stopped.")
