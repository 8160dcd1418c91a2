"""`databuild status`: how many partitions of each asset are in which state, who waits, and whether an orchestrator ticks.

It loads no user code. Dagster is imported only to count the partitions of an unusual definition, such as a dynamic one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import click

from databuild_dagster.calls.status import NAMES, AssetStatus, status_of
from databuild_dagster.cli.options import tabular
from databuild_dagster.cli.output import count, emit, shown, table
from databuild_dagster.cli.state import HomeInstance, the_engine
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.wording import pause_in_words
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.rows import PauseRow
from databuild_dagster.model.set_aside import Subject
from databuild_dagster.model.wording import typed
from databuild_dagster.shapes.fields import json_of, when
from databuild_dagster.shapes.orchestrators import Orchestrator
from databuild_dagster.shapes.outages import outages_with_refs
from databuild_dagster.shapes.partitions import shown_pause
from databuild_dagster.store.queries.planning import AsideSubject
from databuild_dagster.store.queries.wants import WantView

#: The text fits one screen. JSON has all.
MAX_ASSETS = 25


@click.command("status")
@tabular
def status(as_json: bool) -> None:
    """Show all assets by state, open wants and orchestrators.

    A waiting ref waits for inputs or for its retry. The failed refs include those with a failed input. Wants that job runs
    recorded for their inputs are left out.
    """
    engine = the_engine()
    found = status_of(engine, HomeInstance)
    assets, wants, orchestrators = found.assets, found.wants, found.orchestrators
    if as_json:
        answer = _as_json(assets, wants, found.open_wants, orchestrators)
        paused = [_pause_as_dict(of_asset) for of_asset in found.paused]
        asides = _asides_as_json(engine, found.set_aside)
        unwanted_as_json = {"count": found.n_unwanted, "refs": found.unwanted}
        outages = {"outages": outages_with_refs(engine)}
        further = {field: part.shape for field, part in found.parts.items()}
        emit({**answer, "unwanted": unwanted_as_json, "paused": paused, "set_aside": asides, **outages, **further})
        return
    _print_assets(assets)
    for asset in assets:
        if asset.n_gone:
            click.echo(
                f"{asset.asset}: readers leave out {count(asset.n_gone, 'live partition')} whose keys the definition does not have "
                f"any more. `databuild partitions {typed(asset.asset)}` marks them."
            )
    for of_asset in found.paused:
        names = asset_of(of_asset[0].ref) if of_asset[0].is_whole else shown([pause.ref for pause in of_asset], 3)
        click.echo(f"{names}: {pause_in_words(of_asset[0].ref, of_asset[0])}")
    _print_wants(wants, found.open_wants)
    if found.unwanted:
        click.echo(
            f"{count(found.n_unwanted, 'waiting ref')} without an open want, so nothing builds them. To continue with the oldest: "
            f"databuild build {typed(*found.unwanted)}"
        )
    # Outages have sentences of their own.
    aside = [row for row in found.set_aside if row.kind not in (Subject.OUTAGE, Subject.HOLD)]
    if aside:
        click.echo(
            f"Refs, arcs, launches, files and tables set aside for now: {len(aside)}; first {aside[0].name}: {aside[0].reason}"
        )
    for sentence in chain.from_iterable(orchestrator.outages for orchestrator in orchestrators):
        click.echo(sentence)
    for part in found.parts.values():
        for sentence in part.sentences:
            click.echo(sentence)
    for orchestrator in orchestrators:
        click.echo(orchestrator.sentence)


def _pause_as_dict(of_asset: Sequence[PauseRow]) -> dict[str, object]:
    """`refs` is null for all partitions, present and future."""
    refs = None if of_asset[0].is_whole else [pause.ref for pause in of_asset]
    return {"asset": asset_of(of_asset[0].ref), "refs": refs, **json_of(shown_pause(of_asset[0]))}


def _print_assets(assets: Sequence[AssetStatus]) -> None:
    """If more assets exist than fit, the fully live assets share a line."""
    listed = assets if len(assets) <= MAX_ASSETS else [asset for asset in assets if not asset.is_all_live][:MAX_ASSETS]
    rows = [(asset.asset, *(asset.counts[name] or None for name in NAMES)) for asset in listed]
    empty = "No code location has registered an asset yet. `databuild build` registers what it loads."
    if assets and not listed:
        empty = f"All partitions of {count(len(assets), 'asset')} are live."
    table(("asset", *NAMES), rows, empty=empty)
    left_out = [asset for asset in assets if asset not in listed]
    n_live = sum(asset.is_all_live for asset in left_out)
    if listed and n_live:
        click.echo(f"{count(n_live, 'more asset')}: all partitions are live.")
    if others := len(left_out) - n_live:
        click.echo(f"{count(others, 'more asset')}: not everything is live. `databuild status --json` lists all.")


def _print_wants(wants: Sequence[WantView], n_wants: int) -> None:
    click.echo("")
    columns = ("open want", "refs", "state", "source", "deadline")
    rows = [(want.id, shown(want.refs, 1), want.state.value, want.source, when(want.deadline)) for want in wants]
    table(columns, rows, empty="No wants are open.")
    if n_wants > len(wants):
        click.echo(f"{count(n_wants - len(wants), 'more open want')}: `databuild want list` shows them.")


def _as_json(
    assets: Sequence[AssetStatus], wants: Sequence[WantView], n_wants: int, orchestrators: Sequence[Orchestrator]
) -> dict[str, object]:
    return {
        "assets": [asset.as_dict() for asset in assets],
        "open_wants": n_wants,
        "wants": [
            {"id": want.id, "refs": want.refs, "state": want.state, "source": want.source, "deadline": want.deadline}
            for want in wants
        ],
        "orchestrators": orchestrators,
    }


def _asides_as_json(engine: Engine, asides: Sequence[AsideSubject]) -> list[dict[str, object]]:
    noted = {location: engine.heartbeats.tries(location) for location in {aside.location for aside in asides}}
    return [
        {
            **aside._asdict(),
            "tries": None if (tries := noted[aside.location].get(aside.name)) is None else tries.n,
            "again_at": None if tries is None else when(tries.again_at),
        }
        for aside in asides
    ]
