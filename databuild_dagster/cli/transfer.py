"""`databuild log export|import`: the event log as a file, from one database to another (rule 3.12)."""

from __future__ import annotations

import click

from databuild_dagster.cli.options import common
from databuild_dagster.cli.output import answer, count
from databuild_dagster.cli.state import the_store
from databuild_dagster.store.transfer import export_log, import_log


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@common
def export(file: str, as_json: bool) -> None:
    """Copy the event log into FILE, also during writes.

    FILE must not exist. It gets one line of JSON for each event, the same from SQLite and from PostgreSQL.
    """
    n_events = export_log(the_store(check_projections=False), file)
    answer({"file": file, "events": n_events}, f"Wrote {count(n_events, 'event')} to {file}.", as_json=as_json)


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@common
def import_(file: str, as_json: bool) -> None:
    """Bring the events of FILE into an empty build state.

    FILE is from `databuild log export`. All of it is imported, and the tables computed from it, or nothing. Stop every process
    of the original before the export. The warehouses are the original's until `databuild log take-over --yes`.
    """
    n_events = import_log(the_store(), file)
    sentence = (
        f"Imported {count(n_events, 'event')}. `databuild log take-over --yes` makes this build state the owner of its "
        "warehouses."
    )
    answer({"file": file, "events": n_events}, sentence, as_json=as_json)
