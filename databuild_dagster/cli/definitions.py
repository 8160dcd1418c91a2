"""The code locations that a command needs, loaded only when it does need them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from databuild_dagster.cli.options import Where
from databuild_dagster.model.commands import Command
from databuild_dagster.model.errors import UnknownAsset

if TYPE_CHECKING:
    from databuild_dagster.bindings.location import CodeLocation
    from databuild_dagster.engine import Engine, Outcome


def load(where: Where) -> list[CodeLocation]:
    """Raises `CannotLoad`."""
    from databuild_dagster.bindings.location import load_code_locations

    return load_code_locations(modules=where.modules, files=where.files, workspaces=where.workspaces)


def load_deployed(where: Where) -> list[CodeLocation]:
    """The locations that build: the one that is named, or all that use `build_definitions`. Raises `CannotLoad`."""
    from databuild_dagster.bindings.location import the_code_location

    locations = load(where)
    deployed = [location for location in locations if location.deployment is not None]
    if where.location is None and len(deployed) > 1:
        return deployed
    return [the_code_location(locations, where.location)]


def register_all(engine: Engine, locations: list[CodeLocation]) -> None:
    """Tell the store what these locations can build (SPEC 5.7)."""
    from databuild_dagster.bindings.registration import datasets_of, register

    for location in locations:
        if location.deployment is not None:
            name = location.deployment.location
            register(engine, name, datasets_of(location.repository.asset_graph, name))


def handle_with_definitions(engine: Engine, command: Command, where: Where) -> Outcome:
    """Handle a command; an asset that nobody registered yet may stand in definitions that were never loaded on this home."""
    from databuild_dagster.bindings.location import CannotLoad

    if where.named:
        register_all(engine, load(where))
    try:
        return engine.handle(command, actor="user")
    except UnknownAsset as unknown:
        if where.named:
            raise
        try:
            locations = load(where)
        except CannotLoad as cannot:
            raise unknown from cannot
        register_all(engine, locations)
        return engine.handle(command, actor="user")
