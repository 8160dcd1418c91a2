"""The roots that a store owns, and the roots that it must leave alone (rule 3.11).

A root inside the home is the home's own. Any other root has a marker with the id and the place of its store. A copy of the
store has the same id and a different place; it removes nothing there until `take_over` gives it an id of its own.
"""

import os
from collections.abc import Collection, Iterable
from functools import cached_property
from pathlib import PurePath
from typing import NamedTuple

import msgspec

from databuild_dagster.data.environment import RECORDS, environment_of_store
from databuild_dagster.data.home import DATABASE_NAME
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.wording import typed
from databuild_dagster.store.format import PLACE, STORE_ID
from databuild_dagster.store.meta_storage import MetaQueries
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import Identity, Store, new_store_id
from databuild_dagster.warehouse.layout import MANIFEST_NAME, Warehouse
from databuild_dagster.warehouse.storage import protocol_of


class RootOfAnother(Refused):
    """The warehouse {root} does not belong to this build state: {why}."""

    hint = (
        "Give this build state a warehouse of its own. If it is to own this one, after a move, a restore or an import: "
        "`databuild log take-over`. Containers of one host that share a home need one name in DATABUILD_HOST."
    )


class Ownership:
    """The roots of a store as they are when first asked for: create it again to look again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: dict[str, str | None] = {}

    @cached_property
    def identity(self) -> Identity:
        return self._store.identity()

    @property
    def is_copy(self) -> bool:
        """Whether the store was copied, moved or restored, and has not taken over since."""
        return self.identity.id is not None and not self.identity.is_in_place

    def why_not(self, warehouse: Warehouse) -> str | None:
        """Why the store does not own a root; None if it does. Raises `DiskTrouble`, `StorageTrouble`."""
        if warehouse.root not in self._found:
            self._found[warehouse.root] = self._why_not(warehouse)
        return self._found[warehouse.root]

    def _why_not(self, warehouse: Warehouse) -> str | None:
        if self.is_at_home(warehouse):
            return None
        if self.is_of_base(warehouse):
            return "this build state is an environment, which reads it and writes elsewhere"
        identity = self.identity
        if identity.id is None or identity.place is None:
            return "an older version made this build state, and no marker says which one owns the warehouse"
        if not identity.is_in_place:
            return f"this build state is a copy, or was moved or restored ({identity.here}, but recorded as {identity.place})"
        marker = marker_of(warehouse)
        if marker is None:
            return "no marker says which build state owns it"
        if marker != Marker(identity.id, identity.place):
            return f"its marker names another build state ({marker.place})"
        return None

    def is_at_home(self, warehouse: Warehouse) -> bool:
        """Whether the root is inside the home, or the store in memory, which has no copies."""
        path = self._store.path
        if path is None:
            return self._store.database.is_private
        inside = self._store.places.holds(warehouse.root)
        # A copy beside the store has another name.
        return inside and (os.path.basename(path) == DATABASE_NAME or self.identity.is_in_place)

    def is_of_base(self, warehouse: Warehouse) -> bool:
        """Whether the store is that of an environment, which has a different root (rule 16.1)."""
        environment = environment_of_store(self._store.path)
        return environment is not None and warehouse.root != Warehouse(environment.root).root

    def check(self, warehouse: Warehouse) -> None:
        """Check whether a build may write into a root; leaves no mark. Raises `RootOfAnother`, `DiskTrouble`, `StorageTrouble`."""
        why, identity = self.why_not(warehouse), self.identity
        may_be_first = (identity.id is None or identity.is_in_place) and not self.is_of_base(warehouse)
        if why is None or (may_be_first and marker_of(warehouse) is None):
            return
        # Another process of this store may have marked the root between the two looks.
        del self._found[warehouse.root]
        if (why := self.why_not(warehouse)) is not None:
            raise RootOfAnother(root=warehouse.root, why=why)

    def claim(self, warehouse: Warehouse) -> None:
        """Check before a build writes into a root, and mark a root that has no marker.

        Raises `RootOfAnother`, `DiskTrouble`, `StorageTrouble`.
        """
        self.check(warehouse)
        identity = self.identity
        # Not for an older version's store: which of its copies comes first is chance.
        if self.why_not(warehouse) is None or identity.id is None or identity.place is None:
            return
        make_marker(warehouse, Marker(identity.id, identity.place))
        del self._found[warehouse.root]
        self.check(warehouse)

    def may_write(self, warehouse: Warehouse) -> bool:
        """Whether `claim` does not refuse. False for a root inside the home of another store, unless this store has marked it.

        Raises `DiskTrouble`, `StorageTrouble`.
        """
        # A home needs no marker, so a copy that has taken over finds none in the warehouse of its original.
        if self.why_not(warehouse) is not None and other_home(warehouse, self._store.path):
            return False
        try:
            self.claim(warehouse)
        except RootOfAnother:
            return False
        return True


class TakenOver(NamedTuple):
    """A root of a take-over."""

    root: str
    #: The place of the store that its marker named; None without a marker.
    before: str | None
    #: Why it cannot be taken over; None if it is.
    why_not: str | None


def plan_take_over(store: Store, warehouses: Iterable[Warehouse], named: Collection[str] = ()) -> list[TakenOver]:
    """The roots outside the home, each with the reason if it cannot be taken over: it is in another home and not in `named`."""
    ownership, found = Ownership(store), []
    of_environments = {Warehouse(root).root: name for name, root in roots_of_environments(store).items()}
    for warehouse in warehouses:
        if ownership.is_at_home(warehouse) or ownership.is_of_base(warehouse):
            continue
        home = None if warehouse.root in named else other_home(warehouse, store.path)
        marker = marker_of(warehouse)
        why = None if home is None else f"it is inside the home {home}"
        if (name := of_environments.get(warehouse.root)) is not None:
            # The store took instances there.
            why = f"the environment {name} owns it until `databuild env drop {typed(name)}`"
        found.append(TakenOver(warehouse.root, None if marker is None else marker.place, why))
    return found


class _Recorded(msgspec.Struct):
    """What the record of an environment in its base says to a take-over."""

    name: str
    root: str


def roots_of_environments(store: Store) -> dict[str, str]:
    """The roots of the environments that a base has recorded, by name."""
    entries = MetaQueries(store).prefix(RECORDS).entries
    found = [msgspec.json.decode(entry.value, type=_Recorded) for entry in entries if entry.value is not None]
    return {one.name: one.root for one in found}


def take_over(store: Store, warehouses: Iterable[Warehouse], named: Collection[str] = ()) -> list[TakenOver]:
    """Give the store an id of its own at its place, and mark its roots with both. Raises `DiskTrouble`, `StorageTrouble`.

    The id comes first: after a crash between the two, the roots are refused, and a second take-over marks them.
    """
    planned = plan_take_over(store, warehouses, named)
    marker = Marker(new_store_id(), store.identity().here or "")
    store.accept()
    store.describe({STORE_ID: marker.store_id, PLACE: marker.place})
    for root in planned:
        if root.why_not is None:
            replace_marker(Warehouse(root.root), marker)
    return planned


def other_home(warehouse: Warehouse, path: str | None) -> str | None:
    """The home, of a different SQLite store, that the root is inside of; None if there is none."""
    if path is None or protocol_of(warehouse.root) is not None:
        return None
    for folder in PurePath(warehouse.root).parents:
        store = str(folder / DATABASE_NAME)
        if store != path and os.path.exists(store):
            return str(folder)
    return None


# The marker of a root


#: In the root itself, where no asset has a folder: encoded names do not begin with a dot.
MARKER_NAME = ".databuild.json"


class Marker(NamedTuple):
    """The store that owns a root: its id and its place (rule 3.11)."""

    store_id: str
    place: str


#: The marker of a file that cannot be read.
UNREADABLE = Marker("", "unreadable")


def marker_of(warehouse: Warehouse) -> Marker | None:
    """The marker of a root; None if it has none. Raises `DiskTrouble`, `StorageTrouble`."""
    try:
        contents = warehouse.storage.read_bytes(_path(warehouse))
    except FileNotFoundError:
        return None
    try:
        return Marker(**msgspec.json.decode(contents, type=dict[str, str]))
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError):
        return UNREADABLE


def make_marker(warehouse: Warehouse, marker: Marker) -> bool:
    """Mark a root unless it has a marker; returns whether it did. Raises `DiskTrouble`, `StorageTrouble`."""
    return warehouse.storage.create_only(_path(warehouse), _contents(marker))


def replace_marker(warehouse: Warehouse, marker: Marker) -> None:
    """Mark a root whether it has a marker or not. Raises `DiskTrouble`, `StorageTrouble`."""
    warehouse.storage.replace(_path(warehouse), _contents(marker))


def _path(warehouse: Warehouse) -> str:
    return f"{warehouse.root}/{MARKER_NAME}"


def _contents(marker: Marker) -> bytes:
    return msgspec.json.format(msgspec.json.encode(marker._asdict()), indent=1) + b"\n"


def warehouses_of(queries: Queries, default: str) -> list[Warehouse]:
    """The warehouses of recorded instances, and the default warehouse."""
    roots = {Warehouse(default).root: Warehouse(default)}
    for asset, folder in queries.instances.dataset_folders():
        warehouse = Warehouse.of_manifest(f"{folder}/data/instance=…/{MANIFEST_NAME}", asset)
        if warehouse.dataset_dir(asset) == folder:
            roots.setdefault(warehouse.root, warehouse)
    return list(roots.values())
