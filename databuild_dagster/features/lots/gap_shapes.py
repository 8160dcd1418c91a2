"""A gap report as JSON has it (rules 10.7, 15): absent lots, stretches of them, and their first causes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from databuild_dagster.features.lots.gaps import Absent, GapCause, GapReport
from databuild_dagster.model.lots import Cadence
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.shapes.fields import when
from databuild_dagster.shapes.marks import BUILDING, FAILED, MISSING, TAINTED, UPSTREAM_FAILED, WAITING, WANTED

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
    """Absent lots that follow one another, and are absent for the same kind of reason. The causes are those of the first."""

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
    """Refs of one asset with the same cause, at the ends of the ways from absent lots."""

    #: The first of them.
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
        """The one that they have in common, or that of the first."""
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
