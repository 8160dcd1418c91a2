"""`databuild status`: how many partitions of each asset are in which state, who waits, and whether an orchestrator ticks.

It loads no user code. Dagster is imported only to count the partitions of an unusual definition, such as a dynamic one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain

import click

from databuild_dagster.bindings.registry.selections import existing_refs
from databuild_dagster.cli.options import tabular
from databuild_dagster.cli.output import count, emit, shown, table
from databuild_dagster.cli.state import the_engine, the_instance
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.wording import pause_in_words
from databuild_dagster.feature import rows
from databuild_dagster.model.datasets import DatasetKind, DatasetSpec
from databuild_dagster.model.refs import asset_of, partition_key_of
from databuild_dagster.model.rows import PauseRow
from databuild_dagster.model.selections import STATE_WORDS
from databuild_dagster.model.set_aside import Subject
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import typed
from databuild_dagster.shapes.fields import json_of, when
from databuild_dagster.shapes.orchestrators import Orchestrator, orchestrators_of
from databuild_dagster.shapes.outages import outages_with_refs
from databuild_dagster.shapes.partitions import shown_pause
from databuild_dagster.store.queries.planning import AsideSubject
from databuild_dagster.store.queries.wants import WantFilter, WantView

#: The columns.
NAMES = tuple(dict.fromkeys(STATE_WORDS.values()))
#: The text fits one screen. JSON has all.
MAX_ASSETS = 25
MAX_WANTS = 8
#: Refs that no open want names, in the command that continues with them.
MAX_UNWANTED = 3
#: The open wants that no job run recorded for its inputs (rule 6.4).
ASKED_WANTS = WantFilter(open_only=True, derivative=False)


@dataclass(frozen=True)
class AssetStatus:
    """The partitions of one asset, counted by column."""

    asset: str
    counts: Counter[str]
    #: Live partitions whose keys the definition does not have any more; they are not among the counted.
    n_gone: int

    @property
    def is_all_live(self) -> bool:
        return set(+self.counts) <= {"live"}

    def as_dict(self) -> dict[str, object]:
        return {"asset": self.asset, **{name: self.counts[name] for name in NAMES}, "gone": self.n_gone}


@click.command("status")
@tabular
def status(as_json: bool) -> None:
    """Show all assets by state, open wants and orchestrators.

    A waiting ref waits for inputs or for its retry. The failed refs include those with a failed input. Wants that job runs
    recorded for their inputs are left out.
    """
    engine = the_engine()
    datasets = sorted(engine.queries.datasets().values(), key=lambda spec: spec.asset)
    assets = [_count(engine, spec) for spec in datasets]
    wants = engine.queries.wants(ASKED_WANTS, most=MAX_WANTS)
    n_wants = engine.queries.n_wants(ASKED_WANTS)
    orchestrators = orchestrators_of(engine, datasets)
    pauses = _grouped(engine.queries.pauses_in_force(engine.now()))
    n_unwanted, unwanted = engine.queries.unwanted(MAX_UNWANTED)
    aside = engine.queries.set_aside()
    parts = {row.field: row.show(datasets, the_instance) for row in rows(lambda feature: feature.status_parts)}
    if as_json:
        answer = _as_json(assets, wants, n_wants, orchestrators)
        paused = [_pause_as_dict(of_asset) for of_asset in pauses]
        asides = _asides_as_json(engine, aside)
        unwanted_as_json = {"count": n_unwanted, "refs": unwanted}
        outages = {"outages": outages_with_refs(engine)}
        further = {field: part.shape for field, part in parts.items()}
        emit({**answer, "unwanted": unwanted_as_json, "paused": paused, "set_aside": asides, **outages, **further})
        return
    _print_assets(assets)
    for asset in assets:
        if asset.n_gone:
            click.echo(
                f"{asset.asset}: readers leave out {count(asset.n_gone, 'live partition')} whose keys the definition does not have "
                f"any more. `databuild partitions {typed(asset.asset)}` marks them."
            )
    for of_asset in pauses:
        names = asset_of(of_asset[0].ref) if of_asset[0].is_whole else shown([pause.ref for pause in of_asset], 3)
        click.echo(f"{names}: {pause_in_words(of_asset[0].ref, of_asset[0])}")
    _print_wants(wants, n_wants)
    if unwanted:
        click.echo(
            f"{count(n_unwanted, 'waiting ref')} without an open want, so nothing builds them. To continue with the oldest: "
            f"databuild build {typed(*unwanted)}"
        )
    # Outages have sentences of their own.
    aside = [found for found in aside if found.kind not in (Subject.OUTAGE, Subject.HOLD)]
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


def _grouped(pauses: list[PauseRow]) -> list[list[PauseRow]]:
    """One group for each command and asset."""
    groups: dict[tuple[int, str, int], list[PauseRow]] = {}
    for pause in pauses:
        groups.setdefault((pause.seq, asset_of(pause.ref), pause.is_whole), []).append(pause)
    return list(groups.values())


def _pause_as_dict(of_asset: list[PauseRow]) -> dict[str, object]:
    """`refs` is null for all partitions, also those to come."""
    refs = None if of_asset[0].is_whole else [pause.ref for pause in of_asset]
    return {"asset": asset_of(of_asset[0].ref), "refs": refs, **json_of(shown_pause(of_asset[0]))}


def _count(engine: Engine, spec: DatasetSpec) -> AssetStatus:
    states = engine.queries.states_of_dataset(spec.asset)
    live = [ref for ref, state in states.items() if state is InstanceState.LIVE]
    gone = engine.catalog.left_out(spec, [partition_key_of(ref) for ref in live])
    counts = Counter(STATE_WORDS[state] for state in states.values())
    counts[STATE_WORDS[InstanceState.LIVE]] -= len(gone)
    if spec.kind is not DatasetKind.SOURCE:
        counts[STATE_WORDS[None]] = sum(ref not in states for ref in existing_refs(spec, the_instance))
    return AssetStatus(spec.asset, counts, len(gone))


def _print_assets(assets: list[AssetStatus]) -> None:
    """More assets than fit: those that are live altogether become one line."""
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


def _print_wants(wants: list[WantView], n_wants: int) -> None:
    click.echo("")
    columns = ("open want", "refs", "state", "source", "deadline")
    rows = [(want.id, shown(want.refs, 1), want.state.value, want.source, when(want.deadline)) for want in wants]
    table(columns, rows, empty="No wants are open.")
    if n_wants > len(wants):
        click.echo(f"{count(n_wants - len(wants), 'more open want')}: `databuild want list` shows them.")


def _as_json(
    assets: list[AssetStatus], wants: list[WantView], n_wants: int, orchestrators: list[Orchestrator]
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


def _asides_as_json(engine: Engine, asides: list[AsideSubject]) -> list[dict[str, object]]:
    noted = {location: engine.heartbeats.tries(location) for location in {aside.location for aside in asides}}
    return [
        {
            **aside._asdict(),
            "tries": None if (tries := noted[aside.location].get(aside.name)) is None else tries.n,
            "again_at": None if tries is None else when(tries.again_at),
        }
        for aside in asides
    ]
