"""`databuild lot gaps DATASET`: which lots of a range are missing, and why, as a picture, a table and JSON (rule 10.7)."""

from __future__ import annotations

from collections.abc import Sequence

import click

from databuild_dagster.cli.options import tabular
from databuild_dagster.cli.output import count, emit, table
from databuild_dagster.cli.state import the_engine
from databuild_dagster.features.lots.commands.calendar import calendar
from databuild_dagster.features.lots.gap_shapes import Stretch, gaps_of_dataset, stretches_of, when_of_lot
from databuild_dagster.features.lots.gaps import GapReport, gap_report
from databuild_dagster.model.lots import InvalidLotRange
from databuild_dagster.model.wording import few_of
from databuild_dagster.shapes.fields import json_of

#: Stretches of absent lots that the table for people has; a program gets every lot.
MAX_STRETCHES = 40


@click.command("gaps")
@click.argument("dataset")
@click.option(
    "--from",
    "start",
    metavar="TIME|KEY|LOT",
    help="Start of the range: a lot id, a partition key or a time. Default: where the partitions begin.",
)
@click.option(
    "--to",
    "end",
    metavar="TIME|KEY|LOT",
    help="End of the range, exclusive: a lot id, a partition key or a time. Default: where the partitions end.",
)
@click.option("--chain", is_flag=True, help="Also report on every dataset upstream of DATASET.")
@tabular
def gaps(dataset: str, start: str | None, end: str | None, chain: bool, as_json: bool) -> None:
    """Show which lots of DATASET are missing, and why.

    Both ends are rounded down to the beginning of a lot. A day is a day of the partitions' time zone. The report follows waits,
    failures and absent sources of arcs upstream to their first cause. With --chain it also follows lots that no want asks for, to the
    missing input.
    """
    reports, without = _reports(dataset, start, end, chain=chain)
    if as_json:
        of_chain = {"chain": [gaps_of_dataset(of_input) for of_input in reports[:-1]], "without_lots": list(without)}
        emit({**json_of(gaps_of_dataset(reports[-1])), **(of_chain if chain else {})})
        return
    for number, report in enumerate(reports):
        if number:
            click.echo()
        _print(report)
    if without:
        click.echo(f"Left out, for having no lots: {few_of(without)}.")


def _reports(
    asset: str, start: str | None, end: str | None, *, chain: bool
) -> tuple[Sequence[GapReport], Sequence[str]]:
    """The report asked for is the last one. Raises `UnknownAsset`, `NoLots`, `NoLotKey`, `InvalidTime`, `InvalidLotRange`."""
    from databuild_dagster.bindings.registry.cadences import lots_of, moment_of
    from databuild_dagster.features.lots.gap_ranges import chain_in_range

    engine = the_engine()
    spec = engine.queries.known_dataset(asset)
    lots = lots_of(spec)
    since, until = moment_of("--from", start, lots), moment_of("--to", end, lots)
    if since is not None and until is not None and since > until:
        raise InvalidLotRange(start=start, end=end, why="--from comes after --to")
    asked = lots.expected(engine.clock(), since, until)
    if not chain:
        return [gap_report(engine, asked)], ()

    return chain_in_range(engine, spec, asked)


def _print(report: GapReport) -> None:
    expected = report.expected
    cadence = expected.cadence
    click.echo(
        f"{click.style(report.asset, bold=True)}  {count(report.n_expected, 'lot')} of {cadence} expected from "
        f"{when_of_lot(expected.start, cadence)} to {when_of_lot(expected.end, cadence)}: {report.n_present:,} present "
        f"({len(report.empty):,} of them empty), {len(report.absent):,} absent."
    )
    if expected.n_outside:
        text = count(expected.n_outside, "lot of the range is", "lots of the range are")
        click.echo(f"{text} not expected: before the first partition, after the last, or not over yet.")
    if report.n_expected:
        calendar(report)
    if not report.absent:
        return
    stretches = list(stretches_of(report))
    few = stretches[:MAX_STRETCHES]
    rows = [(found.name, len(found.lots), found.lots[0].shown, _first_causes(found)) for found in few]
    table(("lots", "n", "cause", "first cause"), rows, empty="")
    if (more := stretches[MAX_STRETCHES:]) != []:
        n = sum(len(stretch.lots) for stretch in more)
        click.echo(f"and {count(n, 'more lot')} in {count(len(more), 'stretch', 'stretches')}; --json lists each")


def _first_causes(stretch: Stretch) -> str:
    others = f" (and {count(stretch.n_others, 'other')} like it)" if stretch.n_others else ""
    return stretch.first_cause + others
