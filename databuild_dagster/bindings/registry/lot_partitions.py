"""Dagster's time partitions to lots with ids, and back (rule 10.1).

The partitions of a dataset have lot ids if each of them is a window of five, ten or fifteen minutes, an hour or a day that
begins where a lot begins. Lot ids name intervals of UTC days, so the definition has to be in UTC: a day in Berlin is no UTC
day, and its hours are ambiguous when the clock is put back. A window with an offset, such as an hour from a quarter past, has
no lot id either. `window_keys` has the lots of other definitions, which have their partition keys for names.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import compress
from typing import cast

from dagster import TimeWindowPartitionsDefinition, partition_loading_context

from databuild_dagster.bindings.registry.registration import partitions_from
from databuild_dagster.engine.publishing import Publication, published_stretches
from databuild_dagster.engine.wording import when
from databuild_dagster.model.datasets import MAX_UNPACKED, DatasetSpec
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.lots import (
    DAY_SECONDS,
    MAX_LOTS,
    UNITS,
    Cadence,
    Expected,
    InvalidLotRange,
    Lot,
    LotRange,
    LotUnit,
    TooManyLots,
    lot_at,
    lots_between,
)
from databuild_dagster.model.refs import Ref, partition_key_of
from databuild_dagster.store.queries.queries import Queries

#: Names of UTC, the time zone of lots.
_UTC = frozenset(
    {"UTC", "Etc/UTC", "Etc/UCT", "Etc/Zulu", "UCT", "Zulu", "GMT", "Etc/GMT", "Etc/Greenwich", "Greenwich"}
)
#: Named schedules and their cron fields.
_NAMED = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *"}
#: A key format whose texts have the order of their times.
_IN_ORDER = re.compile(r"%Y[^%]*%m[^%]*%d[^%]*(%H[^%]*(%M[^%]*(%S[^%]*)?)?)?(Z|%z)?")


class NoLotKey(Refused):
    """{key!r} is not a lot of {asset}: {why}."""

    hint = "Its partition keys look like {example}, its lots like {lot}."


@dataclass(frozen=True)
class LotKeys:
    """The lots of a dataset and their partition keys."""

    asset: str
    unit: LotUnit
    partitions: TimeWindowPartitionsDefinition

    @property
    def cadence(self) -> Cadence:
        return Cadence(self.unit.token, self.unit.seconds)

    @property
    def in_order(self) -> bool:
        """Whether the texts of keys have the order of their times, so that a range of texts is a range of times."""
        return bool(_IN_ORDER.fullmatch(self.partitions.fmt)) and self.partitions.start.year >= 1000

    def key_of(self, lot: Lot) -> str:
        """The partition key of a lot, also of a lot outside of the definition's range. Raises `NoLotKey`."""
        if lot.unit != self.unit:
            raise self._no_key(str(lot), f"it is one of {lot.unit}, and {self.asset} has lots of {self.unit}")
        return _at(lot.start).strftime(self.partitions.fmt)

    def lot_of(self, key: str) -> Lot:
        """The lot of a partition key. Stricter than Dagster: 2013-1-1 is no key. Raises `NoLotKey`."""
        try:
            at = datetime.strptime(key, self.partitions.fmt)
        except ValueError:
            raise self._no_key(key, f"it is no time in the form {self.key_of(self._first)}") from None
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        if at.strftime(self.partitions.fmt) != key:
            raise self._no_key(key, f"it is written {at.strftime(self.partitions.fmt)}")
        index, rest = divmod(int(at.timestamp()), self.unit.seconds)
        if rest:
            raise self._no_key(key, f"no lot of {self.unit} begins there")
        return Lot(self.unit, index)

    def start_of(self, key: str) -> float:
        """The first moment of a partition key. Raises `NoLotKey`."""
        return float(self.lot_of(key).start)

    def start_of_lot(self, lot_id: str) -> float:
        """The first moment of a lot of this cadence. Raises `InvalidLot` and `NoLotKey`."""
        lot = Lot.parse(lot_id)
        self.key_of(lot)
        return float(lot.start)

    def name_of(self, key: str) -> str:
        """The lot id of a partition key. Raises `NoLotKey`."""
        return str(self.lot_of(key))

    def keys_of(self, lots: LotRange) -> list[str]:
        """`key_of` for many lots in a row. If the format allows it, each day and each time is formatted once."""
        fmt = self.partitions.fmt
        if lots.unit != self.unit or not self.in_order:
            return [self.key_of(lot) for lot in lots]
        clock = fmt.find("%H")
        day_format, time_format = (fmt, "") if clock < 0 else (fmt[:clock], fmt[clock:])
        per_day = self.unit.per_day
        times = [_at(number * self.unit.seconds).strftime(time_format) for number in range(per_day)]
        keys: list[str] = []
        for day in range(lots.first // per_day, -(-lots.stop // per_day)):
            text = _at(day * DAY_SECONDS).strftime(day_format)
            numbers = slice(max(lots.first - day * per_day, 0), lots.stop - day * per_day)
            keys += [text + time for time in times[numbers]]
        return keys

    def existing(self, now: float) -> LotRange:
        """The lots from the first of the definition to the last lot that is a partition now."""
        start = int(self.partitions.start.timestamp())
        first = -(-start // self.unit.seconds)
        with partition_loading_context(effective_dt=_at(now)):
            last = self.partitions.get_last_partition_window_ignoring_exclusions()
        return LotRange(self.unit, first, first if last is None else int(last.end.timestamp()) // self.unit.seconds)

    def left_out(self, lots: LotRange) -> frozenset[int]:
        """The indexes of the lots of a range that the definition excludes."""
        if not self.partitions.exclusions:
            return frozenset()
        excluded = self.partitions.is_window_start_excluded
        return frozenset(lot.index for lot in lots if excluded(_at(lot.start)))

    def n_absent(self, now: float, there: Collection[float]) -> int:
        """The number of lots that exist by now and whose start is not in `there`."""
        existing = self.existing(now)
        left_out = self.left_out(existing)
        indexes = {int(start) // self.unit.seconds for start in there}
        n_there = sum(existing.first <= index < existing.stop and index not in left_out for index in indexes)
        return len(existing) - len(left_out) - n_there

    def expected(
        self, now: float, start: float | None = None, end: float | None = None, *, touched: bool = False
    ) -> Expected:
        """The lots that the cadence expects in a range, whose ends are rounded down to intervals (rule 10.7).

        By default the range is from the first lot of the definition to the last lot that is over. With `touched`, the lot
        around the end belongs to it, because an hour may be made of a day. Raises `TooManyLots`, `InvalidLotRange` and
        `InvalidMoment`.
        """
        existing = self.existing(now)
        since = existing.start if start is None else start
        until = max(existing.end, since) if end is None else end
        asked = lots_between(since, until, self.unit)
        if not asked and end is not None and not touched:
            raise both_ends_in(str(lot_at(since, self.unit)), since, until)
        if touched and until > asked.end:
            asked = LotRange(self.unit, asked.first, asked.stop + 1)
        first = max(asked.first, existing.first)
        lots = LotRange(self.unit, first, max(first, min(asked.stop, existing.stop)))
        if len(lots) > MAX_LOTS:
            raise TooManyLots(asset=self.asset, start=lots.at(0), end=lots.at(-1), n=len(lots), most=MAX_LOTS)
        ids: Sequence[str] = list(lots.ids())
        starts: Sequence[float] = range(lots.start, lots.end, self.unit.seconds)
        before = f"{self.asset}@"
        # Up to a million keys that Dagster made; `make_ref` takes 0.7 s for so many.
        refs = cast("list[Ref]", [before + key for key in self.keys_of(lots)])
        if left_out := self.left_out(lots):
            there = [index not in left_out for index in range(lots.first, lots.stop)]
            ids, refs, starts = list(compress(ids, there)), list(compress(refs, there)), list(compress(starts, there))
        return Expected(
            asset=self.asset,
            cadence=self.cadence,
            start=lots.start,
            end=lots.end,
            ids=ids,
            refs=refs,
            starts=starts,
            n_outside=len(asked) - len(lots),
        )

    def _no_key(self, key: str, why: str) -> NoLotKey:
        return NoLotKey(key=key, asset=self.asset, why=why, example=self.key_of(self._first), lot=str(self._first))

    @property
    def _first(self) -> Lot:
        return Lot(self.unit, -(-int(self.partitions.start.timestamp()) // self.unit.seconds))


def lot_keys_if_any(dataset: DatasetSpec) -> LotKeys | None:
    """The lots of a dataset that have lot ids, None if it has none."""
    return _lot_keys(dataset.asset, dataset.partitions)


def lot_of(keys: LotKeys | None, partition_key: str | None) -> Lot | None:
    """The lot of a partition; None if it is no lot, such as a partition of an earlier definition."""
    try:
        return None if keys is None or partition_key is None else keys.lot_of(partition_key)
    except NoLotKey:
        return None


def lot_id_of(dataset: DatasetSpec, partition_key: str | None) -> str | None:
    """The lot id of a partition, None if the partition is no lot."""
    lot = lot_of(lot_keys_if_any(dataset), partition_key)
    return None if lot is None else str(lot)


def both_ends_in(lot: str, start: float, end: float) -> InvalidLotRange:
    """The refusal of a range that has no beginning of a lot in it."""
    return InvalidLotRange(
        start=when(start), end=when(end), why=f"both ends are in the lot {lot}, which ends after them"
    )


def _at(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, UTC)


@lru_cache(maxsize=MAX_UNPACKED)
def _lot_keys(asset: str, text: str | None) -> LotKeys | None:
    partitions = partitions_from(text)
    if not isinstance(partitions, TimeWindowPartitionsDefinition) or partitions.timezone not in _UTC:
        return None
    if (unit := unit_of_schedule(partitions.cron_schedule)) is None:
        return None
    keys = LotKeys(asset, unit, partitions)
    # Three lots around midnight: a format without minutes gives several lots the same key.
    lots = [Lot(unit, unit.per_day * 20_000 + number) for number in (-1, 0, 1)]
    return keys if len({keys.key_of(lot) for lot in lots}) == len(lots) else None


def unit_of_schedule(schedule: str) -> LotUnit | None:
    """The unit whose lots begin exactly at the times of a schedule, None if there is none."""
    fields = _NAMED.get(schedule, schedule).split()
    if len(fields) != 5 or fields[2:] != ["*", "*", "*"]:
        return None
    begins = _times(fields[0], 60), _times(fields[1], 24)
    for unit in UNITS.values():
        starts = range(0, DAY_SECONDS, unit.seconds)
        if begins == ({start // 60 % 60 for start in starts}, {start // 3600 for start in starts}):
            return unit
    return None


def _times(field: str, n: int) -> set[int]:
    """The values of a field of a schedule, empty for a spelling that no lot needs."""
    if field == "*":
        return set(range(n))
    if step := re.fullmatch(r"(?:\*|0)/([0-9]+)", field):
        return set(range(0, n, int(step[1]))) if int(step[1]) else set()
    if re.fullmatch(r"[0-9]+(,[0-9]+)*", field):
        return {int(number) for number in field.split(",")}
    return set()


def announced_lots(queries: Queries, after_seq: int, *, follow: bool) -> Iterator[Publication]:
    """The publications after a seq with their lot ids (rule 10.3), to the end of the log; with `follow`, without end.

    A lot id follows from the present registration. A partition of an earlier definition, or of a removed dataset, may have none.
    """
    for _, publications in published_stretches(queries, after_seq, follow=follow):
        datasets = {spec.asset: spec for spec in queries.datasets.all().values()} if publications else {}
        for found in publications:
            dataset = datasets.get(found.dataset)
            lot = None if dataset is None else lot_id_of(dataset, partition_key_of(found.ref))
            yield found._replace(lot=lot)
