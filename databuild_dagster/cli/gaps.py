"""`databuild lot gaps DATASET`: which lots of a range are missing, and why, as a picture, a table and JSON (rule 10.7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click

from databuild_dagster.cli.calendar import calendar
from databuild_dagster.cli.options import tabular
from databuild_dagster.cli.output import count, emit, table
from databuild_dagster.cli.state import the_engine
from databuild_dagster.engine.why.gaps import Absent, Expected, GapCause, GapReport, chain_of_gaps, gap_report
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.lots import Cadence, InvalidLotRange
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.wording import few_of
from databuild_dagster.shapes.fields import when

if TYPE_CHECKING:
    from databuild_dagster.bindings.registry.cadences import Lots

#: Stretches of absent lots that the table for people has; a program gets every lot.
MAX_STRETCHES = 40


class InvalidTime(InvalidRequest):
    """{what} is {value!r}, which is not possible: {why}."""

    hint = (
        "Write a partition key, a day such as 2023-02-27, a time with its offset such as 2023-02-27T23:55Z, or a lot id if "
        "its lots have ids."
    )


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

    Both ends are cut down to where a lot begins; a day is one of the partitions' time zone. Waits and failures upstream are followed to
    their first cause. With --chain, lots that no want asks for are followed too, to the input that is missing.
    """
    reports, without = _reports(dataset, start, end, chain=chain)
    if as_json:
        of_chain = {"chain": [as_dict(of_input) for of_input in reports[:-1]], "without_lots": list(without)}
        emit(as_dict(reports[-1]) | (of_chain if chain else {}))
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
    from databuild_dagster.bindings.registry.cadences import lots_if_any, lots_of

    engine = the_engine()
    now = engine.clock()
    spec = engine.queries.known_dataset(asset)
    lots = lots_of(spec)
    since, until = _moment("--from", start, lots), _moment("--to", end, lots)
    if since is not None and until is not None and since > until:
        raise InvalidLotRange(start=start, end=end, why="--from comes after --to")
    asked = lots.expected(now, since, until)
    if not chain:
        return [gap_report(engine, asked)], ()

    def expected_of(spec: DatasetSpec) -> Expected | None:
        if spec.asset == asset:
            return asked
        lots = lots_if_any(spec)
        return None if lots is None else lots.expected(now, asked.start, asked.end, touched=True)

    return chain_of_gaps(engine, spec, expected_of)


def _moment(option: str, text: str | None, lots: Lots) -> float | None:
    """The moment of an end of the range: a lot or a partition key, which begins there, a day of the partitions' zone, or a time.

    Raises `InvalidTime`, `InvalidLot`, `NoLotKey`.
    """
    from databuild_dagster.bindings.registry.lot_partitions import NoLotKey

    if text is None:
        return None
    try:
        return lots.start_of(text)
    except NoLotKey as error:
        no_key = error
    if text[:1].isdigit() and "P" in text.upper():
        return lots.start_of_lot(text)
    try:
        day = date.fromisoformat(text)
    except ValueError:
        pass
    else:
        return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(lots.cadence.timezone)).timestamp()
    try:
        at = datetime.fromisoformat(text)
        why = "it does not say in which time zone" if at.utcoffset() is None else None
    except ValueError:
        why = "that is no day, no time and no lot"
    if why is not None:
        raise InvalidTime(what=option, value=text, why=f"{why}, and as a partition key {no_key.facts['why']}")
    return at.timestamp()


def as_dict(report: GapReport) -> dict[str, object]:
    """Rules 15, and what was asked; `present` are complete or empty, `outside` are not expected yet, or not any more."""
    expected = report.expected
    # An enum's value is looked up slowly, a hundred thousand times.
    text = {cause: cause.value for cause in GapCause}
    return {
        "dataset": report.asset,
        "unit": expected.cadence.unit,
        "timezone": expected.cadence.timezone,
        "from": _when(expected.start, expected.cadence),
        "to": _when(expected.end, expected.cadence),
        "expected": report.n_expected,
        "present": report.n_present,
        "empty": len(report.empty),
        "outside": expected.n_outside,
        "absent": [
            {"lot": lot.lot, "cause": lot.shown if lot.upstream else text[lot.cause], "first_cause": lot.first_shown}
            for lot in report.absent
        ],
    }


def _when(at: float, cadence: Cadence) -> str | None:
    """A moment as `when`, but with the offset of the lots' time zone."""
    return when(at) if cadence.timezone == "UTC" else datetime.fromtimestamp(at, ZoneInfo(cadence.timezone)).isoformat()


def _print(report: GapReport) -> None:
    expected = report.expected
    cadence = expected.cadence
    click.echo(
        f"{click.style(report.asset, bold=True)}  {count(report.n_expected, 'lot')} of {cadence} expected from "
        f"{_when(expected.start, cadence)} to {_when(expected.end, cadence)}: {report.n_present:,} present "
        f"({len(report.empty):,} of them empty), {len(report.absent):,} absent."
    )
    if expected.n_outside:
        text = count(expected.n_outside, "lot of the range is", "lots of the range are")
        click.echo(f"{text} not expected: before the first partition, after the last, or not over yet.")
    if report.n_expected:
        calendar(report)
    if not report.absent:
        return
    stretches = list(_stretches(report))
    few = stretches[:MAX_STRETCHES]
    rows = [(_named(stretch), len(stretch), stretch[0].shown, _first_causes(stretch)) for stretch in few]
    table(("lots", "n", "cause", "first cause"), rows, empty="")
    if (more := stretches[MAX_STRETCHES:]) != []:
        n = sum(map(len, more))
        click.echo(f"and {count(n, 'more lot')} in {count(len(more), 'stretch', 'stretches')}; --json tells each")


def _stretches(report: GapReport) -> Iterator[list[Absent]]:
    """Absent lots that follow one another, and are absent for the same kind of reason."""
    place_of = {lot: place for place, lot in enumerate(report.expected.ids)}
    stretch: list[Absent] = []
    following, kind = -1, None
    for lot in report.absent:
        place, its = place_of[lot.lot], _kind_of(lot)
        if stretch and (place != following or its != kind):
            yield stretch
            stretch = []
        stretch.append(lot)
        following, kind = place + 1, its
    if stretch:
        yield stretch


def _kind_of(absent: Absent) -> tuple[str, str, str]:
    # A lot that leads to no other is its own first cause, and mostly it is.
    first_asset = "" if absent.first_ref == absent.ref else asset_of(absent.first_ref)
    return absent.cause, absent.first_cause, first_asset


def _named(stretch: Sequence[Absent]) -> str:
    return stretch[0].lot if len(stretch) == 1 else f"{stretch[0].lot} to {stretch[-1].lot}"


def _first_causes(stretch: Sequence[Absent]) -> str:
    """The one that they have in common, or that of the first."""
    first, n_reasons = stretch[0], len({lot.first_why for lot in stretch})
    text = first.first_why if first.first_ref == first.ref else first.first_shown
    return text if n_reasons == 1 else f"{text} (and {count(n_reasons - 1, 'other')} like it)"
