"""The code locations that a command needs, loaded only when it does need them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from databuild_dagster.cli.options import Where
from databuild_dagster.cli.process import printing_to_stderr, say
from databuild_dagster.cli.state import the_engine, the_instance
from databuild_dagster.model.errors import InvalidRequest, UnknownAsset, UnknownPartition

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from databuild_dagster.bindings.authoring.location import CodeLocation
    from databuild_dagster.bindings.building.deployment import Deployment
    from databuild_dagster.engine.engine import Engine
    from databuild_dagster.model.datasets import DatasetSpec
    from databuild_dagster.model.errors import AssetTaken
    from databuild_dagster.warehouse.layout import Warehouse

T = TypeVar("T")


def load(where: Where) -> list[CodeLocation]:
    """Raises `CannotLoad`."""
    from databuild_dagster.bindings.authoring.location import load_code_locations

    with printing_to_stderr():
        return load_code_locations(modules=where.modules, files=where.files, workspaces=where.workspaces)


def load_deployed(where: Where) -> list[CodeLocation]:
    """The locations that build: the one that is named, or all that use `build_definitions`. Raises `CannotLoad`."""
    from databuild_dagster.bindings.authoring.location import the_code_location

    locations = load(where)
    deployed = [location for location in locations if location.deployment is not None]
    if where.location is None and len(deployed) > 1:
        return deployed
    return [the_code_location(locations, where.location)]


def register_all(engine: Engine, locations: list[CodeLocation]) -> dict[int, DatasetSpec]:
    """Record what these locations can build, warn of assets that another location owns, and return all datasets.

    Rule 5.7. Raises `LocationTaken`.
    """
    from databuild_dagster.bindings.registry.registration import datasets_of
    from databuild_dagster.data.read_plan import unknown_sources
    from databuild_dagster.engine.registering import register

    left = [
        (location.repository, location.deployment.location) for location in locations if location.deployment is not None
    ]
    loaded = {name for _, name in left}
    datasets: dict[int, DatasetSpec] = {}
    said: dict[str, None] = {}
    # Twice: an asset that moved from the second location to the first is free when the second is registered.
    for _ in range(2):
        taken: dict[str, tuple[AssetTaken, ...]] = {}
        for repository, name in left:
            registered = register(engine, name, datasets_of(repository.asset_graph, name))
            datasets, taken[name] = registered.datasets, registered.taken
            for sentence in filter(None, (*registered.redefined, registered.left_in_words(name))):
                said.setdefault(sentence)
        left = [(repository, name) for repository, name in left if taken[name]]
    unknown = unknown_sources(datasets.values(), [spec for spec in datasets.values() if spec.location in loaded])
    for warning in (*said, *chain.from_iterable(taken.values()), *unknown):
        say(f"Warning: {warning}")
    return datasets


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
    """Load the locations, tell the store of them, and find the one that has the asset.

    Raises `CannotLoad`, `UnknownAsset`, `NotLoaded`, `RootOfAnother`.
    """
    from databuild_dagster.bindings.registry.instance import engine_for, warehouse_of
    from databuild_dagster.data.ownership import Ownership
    from databuild_dagster.warehouse.layout import Warehouse

    instance = the_instance()
    engine = engine_for(instance)
    locations = load_deployed(where)
    register_all(engine, locations)
    dataset = engine.queries.known_dataset(asset)
    for location in locations:
        if location.deployment is not None and location.deployment.location == dataset.location:
            root = location.deployment.warehouse or warehouse_of(instance)
            Ownership(engine.store).claim(Warehouse(root))
            return DeployedDataset(engine, instance, dataset, Warehouse(root), location.deployment)
    raise NotLoaded(asset=asset, location=dataset.location)


def with_definitions(ask: Callable[[], T], where: Where, engine: Callable[[], Engine] = the_engine) -> T:
    """The answer to a question; definitions are loaded if they are named, or the question meets an unregistered asset or key.

    A key may be one of definitions that changed since they were registered.
    """
    if where.named:
        register_all(engine(), load(where))
    try:
        return ask()
    except (UnknownAsset, UnknownPartition) as unknown:
        if where.named:
            raise
        from databuild_dagster.bindings.authoring.location import CannotLoad

        try:
            locations = load(where)
        except CannotLoad as cannot:
            raise unknown from cannot
        register_all(engine(), locations)
        return ask()
