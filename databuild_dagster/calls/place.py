"""Where a function works: a Dagster instance, its engine, and the definitions that it was given or that a question needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from databuild_dagster.calls.streams import warn
from databuild_dagster.data.home import existing_home, the_home
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.refs import AnyRef, PartitionRef, Ref, parse_ref
from databuild_dagster.model.selections import SELECTABLE

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from databuild_dagster.bindings.local.locations import AnyDefinitions
    from databuild_dagster.engine.engine import Engine

T = TypeVar("T")
#: One ref or range, or several of them.
Refs = AnyRef | Iterable[AnyRef]


@dataclass(frozen=True)
class Place:
    """A Dagster instance and the engine on its store."""

    instance: DagsterInstance
    engine: Engine

    def refs(self, names: Refs, only: str | Iterable[str] = ()) -> tuple[Ref, ...]:
        """The refs that refs and ranges name; with `only`, those in one of these states. Raises as `select_refs`, `InvalidRequest`."""
        from databuild_dagster.bindings.registry.selections import refs_of_names

        given = tuple(map(parse_ref, [names] if isinstance(names, str | PartitionRef) else names))
        states = frozenset(only.split(",") if isinstance(only, str) else only)
        for state in states.difference(SELECTABLE):
            raise InvalidRequest(what="only", value=state, why=f"the states are {', '.join(SELECTABLE)}")
        if not given:
            raise InvalidRequest(what="refs", value=[], why="name at least one ref")
        return refs_of_names(self.engine.queries, lambda: self.instance, given, states)

    def ask(self, question: Callable[[], T], definitions: AnyDefinitions | None) -> T:
        """The answer, once definitions are registered that were given or that the question needs (`with_definitions`)."""
        from databuild_dagster.bindings.local.locations import locations_of, register_all, with_definitions

        def load() -> None:
            warn(register_all(self.engine, locations_of(definitions)).warnings)

        return with_definitions(question, load, is_named=definitions is not None)


@contextmanager
def opened(instance: DagsterInstance | None, home: str | Path | None) -> Iterator[Place]:
    """The given instance, or that of a home: the given one, or the one that commands find or make. Raises `BadHome`, `InvalidRequest`."""
    from databuild_dagster.bindings.registry.instance import close_engine, engine_for, open_instance, store_url

    if instance is not None:
        if home is not None:
            raise InvalidRequest(what="home", value=str(home), why="instance= has a home already; give one of them")
        yield Place(instance, engine_for(instance))
        return
    with open_instance(the_home()[0] if home is None else existing_home(home)) as opened_here:
        try:
            yield Place(opened_here, engine_for(opened_here))
        finally:
            # Its catalog has the instance that ends here.
            close_engine(store_url(opened_here))
