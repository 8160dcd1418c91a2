"""`databuild read REFS`: the rows of what readers see, without Spark."""

from typing import Any

import click

from databuild_dagster.calls.cells import plain
from databuild_dagster.calls.streams import printing_data
from databuild_dagster.cli.known_refs import why_not
from databuild_dagster.cli.options import Count, Selection, as_of, moment, one_by_one, selection, tabular
from databuild_dagster.cli.output import count, emit, table
from databuild_dagster.cli.state import the_queries
from databuild_dagster.data.read_plan import Readable, damage_named, readable_refs
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.warehouse.file_index import narrowed
from databuild_dagster.warehouse.files import read_table
from databuild_dagster.warehouse.filters import matching_rows, parsed_filter


@click.command()
@selection
@click.option(
    "--where",
    metavar="SQL",
    default=None,
    help="Only the rows for which it is true, as in \"carrier = 'AA' and dep_delay > 60\"; files of which an index says "
    "that they have none are not read.",
)
@click.option("--limit", type=Count(0), default=None, help="Number of rows of each ref at most.")
@as_of
@click.option("--allow-tainted", is_flag=True, help="Read the data although it is tainted.")
@tabular
def read(
    selection: Selection, where: str | None, limit: int | None, as_of: str | None, allow_tainted: bool, as_json: bool
) -> None:
    """Print the rows of REFS."""
    queries = the_queries()
    then = moment(queries, as_of)
    readable = readable_refs(queries, selection.refs(queries), then, why_not, allow_tainted=allow_tainted)
    for ref in one_by_one(list(readable), as_json=as_json, titled=True):
        one = readable[ref]
        with damage_named(queries.datasets.get(asset_of(ref)), {one.manifest.instance_uuid: ref}):
            _print(ref, one, where, limit, as_json=as_json)


def _print(ref: Ref, one: Readable, where: str | None, limit: int | None, *, as_json: bool) -> None:
    found = read_table(one.warehouse, [one.manifest], limit=limit) if where is None else _matching(one, where, limit)
    rows = found.to_pylist()
    if as_json:
        emit(plain(rows))
        return
    empty = "No row was asked for." if limit == 0 else f"{ref} has no rows."
    with printing_data():
        table(found.column_names, [[_shown(cell) for cell in row.values()] for row in rows], empty=empty, of_ours=False)


def _matching(one: Readable, where: str, limit: int | None) -> Any:
    wanted = parsed_filter(where)
    (manifest,), files = narrowed(one.warehouse, [one.manifest], wanted)
    click.echo(f"{files.files} of {count(files.of, 'file')} read.", err=True)
    found = read_table(one.warehouse, [manifest])
    rows = matching_rows(found, wanted) if manifest.files else found
    return rows if limit is None else rows.slice(0, limit)


def _shown(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else plain(value)
