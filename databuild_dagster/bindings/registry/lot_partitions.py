"""Dagster's time partitions to lots, and back (rule 10.1).

A dataset has lots if each of its partitions is one lot: a window of five, ten or fifteen minutes, an hour or a day that
begins where a lot begins. Lots are intervals of UTC days, so the definition has to be in UTC: a day in Berlin is no UTC day,
and its hours are ambiguous when the clock is put back. A window with an offset, such as an hour from a quarter past, is no
lot either. `NoLots` has the reason; such datasets work in all other respects.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import compress
from typing import cast

from dagster import MultiPartitionsDefinition, TimeWindowPartitionsDefinition, partition_loading_context

from databuild_dagster.bindings.registry.registration import partitions_from
from databuild_dagster.engine.why.gaps import MAX_LOTS, Expected, TooManyLots
from databuild_dagster.engine.wording import when
from databuild_dagster.model.datasets import MAX_UNPACKED, DatasetSpec
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.lots import (
    DAY_SECONDS,
    UNITS,
    InvalidLotRange,
    Lot,
    LotRange,
    LotUnit,
    lot_at,
    lots_between,
)
from databuild_dagster.model.refs import Ref

#: Names of UTC, the time zone of lots.
_UTC = frozenset(
    {"UTC", "Etc/UTC", "Etc/UCT", "Etc/Zulu", "UCT", "Zulu", "GMT", "Etc/GMT", "Etc/Greenwich", "Greenwich"}
)
#: Named schedules and their cron fields.
_NAMED = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *"}
#: A key format whose texts have the order of their times.
_IN_ORDER = re.compile(r"%Y[^%]*%m[^%]*%d[^%]*(%H[^%]*(%M[^%]*(%S[^%]*)?)?)?(Z|%z)?")


class NoLots(Refused):
    """{asset} has no lots: {why}."""

    hint = (
        "Lots are the partitions of a definition in UTC that takes 5, 10 or 15 minutes, an hour or a day at a time, without "
        "an offset: HourlyPartitionsDefinition, DailyPartitionsDefinition, or TimeWindowPartitionsDefinition with a "
        "cron_schedule such as */5 * * * *."
    )


class NoLotKey(Refused):
    """{key!r} is not a lot of {asset}: {why}."""

    hint = "Its partition keys look like {example}, its lots like {lot}."


@dataclass(frozen=True)
class LotKeys:
    """The lots of one dataset and their partition keys."""

    asset: str
    unit: LotUnit
    partitions: TimeWindowPartitionsDefinition

    @property
    def in_order(self) -> bool:
        """Whether the texts of keys have the order of their times, so that a range of texts is a range of times."""
        return bool(_IN_ORDER.fullmatch(self.partitions.fmt)) and self.partitions.start.year >= 1000

    def key_of(self, lot: Lot) -> str:
        """The partition key of a lot, also of one outside of the definition's range. Raises `NoLotKey`."""
        if lot.unit != self.unit:
            raise self._no_key(str(lot), f"it is one of {lot.unit}, and {self.asset} has lots of {self.unit}")
        return _at(lot.start).strftime(self.partitions.fmt)

    def lot_of(self, key: str) -> Lot:
        """The lot of a partition key. Stricter than Dagster: 2013-1-1 is no key. Raises `NoLotKey`."""
        try:
            at = datetime.strptime(key, self.partitions.fmt)
        except ValueError:
            raise self._no_key(key, f"it does not look like {self.partitions.fmt}") from None
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        if at.strftime(self.partitions.fmt) != key:
            raise self._no_key(key, f"it is written {at.strftime(self.partitions.fmt)}")
        index, rest = divmod(int(at.timestamp()), self.unit.seconds)
        if rest:
            raise self._no_key(key, f"no lot of {self.unit} begins there")
        return Lot(self.unit, index)

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
        """The lots from the first of the definition to the last one that is a partition now."""
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

    def _no_key(self, key: str, why: str) -> NoLotKey:
        first = Lot(self.unit, -(-int(self.partitions.start.timestamp()) // self.unit.seconds))
        return NoLotKey(key=key, asset=self.asset, why=why, example=self.key_of(first), lot=str(first))


def lot_keys_of(dataset: DatasetSpec) -> LotKeys:
    """The lots of a dataset. Raises `NoLots`."""
    return _lot_keys(dataset.asset, dataset.partitions)


def lot_keys_if_any(dataset: DatasetSpec) -> LotKeys | None:
    """The lots of a dataset, None if it has none."""
    try:
        return lot_keys_of(dataset)
    except NoLots:
        return None


def lot_of(keys: LotKeys | None, partition_key: str | None) -> Lot | None:
    """The lot of a partition; None if it is no lot, such as one of an earlier partitions definition."""
    try:
        return None if keys is None or partition_key is None else keys.lot_of(partition_key)
    except NoLotKey:
        return None


def lot_id_of(dataset: DatasetSpec, partition_key: str | None) -> str | None:
    """The lot id of a partition, None if the partition is no lot."""
    lot = lot_of(lot_keys_if_any(dataset), partition_key)
    return None if lot is None else str(lot)


def expected_lots(
    keys: LotKeys, now: float, start: float | None = None, end: float | None = None, *, touched: bool = False
) -> Expected:
    """The lots that the cadence expects in a range, whose ends are rounded down to intervals (rule 10.7).

    By default the range is from the first lot of the definition to the last one that is over. With `touched`, the lot
    around the end belongs to it, because an hour may be made of a day. Raises `TooManyLots`, `InvalidLotRange` and
    `InvalidMoment`.
    """
    existing = keys.existing(now)
    since = existing.start if start is None else start
    until = max(existing.end, since) if end is None else end
    asked = lots_between(since, until, keys.unit)
    if not asked and end is not None and not touched:
        why = f"both ends are in the lot {lot_at(since, keys.unit)}, which ends after them"
        raise InvalidLotRange(start=when(since), end=when(until), why=why)
    if touched and until > asked.end:
        asked = LotRange(keys.unit, asked.first, asked.stop + 1)
    first = max(asked.first, existing.first)
    lots = LotRange(keys.unit, first, max(first, min(asked.stop, existing.stop)))
    if len(lots) > MAX_LOTS:
        raise TooManyLots(asset=keys.asset, start=lots.at(0), end=lots.at(-1), n=len(lots), most=MAX_LOTS)
    ids, before = list(lots.ids()), f"{keys.asset}@"
    # Up to a million keys that Dagster made; `make_ref` takes 0.7 s for so many.
    refs = cast("list[Ref]", [before + key for key in keys.keys_of(lots)])
    if left_out := keys.left_out(lots):
        there = [index not in left_out for index in range(lots.first, lots.stop)]
        ids, refs = list(compress(ids, there)), list(compress(refs, there))
    n_outside = len(asked) - len(lots)
    return Expected(asset=keys.asset, lots=lots, ids=ids, refs=refs, in_order=keys.in_order, n_outside=n_outside)


def _at(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, UTC)


@lru_cache(maxsize=MAX_UNPACKED)
def _lot_keys(asset: str, text: str | None) -> LotKeys:
    partitions = partitions_from(text)
    in_time = partitions if isinstance(partitions, TimeWindowPartitionsDefinition) else None
    unit = None if in_time is None else _unit_of_schedule(in_time.cron_schedule)
    if partitions is None:
        why = "it has no partitions"
    elif isinstance(partitions, MultiPartitionsDefinition):
        why = "a partition of several dimensions is not one interval"
    elif in_time is None:
        why = "its partitions are no intervals of time"
    elif in_time.timezone not in _UTC:
        why = f"its partitions are in {in_time.timezone}, and lots are intervals of UTC days"
    elif unit is None:
        why = f"its partitions begin at {in_time.cron_schedule!r}, which is not where the lots of one unit begin"
    else:
        keys = LotKeys(asset, unit, in_time)
        # Three lots around midnight: a format without minutes gives several lots the same key.
        lots = [Lot(unit, unit.per_day * 20_000 + number) for number in (-1, 0, 1)]
        if len({keys.key_of(lot) for lot in lots}) == len(lots):
            return keys
        why = f"its key format {in_time.fmt!r} does not tell one lot of {unit} from the next"
    raise NoLots(asset=asset, why=why)


def _unit_of_schedule(schedule: str) -> LotUnit | None:
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
