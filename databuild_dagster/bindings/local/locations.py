"""The code locations of a build in this process: found as a command finds them, or given in Python, and registered."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

from dagster import Definitions

from databuild_dagster.bindings.authoring.location import (
    CannotLoad,
    CodeLocation,
    load_code_locations,
    the_code_location,
)
from databuild_dagster.bindings.building.deployment import deployment_of_repository
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.data.read_plan import unknown_sources
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.registering import register
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import AssetTaken, UnknownAsset, UnknownPartition

T = TypeVar("T")

#: Definitions as a Python program has them: an object, a module, a file (`….py`), or several of them.
AnyDefinitions = Definitions | str | Path | Sequence[Definitions | str | Path]


class Registered(NamedTuple):
    """All datasets by row id, as they are registered now, and sentences that warn."""

    datasets: dict[int, DatasetSpec]
    warnings: tuple[str, ...]


def locations_of(definitions: AnyDefinitions | None) -> list[CodeLocation]:
    """The code locations of definitions, without any those of the project in the working directory. Raises `CannotLoad`."""
    if definitions is None:
        return load_code_locations()
    given = [definitions] if isinstance(definitions, Definitions | str | Path) else list(definitions)
    names = [name for name in given if not isinstance(name, Definitions)]
    files = [str(name) for name in names if isinstance(name, Path) or name.endswith(".py")]
    modules = [name for name in names if isinstance(name, str) and not name.endswith(".py")]
    loaded = load_code_locations(modules=modules, files=files) if files or modules else []
    return [*map(_location_of, (one for one in given if isinstance(one, Definitions))), *loaded]


def _location_of(definitions: Definitions) -> CodeLocation:
    repository = definitions.get_repository_def()
    deployment = deployment_of_repository(repository)
    return CodeLocation(repository.name if deployment is None else deployment.location, repository, deployment)


def deployed(locations: Sequence[CodeLocation], name: str | None = None) -> list[CodeLocation]:
    """The locations that build: the one that is named, or all that use `build_definitions`. Raises `CannotLoad`."""
    found = [location for location in locations if location.deployment is not None]
    if name is None and len(found) > 1:
        return found
    return [the_code_location(locations, name)]


def register_all(engine: Engine, locations: Iterable[CodeLocation]) -> Registered:
    """Record what these locations can build, and warn of assets that another location owns.

    Rule 5.7. Raises `LocationTaken`.
    """
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
    return Registered(datasets, (*said, *map(str, chain(*taken.values())), *unknown))


def with_definitions(ask: Callable[[], T], load: Callable[[], object], *, is_named: bool) -> T:
    """The answer to a question; `load` registers definitions first if they are named, or if the question meets an unregistered
    asset or key.

    A key may be one of definitions that changed since they were registered.
    """
    if is_named:
        load()
    try:
        return ask()
    except (UnknownAsset, UnknownPartition) as unknown:
        if is_named:
            raise
        try:
            load()
        except CannotLoad as cannot:
            raise unknown from cannot
        return ask()
