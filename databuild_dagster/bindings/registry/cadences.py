"""The lots of a dataset for lists and gap reports: by lot ids where it has these, else by Dagster's windows (rule 10.1)."""

from collections.abc import Collection
from functools import lru_cache
from typing import Protocol

from dagster import MultiPartitionsDefinition, TimeWindowPartitionsDefinition

from databuild_dagster.bindings.registry.lot_partitions import lot_keys_if_any
from databuild_dagster.bindings.registry.registration import partitions_from
from databuild_dagster.bindings.registry.window_keys import WindowKeys
from databuild_dagster.model.datasets import MAX_UNPACKED, DatasetSpec
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.lots import Cadence, Expected


class NoLots(Refused):
    """{asset} has no lots: {why}."""

    hint = (
        "Lots are the partitions of a definition in time, of one dimension: DailyPartitionsDefinition, "
        "MonthlyPartitionsDefinition, TimeWindowPartitionsDefinition and so on."
    )


class Lots(Protocol):
    """The lots of one dataset. `LotKeys` has those with lot ids, `WindowKeys` all others."""

    @property
    def asset(self) -> str: ...
    @property
    def cadence(self) -> Cadence: ...
    def start_of(self, key: str) -> float:
        """The first moment of a partition key. Raises `NoLotKey`."""
        ...

    def start_of_lot(self, lot_id: str) -> float:
        """The first moment of a lot id. Raises `InvalidLot` and `NoLotKey`."""
        ...

    def name_of(self, key: str) -> str:
        """The lot id of a partition key, or else the key. Raises `NoLotKey`."""
        ...

    def n_absent(self, now: float, there: Collection[float]) -> int:
        """How many lots that exist by now do not begin at one of these moments."""
        ...

    def expected(
        self, now: float, start: float | None = None, end: float | None = None, *, touched: bool = False
    ) -> Expected:
        """The lots of a range. Raises `TooManyLots`, `InvalidLotRange` and `InvalidMoment`."""
        ...


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
