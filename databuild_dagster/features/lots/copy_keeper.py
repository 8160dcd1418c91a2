"""The copies of manifests for other tools, which must not list removed data (rule 10.2)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from databuild_dagster.data.keepers import Keeper
from databuild_dagster.model.refs import Ref

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from databuild_dagster.engine.engine import Engine


class CopyKeeper(Keeper):
    """Keeps no data, and brings the copies of refs up to date once data of them is removed, or is not what readers see."""

    def __init__(self, instance: Callable[[], DagsterInstance]) -> None:
        self._instance = instance

    def changed(self, refs: Collection[Ref]) -> None:
        """Raises `DiskTrouble`, `StorageTrouble`."""
        from databuild_dagster.features.lots.copies.lot_copies import refresh_copies

        refresh_copies(self._instance(), refs)


def open_copy_keeper(
    engine: Engine, warehouse: str, *, seconds: float | None, instance: Callable[[], DagsterInstance]
) -> CopyKeeper:
    """The keeper for `gc` and for corrections."""
    return CopyKeeper(instance)


KEEPS: Final = (open_copy_keeper,)
