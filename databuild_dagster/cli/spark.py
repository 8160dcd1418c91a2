"""`databuild spark` and `spark --stop`: the shared local Spark server of the home."""

from dataclasses import asdict

import click

from databuild_dagster.cli.options import common, tabular
from databuild_dagster.cli.output import answer, listing
from databuild_dagster.cli.state import dagster_home
from databuild_dagster.model.records import Column
from databuild_dagster.spark.server import server_statuses, stop_server

COLUMNS = (
    Column("pid"),
    Column("host"),
    Column("port"),
    Column("up", "uptime_seconds", text="{:.0f} s".format),
    Column("Spark", "version"),
    Column("in use"),
    Column("ends in", "ends_in_seconds", text=lambda seconds: "-" if seconds is None else f"{seconds / 60:.0f} min"),
    Column("UI", "ui"),
    Column("log"),
)


@click.command()
@tabular
def status(as_json: bool) -> None:
    """Show the shared Spark server: address, age, use and UI."""
    empty = "This home has no Spark server. Builds start one if their Spark is a local one."
    records = [{**asdict(server), "ui": server.ui_url} for server in server_statuses(dagster_home())]
    listing(records, COLUMNS, empty=empty, as_json=as_json)


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
    answer({"stopped": stopped, "was_in_use": stopped and in_use}, sentence, as_json=as_json)
