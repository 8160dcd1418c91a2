"""The page of environments, its url, and the mark of an environment on every page."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from databuild_dagster.features.environments.base import base_of
from databuild_dagster.features.environments.records import opened_in, pinned_at
from databuild_dagster.features.environments.views import EnvironmentFigures, EnvironmentView, views_of
from databuild_dagster.web.routes import ApiRoute, Ask, Mark, Page
from databuild_dagster.web.state import State

_PATH: Final = "/environments"


class EnvironmentsHere(msgspec.Struct, frozen=True):
    """The environments of a base."""

    #: The environment whose build state answers; null for that of the base.
    here: str | None
    environments: list[EnvironmentView]


def environments(state: State) -> EnvironmentsHere:
    """The environments of this build state, or of the base of this environment. Raises `BaseAway`, `BaseChanged`."""
    engine, here = state.engine, state.environment
    base = base_of(engine)
    opened = opened_in(engine.store) if base is None else base.environments()
    queries = engine.queries if base is None else base.queries
    found = views_of(opened, queries, engine.now(), state.made_once(_figures))
    return EnvironmentsHere(None if here is None else here.name, list(found.values()))


def _figures(state: State) -> EnvironmentFigures:
    return EnvironmentFigures()


def _is_offered(state: State) -> bool:
    return state.environment is not None or bool(opened_in(state.engine.store))


def _mark(state: State) -> Mark | None:
    if (environment := state.environment) is None:
        return None
    # The pages name no path.
    base = "/".join(Path(environment.base).parts[-2:])
    at = pinned_at(state.engine.store)
    shown = None if at is None else datetime.fromtimestamp(at, UTC).isoformat()
    return Mark(f"Environment {environment.name}", _PATH, f"on {base}, pinned", shown)


def _page(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    return {"found": ask("environments")}


ROUTES: Final = (
    ApiRoute(
        _PATH,
        "The environments of this build state, or of the base of this environment.",
        environments,
        EnvironmentsHere,
    ),
)
PAGES: Final = (
    Page(
        _PATH,
        "environments.html",
        _page,
        entry="Environments",
        folder=Path(__file__).parent / "templates",
        is_offered=_is_offered,
    ),
)
MARKS: Final = (_mark,)
