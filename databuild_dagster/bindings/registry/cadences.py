"""The lots of a dataset for lists and gap reports: by lot ids where it has these, else by Dagster's windows (rule 10.1)."""

from datetime import date, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from dagster import MultiPartitionsDefinition, TimeWindowPartitionsDefinition

from databuild_dagster.bindings.registry.lot_partitions import LotKeys, NoLotKey, lot_keys_if_any
from databuild_dagster.bindings.registry.registration import partitions_from
from databuild_dagster.bindings.registry.window_keys import WindowKeys
from databuild_dagster.model.datasets import MAX_UNPACKED, DatasetSpec
from databuild_dagster.model.errors import InvalidRequest, Refused


class NoLots(Refused):
    """{asset} has no lots: {why}."""

    hint = (
        "Lots are the partitions of a definition in time, of one dimension: DailyPartitionsDefinition, "
        "MonthlyPartitionsDefinition, TimeWindowPartitionsDefinition and so on."
    )


#: The lots of one dataset: with lot ids, or all others.
Lots = LotKeys | WindowKeys


def lots_of(dataset: DatasetSpec) -> Lots:
    """The lots of a dataset. Raises `NoLots`."""
    found = lot_keys_if_any(dataset) or _window_keys(dataset.asset, dataset.partitions)
    if isinstance(found, str):
        raise NoLots(asset=dataset.asset, why=found)
    return found


def lots_if_any(dataset: DatasetSpec) -> Lots | None:
    """The lots of a dataset, None if it has none."""
    try:
        return lots_of(dataset)
    except NoLots:
        return None


@lru_cache(maxsize=MAX_UNPACKED)
def _window_keys(asset: str, text: str | None) -> WindowKeys | str:
    """The windows of a definition, or why they are no lots."""
    partitions = partitions_from(text)
    if partitions is None:
        return "it has no partitions"
    if isinstance(partitions, MultiPartitionsDefinition):
        return "a partition of several dimensions is not one interval"
    if not isinstance(partitions, TimeWindowPartitionsDefinition):
        return "its partitions are no intervals of time"
    windows = WindowKeys(asset, partitions)
    keys = [windows.key_of(window) for window in windows.sample]
    if len(set(keys)) < len(keys):
        return f"its key format {partitions.fmt!r} gives several lots of {windows.cadence} the same key"
    return windows


class InvalidTime(InvalidRequest):
    """{what} is {value!r}, which is not possible: {why}."""

    hint = (
        "Write a partition key, a day such as 2023-02-27, a time with its offset such as 2023-02-27T23:55Z, or a lot id if "
        "its lots have ids."
    )


def moment_of(name: str, text: str | None, lots: Lots) -> float | None:
    """The moment that a person names as the end of a range of lots (rule 10.7).

    It is a lot or a partition key, which begins there, a day of the partitions' zone, or a time. `name` is
    the option or parameter, for messages. Raises `InvalidTime`, `InvalidLot`, `NoLotKey`.
    """
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
        raise InvalidTime(what=name, value=text, why=f"{why}, and as a partition key {no_key.facts['why']}")
    return at.timestamp()
