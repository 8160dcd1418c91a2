"""`databuild diff REFS`: two instances by their records, or partitions by their rows (rule 4.6)."""

import json
from collections.abc import Iterator
from typing import Any

import click

from databuild_dagster.cli.known_refs import canonical_of
from databuild_dagster.cli.options import Selection, as_of, moment, selection, tabular
from databuild_dagster.cli.output import emit, table
from databuild_dagster.cli.state import the_queries
from databuild_dagster.engine.wording import json_of
from databuild_dagster.features.compare.differences import diff_of, instances_to_compare
from databuild_dagster.features.compare.ranges import PartitionDifference, RangeDifference, differences_of, summed
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.queries.ids import IdKind, short_id

#: The facts that are worth a line where they differ; times and ids always do.
_FACTS = ("state", "rows", "bytes", "n_files", "n_inputs", "job", "actor")


#: Of a partition in a table: the heading, and the field.
_COLUMNS = (
    ("before", "rows_a"),
    ("after", "rows_b"),
    ("added", "added"),
    ("removed", "removed"),
    ("changed", "changed"),
)


class InstancesOfOneRef(Refused):
    """--from and --to name two instances of one REF, and go without --as-of, --key, --markdown and further REFS."""


@click.command()
@click.option("--from", "first", metavar="UUID", help="The earlier instance, also of another partition.")
@click.option("--to", "second", metavar="UUID", help="The later instance instead of the canonical one.")
@click.option(
    "--key", default="", metavar="COLUMN[,COLUMN]", help="The columns that name a row, to compare row by row."
)
@click.option("--markdown", is_flag=True, help="Print a table for a pull request.")
@as_of
@tabular
@selection
def diff(
    selection: Selection,
    first: str | None,
    second: str | None,
    key: str,
    markdown: bool,
    as_of: str | None,
    as_json: bool,
) -> None:
    """Compare REFS with before: inputs, code, rows, columns.

    By default the canonical instance is compared with the last earlier instance that was live, with --as-of with the canonical
    instance of that time. One REF alone is compared by its records. Several, or one with --as-of or --key, are compared by their
    rows: partitions whose rows are equal in any order are counted, and each other is a line.
    """
    queries = the_queries()
    by_rows = bool(as_of or key or markdown)
    if (first or second) and (by_rows or len(selection.names) > 1):
        raise InstancesOfOneRef
    refs = selection.refs(queries)
    if by_rows or len(refs) != 1:
        then = moment(queries, as_of) if as_of else None
        _print_range(
            summed(differences_of(queries, refs, then, tuple(filter(None, key.split(","))))), markdown, as_json
        )
        return
    ref = refs[0]
    canonical_of(queries, ref)
    first, second = (text and queries.ids.full(IdKind.INSTANCE, text) for text in (first, second))
    _print_instances(json_of(diff_of(queries, *instances_to_compare(queries, ref, first, second))), as_json)


def _print_range(found: RangeDifference, markdown: bool, as_json: bool) -> None:
    if as_json:
        emit(json_of(found))
        return
    counted = ", ".join(f"{n:,} {outcome}" for outcome, n in sorted(found.counts.items()))
    headings = ("partition", "outcome", *(heading for heading, _ in _COLUMNS), "columns")
    rows = [
        (of.ref, of.outcome, *(getattr(of, field) for _, field in _COLUMNS), _what_changed(of))
        for of in found.partitions
    ]
    if not markdown:
        table(headings, rows, empty="No partition differs.")
        click.echo(f"{counted or 'no partitions'}.")
        return
    click.echo(f"**{counted or 'no partitions'}**")
    if rows:
        click.echo("")
        for row in (headings, ("---",) * len(headings), *rows):
            cells = ("" if cell is None else str(cell).replace("|", "\\|") for cell in row)
            click.echo(f"| {' | '.join(cells)} |")


def _what_changed(found: PartitionDifference) -> str:
    said = [f"{column.name} {column.change}" for column in found.columns]
    said += [value.name if value.rows is None else f"{value.name} in {value.rows:,}" for value in found.values]
    return ", ".join([*said, *([found.note] if found.note else [])])


def _print_instances(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit(found)
        return
    a, b = found["a"], found["b"]
    click.echo(f"before  {_titled(a)}")
    click.echo(f"after   {_titled(b)}")
    rows = list(_rows(found))
    table(("what", "before", "after"), rows, empty="They have the same inputs, code, configuration, rows and columns.")
    n_more = sum(found["inputs"][change] for change in ("added", "removed", "changed")) - len(
        found["inputs"]["changes"]
    )
    if n_more > 0:
        click.echo(f"and {n_more:,} more inputs differ.")
    for side in (a, b):
        if side["note"]:
            click.echo(f"The columns of {short_id(side['uuid'])} are not known: {side['note']}", err=True)


def _titled(side: dict[str, Any]) -> str:
    return f"{side['ref']}, instance {short_id(side['uuid'])} of {side['at']}"


def _rows(found: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """A line for each difference."""
    a, b = ({**side, "taints": _taints(side)} for side in (found["a"], found["b"]))
    for name in (*_FACTS, "taints"):
        if a[name] != b[name]:
            yield name.removeprefix("n_"), a[name], b[name]
    for setting in found["settings"]:
        yield f"{setting['kind']} {setting['name']}", _text(setting["a"]), _text(setting["b"])
    for column in found["columns"]:
        yield f"column {column['name']}", column["a"], column["b"]
    for change in found["inputs"]["changes"]:
        yield f"input {change['ref']}", change["a"], change["b"]


def _taints(side: dict[str, Any]) -> str | None:
    return few_of([taint["reason"] for taint in side["taints"]]) or None


def _text(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else json.dumps(value)
