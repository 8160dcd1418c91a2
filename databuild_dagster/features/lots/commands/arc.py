"""`databuild lot list --subscriptions`: which lots the arcs are done with (rule 10.5). Loads no user code."""

from collections import Counter

import click

from databuild_dagster.cli.options import tabular
from databuild_dagster.cli.output import emit, listing, shown, table
from databuild_dagster.cli.state import the_instance, the_queries
from databuild_dagster.data.read_plan import unknown_sources
from databuild_dagster.features.lots.arc_shapes import ShownArcLot, arcs_in_force, sources_of
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.records import columns_of, extended
from databuild_dagster.model.states import ArcState


@click.command("list")
@click.argument("arc", required=False)
@click.option("--list", "as_list", is_flag=True, help="List every lot with its state instead of counts.")
@click.option(
    "--state", type=click.Choice([state.value for state in ArcState]), help="Only lots in this state; implies --list."
)
@tabular
def list_arcs(arc: str | None, as_list: bool, state: str | None, as_json: bool) -> None:
    """Count the lots of assets that subscribe, by state.

    With --json every lot is listed.
    """
    queries = the_queries()
    chosen = arcs_in_force(queries, arc)
    if not chosen:
        table((), (), empty="No asset subscribes to another.") if not as_json else emit([])
        return
    from databuild_dagster.features.lots.arc_lots import lots_of_arc

    instance = the_instance()
    lots = {spec.asset: list(lots_of_arc(queries, instance, spec)) for spec in chosen}
    listed = [lot for of_arc in lots.values() for lot in of_arc if state in (None, lot.state.value)]
    if as_json or as_list or state is not None:
        sources = {spec.asset: sources_of(spec) for spec in chosen}
        records = [extended(ShownArcLot, lot, sources=sources[lot.arc]) for lot in listed]
        empty = f"No lot is {state}." if state else "There are no lots yet."
        listing(records, columns_of(ShownArcLot, "lot", "state", "stale"), empty=empty, as_json=as_json)
    else:
        _summarize(chosen, {asset: Counter(lot.state for lot in of_arc) for asset, of_arc in lots.items()})
    for sentence in unknown_sources(queries.datasets.all().values(), chosen):
        click.echo(f"Warning: {sentence}", err=True)


def _summarize(chosen: list[DatasetSpec], counts: dict[str, Counter[ArcState]]) -> None:
    rows = [
        (spec.asset, shown(sources_of(spec)), *(counts[spec.asset][state] for state in ArcState)) for spec in chosen
    ]
    table(("arc", "subscribes to", *(state.value for state in ArcState)), rows, empty="")
