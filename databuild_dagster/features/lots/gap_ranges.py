"""Gap reports as JSON has them: absent lots, stretches of them, and their first causes (rules 10.7, 15).

A page asks for a bounded range: the newest lots unless the range is named.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from databuild_dagster.bindings.registry.selections import OpenInstance
from databuild_dagster.bindings.registry.window_keys import Lots, lots_if_any, lots_of, moment_of
from databuild_dagster.calls.calendar import (
    BUILDING,
    EMPTY,
    FAILED,
    LIVE,
    MISSING,
    TAINTED,
    UPSTREAM_FAILED,
    WAITING,
    WANTED,
    Grid,
    GridShape,
)
from databuild_dagster.calls.calendar_keys import keys_of
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.wording import when
from databuild_dagster.features.lots.gaps import Absent, GapCause, GapReport, chain_of_gaps, gap_report
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.lots import Cadence, Expected, InvalidLotRange, TooManyLots
from databuild_dagster.model.records import extended
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of

#: The mark of an absent lot in a picture.
MARK_OF_CAUSE: Final = {
    GapCause.FAILED: FAILED,
    GapCause.FAILED_UPSTREAM: UPSTREAM_FAILED,
    GapCause.NEVER_ARRIVED: MISSING,
    GapCause.PAUSED: WANTED,
    GapCause.EXPIRED: MISSING,
    GapCause.WANT_ENDED: MISSING,
    GapCause.NO_SOURCE: MISSING,
    GapCause.NEVER_WANTED: MISSING,
    GapCause.TAINTED: TAINTED,
    GapCause.BACKING_OFF: WAITING,
    GapCause.DUE: WANTED,
    GapCause.WAITING: WAITING,
    GapCause.BUILDING: BUILDING,
}


class ShownAbsent(msgspec.Struct, frozen=True):
    """An absent lot."""

    lot: str
    cause: str
    first_cause: str


class GapsOfDataset(msgspec.Struct, frozen=True):
    """A dataset over a range; `present` are complete or empty, `outside` are not expected yet, or not any more."""

    dataset: str
    unit: str
    timezone: str
    start: str | None = msgspec.field(name="from")
    end: str | None = msgspec.field(name="to")
    expected: int
    present: int
    empty: int
    outside: int
    absent: list[ShownAbsent]


class ShownStretch(msgspec.Struct, frozen=True):
    """Consecutive absent lots with the same kind of reason. The causes are the causes of the first lot."""

    first: str
    last: str
    n: int
    ref: Ref
    cause: str
    mark: str
    first_ref: Ref
    why: str
    #: Other first causes like it.
    n_others: int


class ShownFirstCause(msgspec.Struct, frozen=True):
    """Refs of the same asset with the same cause, at the ends of the ways from absent lots."""

    #: The first ref.
    ref: Ref
    n_refs: int
    cause: str
    mark: str
    why: str
    #: The lots that are absent because of them.
    n: int


class Stretch(NamedTuple):
    """Absent lots in a row."""

    lots: Sequence[Absent]

    @property
    def name(self) -> str:
        first, last = self.lots[0].lot, self.lots[-1].lot
        return first if len(self.lots) == 1 else f"{first} to {last}"

    @property
    def first_cause(self) -> str:
        """The first cause that all lots have in common, or the first lot's."""
        first = self.lots[0]
        return first.first_why if first.first_ref == first.ref else first.first_shown

    @property
    def n_others(self) -> int:
        return len({lot.first_why for lot in self.lots}) - 1

    def shape(self) -> ShownStretch:
        first, last = self.lots[0], self.lots[-1]
        first_ref, why, mark = first.first_ref, first.first_why, MARK_OF_CAUSE[first.cause]
        return ShownStretch(
            first.lot, last.lot, len(self.lots), first.ref, first.shown, mark, first_ref, why, self.n_others
        )


def gaps_of_dataset(report: GapReport, most: int | None = None) -> GapsOfDataset:
    """The report in the shape of `lot gaps`; `most` cuts the absent lots."""
    expected = report.expected
    # An enum's value is looked up slowly, a hundred thousand times.
    text = {cause: cause.value for cause in GapCause}
    absent = [
        ShownAbsent(lot.lot, lot.shown if lot.upstream else text[lot.cause], lot.first_shown)
        for lot in report.absent[:most]
    ]
    cadence = expected.cadence
    start, end = when_of_lot(expected.start, cadence), when_of_lot(expected.end, cadence)
    counts = (report.n_expected, report.n_present, len(report.empty), expected.n_outside)
    return GapsOfDataset(report.asset, cadence.unit, cadence.timezone, start, end, *counts, absent)


def when_of_lot(at: float, cadence: Cadence) -> str | None:
    """A moment as `when`, but with the offset of the lots' time zone."""
    return when(at) if cadence.timezone == "UTC" else datetime.fromtimestamp(at, ZoneInfo(cadence.timezone)).isoformat()


def stretches_of(report: GapReport) -> Iterator[Stretch]:
    """The absent lots of a report in stretches, in the order of time."""
    place_of = {lot: place for place, lot in enumerate(report.expected.ids)}
    stretch: list[Absent] = []
    following, kind = -1, None
    for lot in report.absent:
        place, its = place_of[lot.lot], _kind_of(lot)
        if stretch and (place != following or its != kind):
            yield Stretch(stretch)
            stretch = []
        stretch.append(lot)
        following, kind = place + 1, its
    if stretch:
        yield Stretch(stretch)


def _kind_of(absent: Absent) -> tuple[str, str, str]:
    # A lot that leads to no other is its own first cause, and mostly it is.
    first_asset = "" if absent.first_ref == absent.ref else asset_of(absent.first_ref)
    return absent.cause, absent.first_cause, first_asset


def first_causes_of(report: GapReport, most: int) -> list[ShownFirstCause]:
    """The causes of most absent lots. A lot that leads to no other ref is among the stretches alone."""
    found: dict[tuple[str, GapCause], list[Absent]] = {}
    for absent in report.absent:
        if absent.first_ref != absent.ref:
            found.setdefault((asset_of(absent.first_ref), absent.first_cause), []).append(absent)
    largest = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))[:most]
    return [
        ShownFirstCause(
            lots[0].first_ref,
            len({lot.first_ref for lot in lots}),
            cause.value,
            MARK_OF_CAUSE[cause],
            lots[0].first_why,
            len(lots),
        )
        for (_, cause), lots in largest
    ]


#: Lots of a report without a named range, and of any report: of the dataset, and of it with its inputs.
USUAL_LOTS: Final = 1_000
MAX_LOTS: Final = 9_000
MAX_LOTS_OF_CHAIN: Final = 20_000
#: Stretches and first causes of an answer.
MAX_STRETCHES: Final = 200
MAX_FIRST_CAUSES: Final = 20


class Upstream(msgspec.Struct, frozen=True):
    """A dataset upstream of a report's, over the same range."""

    dataset: str
    expected: int
    present: int
    empty: int
    n_absent: int


class GapsPage(GapsOfDataset, frozen=True):
    """A gap report; `absent` has the first lots, `n_absent` counts all."""

    n_absent: int
    n_stretches: int
    stretches: list[ShownStretch]
    first_causes: list[ShownFirstCause]
    grid: GridShape
    upstream: list[Upstream]
    without_lots: Sequence[str]


class AskedRange(NamedTuple):
    """A range of a dataset, as a person named it."""

    dataset: str
    start: str | None = None
    end: str | None = None
    #: Whether the datasets upstream are reported too.
    chain: bool = False


def chain_in_range(engine: Engine, dataset: DatasetSpec, asked: Expected) -> tuple[Sequence[GapReport], Sequence[str]]:
    """The reports on a dataset and on everything upstream over the range of its lots, and the assets without lots."""
    now = engine.clock()

    def expected_of(spec: DatasetSpec) -> Expected | None:
        if spec.asset == dataset.asset:
            return asked
        lots = lots_if_any(spec)
        return None if lots is None else lots.expected(now, asked.start, asked.end, touched=True)

    return chain_of_gaps(engine, dataset, expected_of)


def gaps_in_range(engine: Engine, instance: OpenInstance, asked: AskedRange, most: int) -> GapsPage:
    """The report on a range, with at most so many absent lots.

    Raises `UnknownAsset`, `NoLots`, `NoLotKey`, `InvalidTime`, `InvalidLotRange`, `TooManyLots`.
    """
    dataset = engine.queries.datasets.known(asked.dataset)
    lots = lots_of(dataset)
    rates = _rates(engine, dataset) if asked.chain else {}
    start, end = _range(lots, keys_of(dataset, instance, engine.clock()), asked, rates)
    expected = lots.expected(engine.clock(), start, end)
    if asked.chain:
        reports, without = chain_in_range(engine, dataset, expected)
    else:
        reports, without = [gap_report(engine, expected)], ()
    report = reports[-1]
    stretches = list(stretches_of(report))
    return extended(
        GapsPage,
        gaps_of_dataset(report, most),
        n_absent=len(report.absent),
        n_stretches=len(stretches),
        stretches=[stretch.shape() for stretch in stretches[:MAX_STRETCHES]],
        first_causes=first_causes_of(report, MAX_FIRST_CAUSES),
        grid=_picture(report),
        upstream=[_upstream(of_input) for of_input in reports[:-1]],
        without_lots=without,
    )


def _rates(engine: Engine, dataset: DatasetSpec) -> dict[str, float]:
    """The lots in a second of each dataset upstream that has some."""
    specs = {spec.asset: spec for spec in engine.queries.datasets.all().values()}
    found: dict[str, DatasetSpec] = {}
    left = [given.asset for given in dataset.inputs]
    for asset in left:
        if asset in specs and asset not in found and asset != dataset.asset:
            found[asset] = specs[asset]
            left += [given.asset for given in specs[asset].inputs]
    all_lots = {asset: lots_if_any(spec) for asset, spec in found.items()}
    return {asset: 1 / lots.cadence.seconds for asset, lots in all_lots.items() if lots is not None}


def _range(
    lots: Lots, keys: Sequence[str | None], asked: AskedRange, rates: dict[str, float]
) -> tuple[float | None, float | None]:
    """The ends of the range; None for where the partitions end. Raises as `gaps_in_range`."""
    start, end = moment_of("start", asked.start, lots), moment_of("end", asked.end, lots)
    if start is not None and end is not None and start > end:
        raise InvalidLotRange(start=asked.start, end=asked.end, why="start comes after end")
    if not keys:
        return start, end
    first, last = lots.start_of(keys[0] or ""), lots.start_of(keys[-1] or "") + lots.cadence.seconds
    own = 1 / lots.cadence.seconds
    of_chain = own + sum(rates.values())
    usual = min(USUAL_LOTS / own, MAX_LOTS_OF_CHAIN / of_chain)
    since = start if start is not None else max((end if end is not None else last) - usual, first)
    until = end
    if end is None and start is not None and last - start > usual:
        until = start + usual
    seconds = min(until if until is not None else last, last) - max(since, first)
    for n, most in ((seconds * own, MAX_LOTS), (seconds * of_chain, MAX_LOTS_OF_CHAIN)):
        if n > most + 1:
            raise TooManyLots(asset=lots.asset, start=when(since), end=when(until or last), n=round(n), most=most)
    return min(since, until) if until is not None else since, until


def _picture(report: GapReport) -> GridShape:
    keys = [partition_key_of(ref) or "" for ref in report.expected.refs]
    marks = dict.fromkeys(keys, LIVE)
    names = dict(zip(report.expected.ids, keys, strict=True))
    marks |= {names[lot]: EMPTY for lot in report.empty}
    marks |= {names[lot.lot]: MARK_OF_CAUSE[lot.cause] for lot in report.absent}
    return Grid(report.asset, keys).shape(marks.__getitem__)


def _upstream(report: GapReport) -> Upstream:
    n_empty, n_absent = len(report.empty), len(report.absent)
    return Upstream(report.asset, report.n_expected, report.n_present, n_empty, n_absent)
