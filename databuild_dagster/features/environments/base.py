"""The base of an environment as it was at the pin: what was live, from what, by which registered code (rules 16.1, 16.2)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from databuild_dagster.data.environment import Environment, environment_of_store
from databuild_dagster.data.home import lacks_store, store_url_of_home
from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.environments.errors import BaseAway, BaseChanged, EnvironmentClosing, EnvironmentOver
from databuild_dagster.features.environments.records import Opened, Opening, opened_in, opening_at
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.events import DatasetRegistered, ManifestRemoved, names_of
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import mid_sentence, one_line
from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.errors import StoreAway, StoreSilent
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import Store

#: Why a build state is not the base of an environment.
NOT_OPENED = "its log does not have the opening of the environment"


def _url_of_base(environment: Environment) -> str:
    """The url of the store. Dagster is imported where dagster.yaml places the storage. Raises `BadHome`, `BaseAway`."""
    home = Path(environment.base)
    if (url := store_url_of_home(home)) is not None:
        return url
    from databuild_dagster.bindings.registry.instance import is_of_a_database, open_instance, store_url

    try:
        with open_instance(home) as instance:
            return store_url(instance)
    except Exception as error:
        if not is_of_a_database(error):
            raise
        why = f"the database of Dagster in {home} does not answer: {one_line(error).rstrip('.')}"
        raise BaseAway(name=environment.name, why=why) from error


class _BaseStore(Store):
    """The store of a base: one connection at rest, and an outage of its server is a `BaseAway`."""

    def __init__(self, url: str, environment: str) -> None:
        self._environment = environment
        with self._asking():
            super().__init__(url)
        self.database.max_at_rest = 1

    def _create(self, connection: Connection) -> None:
        raise BaseAway(name=self._environment, url=self.url, why=f"no build state is in {self.database.place}")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self._asking(), super().reading() as connection:
            yield connection

    def ask(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        with self._asking():
            return super().ask(sql, parameters)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except BaseAway:
            raise
        except (StoreAway, StoreSilent) as error:
            why = mid_sentence(one_line(error.message).rstrip("."))
            raise BaseAway(name=self._environment, url=self.url, why=why) from error


class Base:
    """The base of an environment at the pin."""

    def __init__(self, environment: Environment, opening: Opening, revision: int) -> None:
        """`revision` is that of the opening in the environment. Raises `BaseAway`."""
        self._environment, self._opening, self.revision = environment, opening, revision
        self.name = environment.name
        self._url = _url_of_base(environment)
        self._check_is_there()
        self._store = _BaseStore(self._url, environment.name)
        self.queries = Queries(self._store)
        self.pin = opening.pin
        self._specs: dict[str, DatasetSpec] | None = None

    def check(self) -> None:
        """Raises `BaseAway`, `BaseChanged`."""
        self._check_is_there()
        opening = self._opening
        if (self._store.identity().id or "") != opening.base_id:
            before = self._environment.place
            place = f"; the base was {before}" if before not in ("", self._store.database.place) else ""
            raise self._changed(f"it is a different one, or was taken over{place}")
        if self.queries.events.fingerprint(self.pin) != opening.fingerprint:
            raise self._changed(NOT_OPENED)

    def check_is_open(self, now: float) -> None:
        """Raises `BaseChanged`, `EnvironmentClosing`, `EnvironmentOver`."""
        name, opening = self._environment.name, self._opening
        opened = opening.unpinned or opened_in(self._store).get(name)
        if opened is None or opened.id != opening.id:
            raise self._changed(NOT_OPENED)
        if opened.is_closing:
            raise EnvironmentClosing(name=name)
        if now >= opened.keep_until:
            raise EnvironmentOver(name=name)

    def _check_is_there(self) -> None:
        # To open a store makes it.
        home, before = Path(self._environment.base), self._environment.place
        if lacks_store(home, self._url):
            is_elsewhere = before not in ("", self._url)
            why = f"DATABUILD_DB_URL does not name {before}" if is_elsewhere else f"no build state is in {home}"
            raise BaseAway(name=self._environment.name, url=self._url, why=why)

    def _changed(self, why: str) -> BaseChanged:
        place = self._store.database.place
        return BaseChanged(name=self._environment.name, place=place, url=place, why=why)

    def environments(self) -> dict[str, Opened]:
        """The environments of the base by name."""
        unpinned = self._opening.unpinned
        return opened_in(self._store) | ({} if unpinned is None else {unpinned.name: unpinned})

    @property
    def specs(self) -> dict[str, DatasetSpec]:
        """The datasets that the base had registered at the pin, by asset. Reads every registration until then, once."""
        if self._specs is None:
            found: dict[str, DatasetSpec] = {}
            for event in self.queries.events.named(names_of(DatasetRegistered), 0, self.pin):
                if isinstance(event.fact, DatasetRegistered):
                    found.update((spec.asset, spec) for spec in event.fact.datasets)
                    for asset in event.fact.removed:
                        found.pop(asset, None)
            self._specs = found
        return self._specs

    def removals(self, uuids: Iterable[str]) -> list[ManifestRemoved]:
        """The removals of data, each with the instances among `uuids` alone. Reads every removal if one of them was removed."""
        removed = self.queries.instances.removed(uuids)
        last = self.queries.events.head().seq
        events = self.queries.events.named(names_of(ManifestRemoved), 0, last) if removed else ()
        facts = [event.fact for event in events if isinstance(event.fact, ManifestRemoved)]
        ours = [replace(fact, uuids=tuple(uuid for uuid in fact.uuids if uuid in removed)) for fact in facts]
        return [fact for fact in ours if fact.uuids]

    def live(self, refs: Sequence[Ref]) -> dict[Ref, Canonical]:
        """The instances that were live at the pin, by ref, if they are neither tainted nor removed now."""
        then = self.queries.canonical.at(refs, self.pin)
        found = {ref: one for ref, one in then.items() if one.state is InstanceState.LIVE and one.uuid is not None}
        uuids = [str(one.uuid) for one in found.values()]
        bad = self.queries.instances.taints_in_force(uuids).keys() | self.queries.instances.removed(uuids)
        return {ref: one for ref, one in found.items() if one.uuid not in bad and one.manifest_state != REMOVED}


def inputs_in(queries: Queries, uuids: Iterable[str]) -> dict[str, dict[Ref, str]]:
    """By instance, the inputs from which it was built, by ref."""
    found: dict[str, dict[Ref, str]] = defaultdict(dict)
    for user, ref, used in queries.instances.inputs_by_ref(uuids):
        found[user][ref] = used
    return found


def base_of(engine: Engine) -> Base | None:
    """The base of the environment that has the store; None if the store is not that of an environment.

    Raises `BaseAway`, `BaseChanged`.
    """
    environment = environment_of_store(engine.store.path)
    if environment is None:
        return None
    opening, revision = opening_at(engine.store)
    if opening is None:
        raise BaseChanged(
            name=environment.name,
            place=environment.place or environment.base,
            url=environment.place or environment.base,
            why="the opening did not come to its end",
        )
    base = engine.memory.of((Base, opening.id, revision), lambda: Base(environment, opening, revision))
    base.check()
    return base


def base_while_open(own: Engine, name: str) -> Base:
    """The base of an environment that a command opened. Raises as `base_of`, and `EnvironmentClosing` if it is removed meanwhile."""
    if (base := base_of(own)) is None:
        raise EnvironmentClosing(name=name)
    return base
