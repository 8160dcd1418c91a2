"""What `build_definitions` has made in this process, by location: for code that Dagster gives no repository.

Loading definitions cannot register them, for there is no Dagster instance then; so whoever first has both
does: the orchestrator's tick, a want from a sensor or schedule, the command line, a step.
"""

from collections.abc import Callable

from databuild_dagster.bindings.adapter.dagster_private import AssetGraph
from databuild_dagster.bindings.registry.registration import datasets_of, register
from databuild_dagster.engine.engine import Engine

_graphs: dict[str, Callable[[], AssetGraph]] = {}


def remember(location: str, graph: Callable[[], AssetGraph]) -> None:
    """A location was built here; its graph is made when it is asked for."""
    _graphs[location] = graph


def register_deployed(engine: Engine, location: str) -> None:
    """Tell the store of a location's datasets, if it was built in this process."""
    if (graph := _graphs.get(location)) is not None:
        register(engine, location, datasets_of(graph(), location))
