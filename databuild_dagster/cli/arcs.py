"""`databuild arcs`: which lots the arcs are done with (SPEC 10.5). Loads no user code."""

from __future__ import annotations

from collections import Counter

import click

from databuild_dagster.cli.options import common
from databuild_dagster.cli.output import count, emit, shown, table
from databuild_dagster.cli.state import the_instance, the_queries
from databuild_dagster.model.arcs import ArcState
from databuild_dagster.model.datasets import ArcSpec, DatasetSpec
from databuild_dagster.model.errors import NotFound
from databuild_dagster.store import Queries


@click.command()
@click.argument("arc", required=False)
@click.option("--list", "as_list", is_flag=True, help="Every lot with its state, instead of how many are in which.")
@click.option(
    "--state", type=click.Choice([state.value for state in ArcState]), help="Only lots in this state; implies --list."
)
@common
def arcs(arc: str | None, as_list: bool, state: str | None, as_json: bool) -> None:
    """The assets that subscribe to others, or ARC alone: how many of their lots are running, complete, partial, missing.

    With --json every lot is listed.
    """
    queries = the_queries()
    chosen = _chosen(queries, arc)
    if not chosen:
        table((), (), empty="No asset subscribes to another.") if not as_json else emit([])
        return
    from databuild_dagster.bindings.arc_lots import lots_of_arc

    instance = the_instance()
    lots = {each.asset: list(lots_of_arc(queries, instance, each)) for each in chosen}
    listed = [lot for of_arc in lots.values() for lot in of_arc if state in (None, lot.state.value)]
    if as_json:
        emit([{"arc": lot.arc, "lot": lot.lot, "state": lot.state.value, "uuid": lot.uuid} for lot in listed])
    elif as_list or state is not None:
        rows = [(lot.lot, lot.state.value + (" (stale)" if lot.is_stale else ""), lot.uuid) for lot in listed]
        table(("lot", "state", "instance"), rows, empty="No lot is so.")
    else:
        _summarize(queries, chosen, {asset: Counter(lot.state for lot in of_arc) for asset, of_arc in lots.items()})


def _chosen(queries: Queries, arc: str | None) -> list[DatasetSpec]:
    """Raises `NotFound`."""
    found = [spec for each in queries.arcs() if (spec := queries.dataset(each.asset)) is not None]
    if arc is None:
        return sorted(found, key=lambda spec: spec.asset)
    chosen = [spec for spec in found if spec.asset == arc]
    if not chosen:
        raise NotFound(kind="arc", name=arc)
    return chosen


def _summarize(queries: Queries, chosen: list[DatasetSpec], counts: dict[str, Counter[ArcState]]) -> None:
    rows = []
    unknown: list[str] = []
    for spec in chosen:
        assert isinstance(spec.arc, ArcSpec), "arcs in force are"
        sources = [source.asset for source in spec.arc.sources]
        unknown += [asset for asset in sources if queries.dataset(asset) is None]
        rows.append((spec.asset, shown(sources), *(counts[spec.asset][state] for state in ArcState)))
    table(("arc", "subscribes to", *(state.value for state in ArcState)), rows, empty="")
    if unknown:
        names = list(dict.fromkeys(unknown))
        click.echo(
            f"{shown(names)}: {count(len(names), 'source')} that no code location has registered, so nothing wakes by it."
        )
