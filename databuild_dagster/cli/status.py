"""`databuild status`: how many partitions of each asset are in which state, who waits, and whether an orchestrator ticks.

It loads user code only where nothing is registered, to say that it cannot be loaded. Otherwise Dagster is
imported only to count the partitions of an unusual definition, such as a dynamic one.
"""

from collections.abc import Sequence
from itertools import chain

import click

from databuild_dagster.calls.status import NAMES, AssetStatus, OpenWant, status_of
from databuild_dagster.cli.definitions import why_not_loaded
from databuild_dagster.cli.options import Where, definitions, tabular
from databuild_dagster.cli.output import count, emit, shown, table
from databuild_dagster.cli.state import HomeInstance, the_engine
from databuild_dagster.engine.wording import json_of, when
from databuild_dagster.model.set_aside import Subject
from databuild_dagster.model.wording import one_line, typed

#: The text fits one screen. JSON has all.
MAX_ASSETS = 25


@click.command("status")
@definitions
@tabular
def status(where: Where, as_json: bool) -> None:
    """Show all assets by state, open wants and orchestrators.

    A waiting ref waits for inputs or for its retry. The failed refs include those with a failed input. Wants that job runs
    recorded for their inputs are left out.
    """
    found, parts = status_of(the_engine(), HomeInstance)
    assets, orchestrators = found.assets, found.orchestrators
    if as_json:
        emit({**json_of(found), **{field: part.shape for field, part in parts.items()}})
        return
    _print_assets(assets, where)
    for asset in assets:
        if asset.gone:
            click.echo(
                f"{asset.asset}: readers leave out {count(asset.gone, 'live partition')} whose keys the definition does not have "
                f"any more. `databuild partitions {typed(asset.asset)}` marks them."
            )
    for pause in found.paused:
        names = pause.asset if pause.refs is None else shown(pause.refs, 3)
        until = "" if pause.until is None else f" until {when(pause.until)}"
        click.echo(f"{names}: paused by {pause.actor} since {when(pause.paused_at)}{until}: {one_line(pause.reason)}")
    _print_wants(found.wants, found.open_wants)
    if found.unwanted.refs:
        click.echo(
            f"{count(found.unwanted.count, 'waiting ref')} without an open want, so nothing builds them. To continue with the "
            f"oldest: databuild build {typed(*found.unwanted.refs)}"
        )
    # Outages have sentences of their own.
    aside = [row for row in found.set_aside if row.kind not in (Subject.OUTAGE, Subject.HOLD)]
    if aside:
        click.echo(
            f"Refs, arcs, launches, files and tables set aside for now: {len(aside)}; first {aside[0].name}: {aside[0].reason}"
        )
    for sentence in chain.from_iterable(orchestrator.outages for orchestrator in orchestrators):
        click.echo(sentence)
    for part in parts.values():
        for sentence in part.sentences:
            click.echo(sentence)
    for orchestrator in orchestrators:
        click.echo(orchestrator.sentence)


def _print_assets(assets: Sequence[AssetStatus], where: Where) -> None:
    """If more assets exist than fit, the fully live assets share a line."""
    listed = assets if len(assets) <= MAX_ASSETS else [asset for asset in assets if not asset.is_all_live][:MAX_ASSETS]
    rows = [asset.row for asset in listed]
    empty = "No code location has registered an asset yet. `databuild build` registers what it loads."
    if not assets and (why := why_not_loaded(where)) is not None:
        empty = f"No code location has registered an asset yet. {why}"
    if assets and not listed:
        empty = f"All partitions of {count(len(assets), 'asset')} are live."
    table(("asset", *NAMES), rows, empty=empty)
    left_out = [asset for asset in assets if asset not in listed]
    n_live = sum(asset.is_all_live for asset in left_out)
    if listed and n_live:
        click.echo(f"{count(n_live, 'more asset')}: all partitions are live.")
    if others := len(left_out) - n_live:
        click.echo(f"{count(others, 'more asset')}: not everything is live. `databuild status --json` lists all.")


def _print_wants(wants: Sequence[OpenWant], n_wants: int) -> None:
    click.echo("")
    columns = ("open want", "refs", "state", "source", "deadline")
    rows = [(want.id, shown(want.refs, 1), want.state, want.source, when(want.deadline)) for want in wants]
    table(columns, rows, empty="No wants are open.")
    if n_wants > len(wants):
        click.echo(f"{count(n_wants - len(wants), 'more open want')}: `databuild want list` shows them.")
