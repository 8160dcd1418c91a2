"""Where a function works: a Dagster instance, its engine, and the definitions that it was given or that a question needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from databuild_dagster.calls.streams import warn
from databuild_dagster.data.environment import environment_of
from databuild_dagster.data.home import existing_home, the_home
from databuild_dagster.model.errors import InvalidRequest, UnknownAsset, UnknownPartition
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
        """The refs that refs and ranges name; with `only`, the refs in the states of `only`. Raises as `select_refs`, `InvalidRequest`."""
        from databuild_dagster.bindings.registry.selections import refs_of_names

        found = names if isinstance(names, Iterable) and not isinstance(names, str | PartitionRef) else (names,)
        given: list[AnyRef] = []
        for name in found:
            if not isinstance(name, str | PartitionRef):
                raise InvalidRequest(what="refs", value=repr(name), why="a ref is a text, such as sales@2024-01-01")
            given.append(name)
        states = frozenset(only.split(",") if isinstance(only, str) else only)
        for state in states.difference(SELECTABLE):
            raise InvalidRequest(what="only", value=state, why=f"the states are {', '.join(SELECTABLE)}")
        if not given:
            raise InvalidRequest(what="refs", value=[], why="name at least one ref")
        return refs_of_names(self.engine.queries, lambda: self.instance, tuple(map(parse_ref, given)), states)

    def ask(self, question: Callable[[], T], definitions: AnyDefinitions | None, *, is_borrowing: bool = False) -> T:
        """The answer, once definitions are registered that were given or that the question needs (`with_definitions`).

        To borrow in an environment needs the code as it is now.
        """
        from databuild_dagster.bindings.local.locations import locations_of, register_all

        def load() -> None:
            warn(register_all(self.engine, locations_of(definitions)).warnings)

        is_named = definitions is not None or (
            is_borrowing and environment_of(self.instance.root_directory) is not None
        )
        return with_definitions(question, load, is_named=is_named)


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
        from databuild_dagster.bindings.authoring.location import NoDefinitions

        try:
            load()
        except NoDefinitions as cannot:
            raise unknown from cannot
        return ask()


#: By home, the instance of the calls that are in it now, and their number: calls in several threads share its engine.
_shared: dict[Path, tuple[DagsterInstance, int]] = {}
_lock = Lock()


@contextmanager
def opened(instance: DagsterInstance | None, home: str | Path | None) -> Iterator[Place]:
    """The given instance, or that of a home: the given one, or the one that commands find or make. Raises `BadHome`, `InvalidRequest`."""
    from databuild_dagster.bindings.registry.instance import close_engine, engine_for, open_instance, store_url

    if instance is not None:
        if home is not None:
            raise InvalidRequest(what="home", value=str(home), why="instance= has a home already; give one of them")
        yield Place(instance, engine_for(instance))
        return
    found = the_home()[0] if home is None else existing_home(home)
    with _lock:
        shared, n = _shared[found] if found in _shared else (open_instance(found), 0)
        _shared[found] = shared, n + 1
    try:
        yield Place(shared, engine_for(shared))
    finally:
        with _lock:
            _, n = _shared[found]
            _shared[found] = shared, n - 1
            if n == 1:
                del _shared[found]
                # Its catalog has the instance that ends here.
                with shared:
                    close_engine(store_url(shared))
