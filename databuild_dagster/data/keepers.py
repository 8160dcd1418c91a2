"""What lists data, or has a copy of it, has a say before `gc` removes that data (rule 10.8).

`gc` asks keepers three times: in the plan for files that they list, before it removes anything to forget what they need no
longer, and after a removal is recorded whether the data may still be listed soon. Features bring keepers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Protocol

from databuild_dagster.feature import rows
from databuild_dagster.model.refs import Ref
from databuild_dagster.store.removals import Removable

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from databuild_dagster.engine.engine import Engine


class Keeper:
    """A reason to keep data. The methods do nothing, so that a keeper overrides only the methods that it needs.

    `files` and `expire` raise a `DatabuildError` where the keeper cannot be read: the data of that dataset stays.
    """

    #: A noun for a sentence about a keeper that cannot be read: "its table".
    name: str = "a keeper of it"
    #: Why data stays of which `files` has a file.
    listed: str = "its files are listed elsewhere"
    #: It keeps nothing from `databuild erase`, which people may owe by law.
    yields_to_erasure: bool = False

    def files(self, asset: str, older_than_seconds: float) -> set[str]:
        """The files of a dataset that the keeper lists and `expire` does not forget."""
        return set()

    def why_kept(self, found: Iterable[Removable]) -> dict[str, str]:
        """By uuid, why the data of instances stays for now. It is asked in the plan, and once the removal is recorded."""
        return {}

    def expire(self, asset: str, older_than_seconds: float) -> int:
        """Forget what was replaced so long ago; returns how much."""
        return 0

    def changed(self, refs: Collection[Ref]) -> None:
        """Data of instances of `refs` was removed, or a taint or a revert changed what readers see."""


class OpenKeeper(Protocol):
    """Opens a keeper for a clean-up or correction."""

    def __call__(
        self, engine: Engine, warehouse: str, *, seconds: float | None, instance: Callable[[], DagsterInstance]
    ) -> Keeper:
        """`warehouse` is the home's own; `seconds` bound the wait for each answer of a remote machine.

        Dagster is imported when `instance` is called.
        """


def open_keepers(
    engine: Engine, warehouse: str, *, seconds: float | None, instance: Callable[[], DagsterInstance]
) -> list[Keeper]:
    """The keepers of all features."""
    return [
        open_keeper(engine, warehouse, seconds=seconds, instance=instance)
        for open_keeper in rows(lambda feature: feature.keeps)
    ]
