"""Dagster's time partitions and lots, both ways (SPEC 10.1).

A dataset has lots when each of its partitions is one lot: a window of five, ten or fifteen minutes, an hour or a day that
begins where a lot begins. Lots are intervals of UTC days, so the definition has to be of UTC: a day in Berlin is no day
of UTC, its hours are not told apart when the clock is put back, and an id that looks like another day's would be worse
than none. An offset, as in an hour that begins at a quarter past, is no lot either. Such datasets are refused with the
reason; everything else about them works as ever.
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

#: Names of the one time zone that lots are in.
_UTC = frozenset(
    {"UTC", "Etc/UTC", "Etc/UCT", "Etc/Zulu", "UCT", "Zulu", "GMT", "Etc/GMT", "Etc/Greenwich", "Greenwich"}
)
#: Which minutes of which hours a schedule means by these.
_NAMED = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *"}
#: A format in which the texts of keys are in the order of their times.
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
    """The lots of one dataset, and the partition keys that mean them."""

    asset: str
    unit: LotUnit
    partitions: TimeWindowPartitionsDefinition

    @property
    def in_order(self) -> bool:
        """Whether the texts of keys are in the order of their times, so that a range of them is one of these."""
        return bool(_IN_ORDER.fullmatch(self.partitions.fmt)) and self.partitions.start.year >= 1000

    def key_of(self, lot: Lot) -> str:
        """The partition key of a lot, whether or not the definition reaches so far. Raises `NoLotKey`."""
        if lot.unit != self.unit:
            raise self._no_key(str(lot), f"it is one of {lot.unit}, and {self.asset} has lots of {self.unit}")
        return _at(lot.start).strftime(self.partitions.fmt)

    def lot_of(self, key: str) -> Lot:
        """The lot of a partition key; strict, as Dagster is not: 2013-1-1 is no key. Raises `NoLotKey`."""
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
        """`key_of` for many in a row; where it can be, a day and a time are each written once."""
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
        """From the first lot of the definition up to the last that is a partition by now."""
        start = int(self.partitions.start.timestamp())
        first = -(-start // self.unit.seconds)
        with partition_loading_context(effective_dt=_at(now)):
            last = self.partitions.get_last_partition_window_ignoring_exclusions()
        return LotRange(self.unit, first, first if last is None else int(last.end.timestamp()) // self.unit.seconds)

    def left_out(self, lots: LotRange) -> frozenset[int]:
        """Of a range, the indexes of the lots that the definition excludes."""
        if not self.partitions.exclusions:
            return frozenset()
        excluded = self.partitions.is_window_start_excluded
        return frozenset(lot.index for lot in lots if excluded(_at(lot.start)))

    def _no_key(self, key: str, why: str) -> NoLotKey:
        first = Lot(self.unit, -(-int(self.partitions.start.timestamp()) // self.unit.seconds))
        return NoLotKey(key=key, asset=self.asset, why=why, example=self.key_of(first), lot=str(first))


def lot_keys_of(dataset: DatasetSpec) -> LotKeys:
    """The lots of a dataset. Raises `NoLots`."""
    unit, partitions = _unit_of(dataset.asset, dataset.partitions)
    return LotKeys(dataset.asset, unit, partitions)


def lot_id_of(dataset: DatasetSpec, partition_key: str | None) -> str | None:
    """The lot that a partition is, None where it is none."""
    if partition_key is None:
        return None
    try:
        return str(lot_keys_of(dataset).lot_of(partition_key))
    except (NoLots, NoLotKey):
        return None


def has_lots(dataset: DatasetSpec) -> bool:
    try:
        lot_keys_of(dataset)
    except NoLots:
        return False
    return True


def expected_lots(
    keys: LotKeys, now: float, start: float | None = None, end: float | None = None, *, touched: bool = False
) -> Expected:
    """What the cadence expects of a range, both of whose ends are cut down to an interval first (SPEC 10.7).

    From the first lot of the definition, and up to the last that is over, where no end is given. `touched`: the lot that
    the end is in belongs to it, for a chain asks what an hour was made of, and that may be a day. Raises `TooManyLots`,
    `InvalidLotRange` and `InvalidMoment`.
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
    return Expected(
        asset=keys.asset,
        lots=lots,
        ids=ids,
        refs=refs,
        in_order=keys.in_order,
        n_outside=len(asked) - len(lots),
    )


def _at(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, UTC)


@lru_cache(maxsize=MAX_UNPACKED)
def _unit_of(asset: str, text: str | None) -> tuple[LotUnit, TimeWindowPartitionsDefinition]:
    partitions = partitions_from(text)
    if partitions is None:
        raise NoLots(asset=asset, why="it has no partitions")
    if isinstance(partitions, MultiPartitionsDefinition):
        raise NoLots(asset=asset, why="a partition of several dimensions is not one interval")
    if not isinstance(partitions, TimeWindowPartitionsDefinition):
        raise NoLots(asset=asset, why="its partitions are no intervals of time")
    if partitions.timezone not in _UTC:
        raise NoLots(
            asset=asset, why=f"its partitions are in {partitions.timezone}, and lots are intervals of UTC days"
        )
    unit = _unit_of_schedule(partitions.cron_schedule)
    if unit is None:
        why = f"its partitions begin at {partitions.cron_schedule!r}, which is not where the lots of one unit begin"
        raise NoLots(asset=asset, why=why)
    keys = LotKeys(asset, unit, partitions)
    # Two in a row on either side of midnight: a format without minutes names twelve lots alike.
    some = [Lot(unit, unit.per_day * 20_000 + number) for number in (-1, 0, 1)]
    if len({keys.key_of(lot) for lot in some}) < len(some):
        raise NoLots(
            asset=asset, why=f"its key format {partitions.fmt!r} does not tell one lot of {unit} from the next"
        )
    return unit, partitions


def _unit_of_schedule(schedule: str) -> LotUnit | None:
    """The unit whose lots all begin when the schedule says, and only then."""
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
    """What a field of a schedule stands for; nothing where it is written in a way that no lot needs."""
    if field == "*":
        return set(range(n))
    if step := re.fullmatch(r"(?:\*|0)/([0-9]+)", field):
        return set(range(0, n, int(step[1]))) if int(step[1]) else set()
    if re.fullmatch(r"[0-9]+(,[0-9]+)*", field):
        return {int(each) for each in field.split(",")}
    return set()
