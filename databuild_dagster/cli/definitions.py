"""The code locations that a command needs, loaded only when it does need them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from databuild_dagster.bindings.local.load_note import read_note
from databuild_dagster.calls import place
from databuild_dagster.calls.streams import printing_to_stderr, warn
from databuild_dagster.cli.options import DEFINITION_OPTIONS, Where
from databuild_dagster.cli.state import dagster_home, the_engine, the_instance
from databuild_dagster.model.errors import InvalidRequest, UnknownAsset
from databuild_dagster.model.events import DatasetRegistered, names_of
from databuild_dagster.store.log import Head

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from databuild_dagster.bindings.authoring.location import CannotLoad, CodeLocation
    from databuild_dagster.bindings.building.deployment import Deployment
    from databuild_dagster.engine.engine import Engine
    from databuild_dagster.model.datasets import DatasetSpec
    from databuild_dagster.warehouse.layout import Warehouse

T = TypeVar("T")

_REGISTRATIONS = names_of(DatasetRegistered)


def load(where: Where) -> list[CodeLocation]:
    """Raises `CannotLoad`."""
    from databuild_dagster.bindings.authoring.location import load_code_locations

    with printing_to_stderr():
        return load_code_locations(modules=where.modules, files=where.files, workspaces=where.workspaces)


def load_deployed(where: Where) -> list[CodeLocation]:
    """The locations that build: the named location, or all that use `build_definitions`. Raises `CannotLoad`."""
    from databuild_dagster.bindings.local.locations import deployed

    return deployed(load(where), where.location)


def register_all(engine: Engine, locations: list[CodeLocation]) -> None:
    """Record what the locations can build, and print the warnings. Raises `LocationTaken`."""
    from databuild_dagster.bindings.local import locations as local

    warn(local.register_all(engine, locations).warnings)


def taking_definitions(command: click.Command) -> click.Command:
    """The command with -m, -f and -w, as every command has them, which name definitions in place of the project's.

    A command that needs no definitions loads them only where the store does not know an asset, to say that they cannot be loaded.
    """
    ask = command.callback
    is_done = any(param.name == "modules" for param in command.params)
    if ask is None or is_done or command.context_settings.get("ignore_unknown_options"):
        return command

    @wraps(ask)
    def checked(*args: Any, **options: Any) -> Any:
        where = Where(options.pop("modules"), options.pop("files"), options.pop("workspaces"), None)
        try:
            return ask(*args, **options)
        except UnknownAsset as unknown:
            if (why := why_not_loaded(where)) is not None:
                raise why from unknown
            raise

    command.callback = checked
    command.params += [click.Option(names, multiple=True, hidden=True) for names in DEFINITION_OPTIONS]
    return command


def why_not_loaded(where: Where) -> CannotLoad | None:
    """The error of definitions that cannot be loaded; None if they can, or if there are none."""
    from databuild_dagster.bindings.authoring.location import CannotLoad, NoDefinitions

    try:
        load(where)
    except NoDefinitions:
        return None
    except CannotLoad as error:
        return error
    return None


class NotLoaded(InvalidRequest):
    """{asset} belongs to code location {location!r}, which is not among the definitions that are loaded here."""

    hint = "Name its definitions with -f, -m or -w."


class DeployedDataset(NamedTuple):
    """A dataset of a location that is loaded, and what is needed to record instances of it."""

    engine: Engine
    instance: DagsterInstance
    dataset: DatasetSpec
    warehouse: Warehouse
    deployment: Deployment


def deployed_dataset(asset: str, where: Where) -> DeployedDataset:
    """Load the locations, register them in the store, and find the location that has the asset.

    Raises `CannotLoad`, `UnknownAsset`, `NotLoaded`, `RootOfAnother`.
    """
    from databuild_dagster.bindings.registry.instance import engine_for, warehouse_of
    from databuild_dagster.data.ownership import Ownership
    from databuild_dagster.warehouse.layout import Warehouse

    instance = the_instance()
    engine = engine_for(instance)
    locations = load_deployed(where)
    register_all(engine, locations)
    dataset = engine.queries.datasets.known(asset)
    for location in locations:
        if location.deployment is not None and location.deployment.location == dataset.location:
            root = location.deployment.warehouse or warehouse_of(instance)
            Ownership(engine.store).claim(Warehouse(root))
            return DeployedDataset(engine, instance, dataset, Warehouse(root), location.deployment)
    raise NotLoaded(asset=asset, location=dataset.location)


def with_definitions(
    ask: Callable[[], T], where: Where, engine: Callable[[], Engine] = the_engine, *, is_needed: bool = False
) -> T:
    """The answer to a question; definitions are loaded if they are named or needed, or the question meets an unregistered asset or key.

    A key may belong to definitions that changed since they were registered. Named definitions are not loaded if a build has
    registered them as they are (decision 0066).
    """
    is_named = (is_needed or where.named) and (
        where.location is not None or noted_load(where, engine(), _REGISTRATIONS) is None
    )
    return place.with_definitions(ask, lambda: register_all(engine(), load(where)), is_named=is_named)


def noted_load(where: Where, engine: Engine, news: Iterable[str]) -> Head | None:
    """The end of the log, if the definitions would load as a build has noted, and the log has no event of some types since then."""
    if (note := read_note(dagster_home(), where)) is None:
        return None
    events = engine.queries.events
    head, is_news = events.news(news, note.seq)
    return None if is_news or events.fingerprint(note.seq) != note.fingerprint else head
