"""`databuild status --locations` and `--forget`: which code locations have registered what. Loads no user code."""

from collections import defaultdict

import click

from databuild_dagster.cli.options import common, tabular
from databuild_dagster.cli.output import answer, count, listing, shown
from databuild_dagster.cli.state import the_engine, the_queries
from databuild_dagster.engine.holders import this_user
from databuild_dagster.engine.orchestrator_notes import absence_of
from databuild_dagster.model.commands import RegisterDatasets
from databuild_dagster.model.errors import NotFound, Refused
from databuild_dagster.model.records import Column


class StillTicks(Refused):
    """The orchestrator of location {location!r} ticks, and its next tick registers the location again."""

    hint = "Stop its code location first, or add --yes."


@click.command("list")
@tabular
def list_locations(as_json: bool) -> None:
    """List the code locations and their assets."""
    found: dict[str, list[str]] = defaultdict(list)
    for dataset in the_queries().datasets.all().values():
        found[dataset.location].append(dataset.asset)
    records = [{"location": location, "assets": sorted(assets)} for location, assets in sorted(found.items())]
    columns = (Column("location"), Column("n", "assets", text=len), Column("assets"))
    listing(records, columns, empty="No code location has registered anything yet.", as_json=as_json)


@click.command("forget")
@click.argument("location")
@click.option("--yes", is_flag=True, help="Do it although the location's orchestrator ticks.")
@common
def forget(location: str, yes: bool, as_json: bool) -> None:
    """Remove the registration of a LOCATION that is gone.

    Its partitions, and what they hold, stay as they are. A location that still loads registers itself again.
    """
    engine = the_engine()
    assets = sorted(dataset.asset for dataset in engine.queries.datasets.all(location).values())
    if not assets:
        raise NotFound(kind="code location with registered assets", name=location)
    if not yes and absence_of(engine, location) is None:
        raise StillTicks(location=location)
    engine.handle(RegisterDatasets(location=location, datasets=()), actor=this_user())
    sentence = f"{location} has no assets any more; it had {count(len(assets), 'asset')}: {shown(assets)}."
    answer({"location": location, "forgotten": assets}, sentence, as_json=as_json)
