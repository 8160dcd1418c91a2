"""`gc` of a base keeps what its environments see at their pins (rule 16.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from databuild_dagster.data.keepers import Keeper
from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.environments.records import given_uuids, opened_in
from databuild_dagster.store.removals import Removable

if TYPE_CHECKING:
    from dagster import DagsterInstance

#: Job runs that have begun before an environment was over may read on for so long.
GRACE_SECONDS = 86_400.0


class Pins(Keeper):
    """The pins of the environments of a base."""

    name = "its environments"
    yields_to_erasure = True

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def why_kept(self, found: Iterable[Removable]) -> dict[str, str]:
        """Instances that an environment sees: made by a pin of it, and left by readers after that pin."""
        since = self._engine.now() - GRACE_SECONDS
        opened = [one for one in opened_in(self._engine.store).values() if one.keep_until > since]
        instances = list(found) if opened else []
        born = self._engine.queries.instances.seqs_of([one.uuid for one in instances])
        return {
            one.uuid: f"the environment {by.name} may read it"
            for one in instances
            for by in opened
            if any(born[one.uuid] <= pin < one.held.left_seq for pin in (by.pin, *by.earlier))
        }


def open_pins(
    engine: Engine, warehouse: str, *, seconds: float | None, instance: Callable[[], DagsterInstance]
) -> Keeper:
    """An `OpenKeeper`."""
    return Pins(engine)


class Given(Keeper):
    """What an environment gave to its base."""

    name = "its base"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def why_kept(self, found: Iterable[Removable]) -> dict[str, str]:
        given = given_uuids(self._engine.store)
        return {one.uuid: "it was given to the base of the environment" for one in found if one.uuid in given}


def open_given(
    engine: Engine, warehouse: str, *, seconds: float | None, instance: Callable[[], DagsterInstance]
) -> Keeper:
    """An `OpenKeeper`."""
    return Given(engine)


KEEPERS = (open_pins, open_given)
