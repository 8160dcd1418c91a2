"""A world on a database and one in memory that get the same commands: their events and their rows are the same.

It is the proof that a rule shown in memory holds on the database too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from databuild_dagster.engine.arcs import fire_arcs
from databuild_dagster.engine.engine import Outcome
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.store import schema
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.unit_of_work import from_stored

from .model_world import ModelWorld, differences
from .world import World


class TwinWorld(World):
    """`World`, whose every command also goes to its twin in memory."""

    def __init__(self, datasets: Iterable[DatasetSpec] = (), *, url: str | None = None) -> None:
        self.twin = ModelWorld()
        super().__init__(datasets, url=url)
        self.twin.catalog = self.catalog
        self.memory = self.engine.memory

    def handle(self, command: c.Command, *, command_id: str | None = None, actor: str = "tester") -> Outcome:
        self.twin.clock.now, self.twin.ids.following = self.engine.now(), self.ids.following
        self.twin.catalog = self.catalog
        outcome, refused = _tried(super(), command, command_id, actor)
        twins, twins_refused = _tried(self.twin, command, command_id, actor)
        assert str(refused) == str(twins_refused), command
        if refused is not None:
            raise refused
        assert outcome is not None
        assert twins is not None
        assert outcome.events == twins.events, command
        assert outcome.claim == twins.claim, command
        return outcome

    def fire(self) -> list[str]:
        """`fire_arcs` asks its engine for queries, catalog, memory and commands; here the commands go to both."""
        return fire_arcs(self, "orchestrator")  # type: ignore[arg-type]

    def apart(self) -> list[str]:
        """The rows that only one of the two has."""
        return differences(self.twin.view.tables(), self._tables()) + [str(found) for found in self.twin.check()]

    def _tables(self) -> dict[str, set[tuple[Any, ...]]]:
        with self.store.reading() as connection:
            tables = {
                table.name.removeprefix(PREFIX): {
                    tuple(row)
                    for row in connection.execute(f"SELECT {', '.join(table.columns.keys())} FROM {table.name}")
                }
                for table in schema.PROJECTIONS
            }
        for name in ("meta_entries", "meta_changes"):
            tables[name] = {(*row[:2], from_stored(row[2])) for row in tables[name]}
        return tables


def _tried(
    world: Any, command: c.Command, command_id: str | None, actor: str
) -> tuple[Outcome | None, DatabuildError | None]:
    try:
        return world.handle(command, command_id=command_id, actor=actor), None
    except DatabuildError as refused:
        return None, refused
