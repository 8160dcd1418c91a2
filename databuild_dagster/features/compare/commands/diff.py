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
from databuild_dagster.features.compare.commands.tables import key_and_markdown, print_partitions
from databuild_dagster.features.compare.differences import diff_of, instances_to_compare
from databuild_dagster.features.compare.ranges import RangeDifference, differences_of, summed
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.queries.ids import IdKind, short_id

#: The facts that are worth a line where they differ; times and ids always do.
_FACTS = ("state", "rows", "bytes", "n_files", "n_inputs", "job", "actor")


class InstancesOfOneRef(Refused):
    """--from and --to name two instances of one REF, and go without --as-of, --key, --markdown and further REFS."""


@click.command()
@click.option("--from", "first", metavar="UUID", help="The earlier instance, also of another partition.")
@click.option("--to", "second", metavar="UUID", help="The later instance instead of the canonical one.")
@key_and_markdown
@as_of
@tabular
@selection
def diff(
    selection: Selection,
    first: str | None,
    second: str | None,
    key: tuple[str, ...],
    markdown: bool,
    as_of: str | None,
    as_json: bool,
) -> None:
    """Compare REFS with before: inputs, code, rows, columns.

    By default the canonical instance is compared with the last earlier instance that was live, with --as-of with the canonical
    instance of that time. One REF alone is compared by its records. Several, or one with --as-of or --key, are compared by their
    rows: partitions whose rows are equal in any order are counted, and each other is a line. No file is read of partitions that are
    equal by the hashes of rows or files that their builds recorded.
    """
    queries = the_queries()
    by_rows = bool(as_of or key or markdown)
    if (first or second) and (by_rows or len(selection.names) > 1):
        raise InstancesOfOneRef
    refs = selection.refs(queries)
    if by_rows or len(refs) != 1:
        then = moment(queries, as_of) if as_of else None
        _print_range(summed(differences_of(queries, refs, then, key)), markdown, as_json)
        return
    ref = refs[0]
    canonical_of(queries, ref)
    first, second = (text and queries.ids.full(IdKind.INSTANCE, text) for text in (first, second))
    _print_instances(json_of(diff_of(queries, *instances_to_compare(queries, ref, first, second))), as_json)


def _print_range(found: RangeDifference, markdown: bool, as_json: bool) -> None:
    if as_json:
        emit(json_of(found))
        return
    if markdown:
        click.echo(f"**{found.sentence}**")
        print_partitions(found.partitions, markdown=True)
        return
    print_partitions(found.partitions, markdown=False)
    click.echo(f"{'' if found.partitions else 'No partition differs: '}{found.sentence}.")


def _print_instances(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit(found)
        return
    a, b = found["a"], found["b"]
    click.echo(f"before  {_titled(a)}")
    click.echo(f"after   {_titled(b)}")
    rows = list(_rows(found))
    table(("what", "before", "after"), rows, empty="They have the same inputs, code, configuration, rows and columns.")
    if found["equal_by_hash"]:
        click.echo("Their rows are equal by hash.")
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
