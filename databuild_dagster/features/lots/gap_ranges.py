"""Gap reports over a bounded range, as a page asks for them: the newest lots unless the range is named (rule 10.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from databuild_dagster.bindings.registry.cadences import Lots, lots_if_any, lots_of, moment_of
from databuild_dagster.bindings.registry.selections import OpenInstance
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.wording import when
from databuild_dagster.features.lots.gap_shapes import (
    MARK_OF_CAUSE,
    GapsOfDataset,
    ShownFirstCause,
    ShownStretch,
    first_causes_of,
    gaps_of_dataset,
    stretches_of,
)
from databuild_dagster.features.lots.gaps import GapReport, chain_of_gaps, gap_report
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.lots import Expected, InvalidLotRange, TooManyLots
from databuild_dagster.model.refs import partition_key_of
from databuild_dagster.shapes.calendar import Grid, GridShape
from databuild_dagster.shapes.calendar_keys import keys_of
from databuild_dagster.shapes.fields import extended
from databuild_dagster.shapes.marks import EMPTY, LIVE

#: Lots of a report without a named range, and of any report: of the dataset, and of it with its inputs.
USUAL_LOTS: Final = 1_000
MAX_LOTS: Final = 9_000
MAX_LOTS_OF_CHAIN: Final = 20_000
#: Stretches and first causes of one answer.
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


class Asked(NamedTuple):
    """A range of one dataset, as a person named it."""

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


def gaps_in_range(engine: Engine, instance: OpenInstance, asked: Asked, most: int) -> GapsPage:
    """The report on a range, with at most so many absent lots.

    Raises `UnknownAsset`, `NoLots`, `NoLotKey`, `InvalidTime`, `InvalidLotRange`, `TooManyLots`.
    """
    dataset = engine.queries.known_dataset(asked.dataset)
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
    specs = {spec.asset: spec for spec in engine.queries.datasets().values()}
    found: dict[str, DatasetSpec] = {}
    left = [given.asset for given in dataset.inputs]
    for asset in left:
        if asset in specs and asset not in found and asset != dataset.asset:
            found[asset] = specs[asset]
            left += [given.asset for given in specs[asset].inputs]
    all_lots = {asset: lots_if_any(spec) for asset, spec in found.items()}
    return {asset: 1 / lots.cadence.seconds for asset, lots in all_lots.items() if lots is not None}


def _range(
    lots: Lots, keys: Sequence[str | None], asked: Asked, rates: dict[str, float]
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
    until = end if end is not None else (None if start is None or last - start <= usual else start + usual)
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
