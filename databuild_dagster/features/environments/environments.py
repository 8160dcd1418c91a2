"""Environments are opened and removed, each by steps that a killed command leaves to its repetition (rules 16.1, 16.6)."""

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from databuild_dagster.bindings.registry.plain_keys import dynamic_name
from databuild_dagster.data.dynamic_keys import dynamic_keys
from databuild_dagster.data.environment import FILE_NAME, Environment, base_of_home, environment_of, folder_of, home_of
from databuild_dagster.data.home import DATABASE_NAME, SETTINGS, BadHome, moves_events
from databuild_dagster.data.ownership import (
    MARKER_NAME,
    Marker,
    Ownership,
    marker_of,
    other_home,
    replace_marker,
)
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import in_words, surely_gone, this_user
from databuild_dagster.engine.orchestrator_notes import has_orchestrator
from databuild_dagster.features.environments.base import NOT_OPENED, base_while_open
from databuild_dagster.features.environments.borrowing import borrow_again
from databuild_dagster.features.environments.errors import (
    BadDays,
    BadEnvironmentName,
    BadRoot,
    BaseChanged,
    BaseIsEnvironment,
    BaseMoved,
    CopiedBase,
    EnvironmentClosing,
    EnvironmentElsewhere,
    EnvironmentExists,
    InUse,
    NoEnvironment,
    NotOpened,
)
from databuild_dagster.features.environments.following import follow
from databuild_dagster.features.environments.keeping import GRACE_SECONDS
from databuild_dagster.features.environments.probing import leave_probe
from databuild_dagster.features.environments.records import (
    Opened,
    Opening,
    close_in,
    close_unpinned_in,
    forget_in,
    given_uuids,
    open_in,
    opened_in,
    opening_of,
    pin_again_in,
    pins_with,
    record_opening,
    release_in,
)
from databuild_dagster.features.environments.views import EnvironmentFigures, EnvironmentView, views_of
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import EnvironmentMoved
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.store.backends.sqlite import this_host
from databuild_dagster.store.errors import NewerStore, StoreUnusable
from databuild_dagster.store.removals import Removals
from databuild_dagster.warehouse.errors import AccessDenied, ManifestMissing
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import file_paths, read_manifest
from databuild_dagster.warehouse.storage import normal_root, protocol_of

#: Days until an environment is over, unless it says otherwise.
DEFAULT_DAYS: Final = 14
MAX_DAYS: Final = 3650
_DAY_SECONDS = 86_400.0
#: Pins of a refresh, while others move the environment too.
_MAX_MOVES = 10
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


class Refreshed(msgspec.Struct, frozen=True):
    """What became of an environment by a new pin."""

    name: str
    pin_before: int
    pin: int
    #: Refs that have a different instance of the base now.
    borrowed: Sequence[Ref]
    #: Why borrowed refs keep an instance that the base has replaced.
    kept: Mapping[Ref, str]
    #: Pins from before whose data the base keeps: for `kept`, and for open launches.
    earlier_pins: Sequence[int]
    open_launches: int


class Environments:
    """The environments of the base in a home. `open_engine` opens the engine of a home."""

    def __init__(self, base: Path, open_engine: Callable[[Path], Engine]) -> None:
        self.base, self._open = base, open_engine

    def opened(self) -> dict[str, Opened]:
        """The environments by name: of the records in the base, and of the homes beside it that the base has no record of."""
        with self._engine_of(self.base) as engine:
            found = opened_in(engine.store)
        for home in folder_of(self.base, "").glob("*/home"):
            if home.parent.name in found:
                continue
            # The trouble of one environment stops no command about another.
            with suppress(StoreUnusable, NewerStore):
                opening = self._opening_in(home)
                if opening is not None and opening.unpinned is not None:
                    found[opening.name] = opening.unpinned
        return found

    def views(self, opened: Mapping[str, Opened]) -> dict[str, EnvironmentView]:
        """Environments with what each has borrowed and built. Looks at every instance of them."""
        with self._engine_of(self.base) as engine:
            return views_of(opened, engine.queries, engine.now(), EnvironmentFigures())

    @contextmanager
    def both(self, name: str) -> Iterator[tuple[Engine, Engine]]:
        """The engines of the base and of an environment.

        Raises `NoEnvironment`, `EnvironmentClosing`, `EnvironmentElsewhere`, `BaseMoved`, `NotOpened`, `CopiedBase`.
        """
        found = self.opened()
        if (opened := found.get(name)) is None:
            raise NoEnvironment(name=name, names=list(found))
        if opened.is_closing:
            raise EnvironmentClosing(name=name)
        if opened.is_moved:
            raise _base_moved(opened, self.base)
        with self._engine_of(self.base) as base, self._own_engine(opened) as own:
            if own is None:
                raise NotOpened(name=name) if opened.is_of_this_host else _elsewhere(opened)
            # Before anything is recorded: the log of a copy has the opening, too.
            _check_is_no_copy(base, environment_of(Path(opened.home)))
            yield base, own

    @contextmanager
    def _own_engine(self, opened: Opened) -> Iterator[Engine | None]:
        """The engine of an environment; None for an environment that was not opened to its end, or not on this host."""
        with self._engine_in(Path(opened.home)) as engine:
            opening = None if engine is None else opening_of(engine.store)
            yield engine if opening is not None and opening.id == opened.id else None

    def _is_opened(self, opened: Opened) -> bool:
        """Whether an environment was opened to its end, on this host."""
        with self._own_engine(opened) as own:
            return own is not None

    def _opening_in(self, home: Path) -> Opening | None:
        with self._engine_in(home) as engine:
            return None if engine is None else opening_of(engine.store)

    @contextmanager
    def _engine_in(self, home: Path) -> Iterator[Engine | None]:
        """The engine of the environment whose home it is; None if there is none."""
        if environment_of(home) is None or not (home / DATABASE_NAME).exists():
            yield None
            return
        with self._engine_of(home) as engine:
            yield engine

    def is_elsewhere(self, opened: Opened) -> bool:
        """Whether an environment is on a different host."""
        return not opened.is_of_this_host and not self._is_opened(opened)

    def create(
        self, name: str, *, root: str | None = None, days: float = DEFAULT_DAYS, is_pinned: bool = True
    ) -> Opened:
        """Open an environment, pinned at this moment. A killed call is continued by the next. `root` is a folder or a url.

        An environment that is not pinned has no record in its base, of which a right to read is enough.
        Raises `BadEnvironmentName`, `BadDays`, `BadHome`, `BadRoot`, `BaseIsEnvironment`, `EnvironmentExists`, `EnvironmentElsewhere`,
        `EnvironmentClosing`, `BaseMoved`, `InvalidWarehouse`, `DiskTrouble`, `StorageTrouble`, `OSError`.
        """
        if not _NAME.fullmatch(name):
            raise BadEnvironmentName(value=name)
        if not 0 < days <= MAX_DAYS:
            raise BadDays(value=days, most=MAX_DAYS)
        if root is not None:
            root = normal_root(root)
            # With a link alone, its target would stay when the environment is removed.
            root = str(Path(root).resolve()) if protocol_of(root) is None else root
        if (outer := environment_of(self.base)) is not None:
            raise BaseIsEnvironment(home=str(self.base), name=outer.name)
        with self._engine_of(self.base) as engine:
            opened, home = opened_in(engine.store).get(name), home_of(self.base, name)
            if opened is None and home.exists():
                if is_pinned or self._opening_in(home) is not None:
                    # The base was restored to a time before the environment; its log is about another history.
                    raise EnvironmentExists(name=name)
                self.drop(name)
            if opened is None:
                place = _free_root(folder_of(self.base, name))
                if root is not None and Path(root).is_relative_to(place.parent.parent.resolve()):
                    raise BadRoot(value=root, why="it is in the folder of the environments")
                opened = self._record(engine, name, root or str(place), days, is_pinned=is_pinned)
            elif self.is_elsewhere(opened):
                raise _elsewhere(opened)
            elif opened.is_closing:
                raise EnvironmentClosing(name=name)
            elif opened.is_moved:
                raise _base_moved(opened, self.base)
            elif not is_pinned or self._is_opened(opened) or (root is not None and root != opened.root):
                raise EnvironmentExists(name=name)
            # A store of an older version has no id.
            store_id, fingerprint = engine.store.identity().id or "", engine.queries.events.fingerprint(opened.pin)
            assert fingerprint is not None, "the event of the pin has been recorded"
            environment = Environment(name, str(self.base), opened.root, engine.store.database.place)
            _make_home(Path(opened.home), environment, engine.queries.datasets.all().values())
            with self._engine_of(Path(opened.home)) as own:
                Ownership(own.store).claim(Warehouse(opened.root))
                leave_probe(opened)
                unpinned = None if is_pinned else opened
                record_opening(own, Opening(opened.id, name, store_id, opened.pin, fingerprint, unpinned))
        return opened

    def _record(self, engine: Engine, name: str, root: str, days: float, *, is_pinned: bool) -> Opened:
        """Record the opening in the base, which pins it there, unless it is not to be pinned."""
        _check_root(root, self.base)
        now = engine.now()
        asked = Opened(
            id=engine.new_id(),
            name=name,
            home=str(home_of(self.base, name)),
            root=root,
            opened_at=now,
            keep_until=now + days * _DAY_SECONDS,
            opened_by=this_user(),
            host=this_host(),
            is_pinned=is_pinned,
        )
        if not is_pinned:
            if (pin := engine.queries.events.head().seq) == 0:
                raise BadHome(f"The build state of {self.base} is empty; build something there first.")
            return msgspec.structs.replace(asked, pin=pin)
        open_in(engine, asked)
        if (opened := opened_in(engine.store).get(name)) is None:
            raise EnvironmentClosing(name=name)
        if opened.id != asked.id:
            raise EnvironmentExists(name=name)
        return opened

    def refresh(self, name: str) -> Refreshed:
        """Pin an environment at this moment, and borrow again what it has borrowed. A killed call is repeated by the next.

        Raises `NoEnvironment`, `NotOpened`, `EnvironmentClosing`, `EnvironmentOver`, `EnvironmentElsewhere`, `EnvironmentMoved`, and as
        `base_of`.
        """
        with self.both(name) as (engine, own):
            pin_before, pinned = _move_pin(engine, own, name)
            _bring_keys(self.base, Path(pinned.home), engine.queries.datasets.all().values())
            borrowed, kept = borrow_again(own, base_while_open(own, name))
            n_open = len(own.queries.launches.open())
            earlier = pinned.earlier
            if not n_open:
                uuids = [str(one.uuid) for one in own.queries.canonical.of(list(kept)).values()]
                earlier = tuple(pin for pin in earlier if _is_seen(engine, uuids, pin))
            release_in(engine, pinned, earlier)
        return Refreshed(name, pin_before, pinned.pin, borrowed, kept, earlier, n_open)

    def attach(self, name: str) -> Opened:
        """Let an environment continue over its base, which has a new id since `databuild log take-over`. A killed call is repeated.

        Raises as `both`, and `BaseChanged` if the log of the base is not that on which the environment was opened.
        """
        with self.both(name) as (engine, own):
            opening, identity, place = opening_of(own.store), engine.store.identity(), engine.store.database.place
            home = Path(str(own.store.path)).parent
            environment = environment_of(home)
            assert opening is not None
            assert environment is not None, "it was opened to its end"
            why = None
            if identity.id is not None and not identity.is_in_place:
                why = "it is a copy, or was moved or restored, so run `databuild log take-over` first"
            elif engine.queries.events.fingerprint(opening.pin) != opening.fingerprint:
                why = NOT_OPENED
            if why is not None:
                raise BaseChanged(name=name, place=place, why=why)
            _describe(home, msgspec.structs.replace(environment, base=str(self.base), place=place))
            record_opening(own, msgspec.structs.replace(opening, base_id=identity.id or ""), opening)
            return opening.unpinned or opened_in(engine.store)[name]

    def drop(self, name: str) -> str | None:
        """Remove an environment and what it built, also one that a restored base does not know. A killed call is continued by the next.

        A day after its time, an environment of a different host is forgotten, and its root is returned: it stays.
        Raises `NoEnvironment`, `InUse`, `EnvironmentElsewhere`, `BaseChanged`, `DiskTrouble`, `StorageTrouble`, `OSError`.
        """
        with self._engine_of(self.base) as engine:
            found = opened_in(engine.store)
            opened = found.get(name)
            if opened is not None and self.is_elsewhere(opened):
                if not home_of(self.base, name).exists():
                    if engine.now() < opened.keep_until + GRACE_SECONDS:
                        raise _elsewhere(opened)
                    forget_in(engine, name)
                    return opened.root
                # An earlier environment of the name: the different host has freed the name.
                opened = None
            # Both of a base that was moved are beside it.
            home = home_of(self.base, name) if opened is None or opened.is_moved else Path(opened.home)
            if opened is None and not (_NAME.fullmatch(name) and home.exists()):
                raise NoEnvironment(name=name, names=list(found))
            environment = environment_of(home)
            known = opened or environment
            root = None if known is None else _root_now(known, home)
            store_id, kept = None, frozenset[str]()
            # A removal that was killed in the home has removed the root.
            if environment is not None and (home / DATABASE_NAME).exists():
                with self._engine_of(home) as own:
                    _check_is_base(engine, own, environment, opened)
                    _check_is_idle(own, name)
                    if opened is not None:
                        close_in(engine, opened)
                    elif (opening := opening_of(own.store)) is not None:
                        close_unpinned_in(own, opening)
                    # A launch may have begun meanwhile; none begins in an environment that is closing.
                    _check_is_idle(own, name)
                    store_id = own.store.identity().id
                    kept = taken_files(engine, own)
            base = engine.store.identity()
            heir = Marker(base.id or "", base.place or "")
            # The data before the home, which alone says whose the data is.
            if root is not None:
                _remove_root(root, store_id, kept, heir)
            _remove_folder(home.parent, store_id)
            if opened is not None:
                forget_in(engine, name)
        return None

    @contextmanager
    def _engine_of(self, home: Path) -> Iterator[Engine]:
        """The engine on the store of a home, closed at the end."""
        engine = self._open(home)
        try:
            yield engine
        finally:
            engine.store.close()


def _move_pin(engine: Engine, own: Engine, name: str) -> tuple[int, Opened]:
    """Pin an environment at this moment in its base, then in its own log. Returns the pin before, and the record of the base.

    Raises `EnvironmentClosing`, `EnvironmentOver`, `EnvironmentMoved`, and as `base_of`.
    """
    for _ in range(_MAX_MOVES):
        before, base = opening_of(own.store), base_while_open(own, name)
        assert before is not None, "it was opened to its end"
        base.check_is_open(own.now())
        # The base keeps the data of both pins until the environment has moved.
        if before.unpinned is None:
            pinned = pin_again_in(engine, name)
        else:
            pinned = msgspec.structs.replace(before.unpinned, pin=engine.queries.events.head().seq)
        if pinned is None:
            raise EnvironmentClosing(name=name)
        # What happened before the new pin is no news after it.
        follow(own, base)
        fingerprint = engine.queries.events.fingerprint(pinned.pin)
        assert fingerprint is not None, "the event of the pin has been recorded"
        unpinned = None if before.unpinned is None else pinned
        pins = pins_with(own.store, before)
        after = msgspec.structs.replace(before, pin=pinned.pin, fingerprint=fingerprint, unpinned=unpinned, pins=pins)
        record_opening(own, after, before)
        # Another refresh may have moved it to a different pin, which the base must not forget.
        if opening_of(own.store) == after:
            return before.pin, pinned
    raise EnvironmentMoved(environment=name)


def _is_seen(base: Engine, uuids: Sequence[str], pin: int) -> bool:
    """Whether readers of the base saw any of the instances at a pin."""
    born = base.queries.instances.seqs_of(uuids)
    return any(born[uuid] <= pin < one.held.left_seq for uuid, one in Removals(base.store).of_uuids(uuids).items())


def taken_files(base: Engine, own: Engine) -> frozenset[str]:
    """The folders and files of what an environment gave and its base took, as real paths. Raises `DatabuildError`."""
    given = given_uuids(own.store)
    kept: set[str] = set()
    for one in base.queries.instances.named(given):
        if one.manifest_uri is None or one.manifest_state == REMOVED:
            continue
        asset = asset_of(one.ref)
        place = Warehouse.of_manifest(one.manifest_uri, asset)
        kept.add(_real(place.instance_dir(asset, one.uuid)))
        # Without a manifest nothing is left to keep.
        with suppress(ManifestMissing):
            kept.update(map(_real, file_paths(place, read_manifest(place, asset, one.uuid))))
    return frozenset(kept)


def _remove_root(root: str, store_id: str | None, kept: frozenset[str], heir: Marker) -> None:
    """Remove a root that the store of an environment owns, but what its base keeps there: then the base owns the root.

    The marker goes last, so that a killed removal is continued.
    """
    warehouse = Warehouse(root)
    marker = marker_of(warehouse)
    if marker is None or marker.store_id != store_id:
        return
    storage, marked = warehouse.storage, f"{warehouse.root}/{MARKER_NAME}"
    files = [file.path for file in storage.list_files(warehouse.root, deep=True) if file.path != marked]
    going = [path for path in files if not _is_in(_real(path), kept)]
    storage.remove_files(going, warehouse.root)
    if len(going) < len(files):
        replace_marker(warehouse, heir)
    else:
        # Empty folders, and links to folders, stay until then.
        storage.remove_tree(warehouse.root)


def _real(path: str) -> str:
    return os.path.realpath(path) if protocol_of(path) is None else path


def _is_in(path: str, kept: frozenset[str]) -> bool:
    """Whether a file or a folder above it is among `kept`."""
    while path and path not in kept:
        path = path.rpartition("/")[0]
    return bool(path)


def _remove_folder(folder: Path, store_id: str | None) -> None:
    """Remove the folder of an environment, but roots of other stores: the base owns what it took."""
    if not folder.exists():
        return
    for entry in folder.iterdir():
        if not entry.is_dir() or entry.is_symlink():
            entry.unlink()
        elif (marker := marker_of(Warehouse(str(entry)))) is None or marker.store_id == store_id:
            shutil.rmtree(entry)
    if not any(folder.iterdir()):
        folder.rmdir()


def _free_root(folder: Path) -> Path:
    """A folder for data; the base may have kept the data of an earlier environment of the name."""
    names = ("data", *(f"data-{number}" for number in range(2, 1_000)))
    return next(root for name in names if not (root := folder / name).exists())


def _check_root(root: str, base: Path) -> None:
    """Raises `BadRoot` for a root inside a home or a different root, and for a root with files; `DiskTrouble`, `StorageTrouble`."""
    home = other_home(Warehouse(f"{root}/data"), str(base / "no store"))
    if home is not None or Path(root).is_relative_to(base):
        raise BadRoot(value=root, why=f"it is inside the Dagster home {home or base}")
    scheme, mark, path = root.rpartition("://")
    above = [f"{scheme}{mark}{folder}" for folder in Path(path).parents if str(folder) not in (".", "/")]
    for folder in above:
        # The rights of a user may end below. The data of the base can be read.
        with suppress(AccessDenied):
            if marker_of(Warehouse(folder)) is not None:
                raise BadRoot(value=root, why=f"it is inside the warehouse {folder}")
    is_empty = not Warehouse(root).storage.list_files(root, deep=True) if mark else _is_empty_folder(Path(root))
    if not is_empty:
        raise BadRoot(value=root, why="it is not empty")


def _is_empty_folder(path: Path) -> bool:
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def _make_home(home: Path, environment: Environment, datasets: Iterable[DatasetSpec]) -> None:
    home.mkdir(parents=True, exist_ok=True)
    if protocol_of(environment.root) is None:
        Path(environment.root).mkdir(parents=True, exist_ok=True)
    (home.parent.parent / ".gitignore").write_text("*\n")
    (home / "dagster.yaml").write_text(SETTINGS)
    _describe(home, environment)
    _bring_keys(Path(environment.base), home, datasets)


def _describe(home: Path, environment: Environment) -> None:
    temporary = home / f"{FILE_NAME}.new"
    temporary.write_bytes(msgspec.json.encode(environment))
    temporary.replace(home / FILE_NAME)


def _bring_keys(base: Path, home: Path, datasets: Iterable[DatasetSpec]) -> None:
    """Add the keys of dynamic partitions, which Dagster keeps in the home."""
    names = {name for spec in datasets if spec.partitions and (name := dynamic_name(spec.partitions)) is not None}
    keys = {name: found for name in names if (found := dynamic_keys(base, name))}
    are_moved = bool(names) and moves_events(base)
    if not keys and not are_moved:
        return
    # Dagster's import takes a second, and few projects have such partitions.
    from databuild_dagster.bindings.registry.instance import open_instance

    if are_moved:
        with open_instance(base) as of_base:
            keys = {name: list(of_base.get_dynamic_partitions(name)) for name in names}
    with open_instance(home) as instance:
        for name, found in keys.items():
            instance.add_dynamic_partitions(name, found)


def _base_moved(opened: Opened, here: Path) -> BaseMoved:
    """The environment names its files, and those of its base, where they were."""
    return BaseMoved(name=opened.name, base=str(base_of_home(opened.home)), here=str(here))


def _elsewhere(opened: Opened) -> EnvironmentElsewhere:
    return EnvironmentElsewhere(name=opened.name, host=opened.host, home=opened.home)


def _check_is_base(engine: Engine, own: Engine, environment: Environment, opened: Opened | None) -> None:
    """Raises `CopiedBase`, and `BaseChanged` if an environment was opened on a different base: place, id and record are different."""
    opening, place = opening_of(own.store), engine.store.database.place
    if environment.place in ("", place):
        return
    _check_is_no_copy(engine, environment)
    if opening is None or (
        opening.base_id != engine.store.identity().id and (opened is None or opened.id != opening.id)
    ):
        raise BaseChanged(name=environment.name, place=place, why=f"the base was {environment.place}")


def _check_is_no_copy(engine: Engine, environment: Environment | None) -> None:
    """Raises `CopiedBase` if the base of an environment is still there, in a file that is not this one."""
    path = engine.store.path
    if environment is None or path is None:
        return
    store = Path(environment.base, DATABASE_NAME)
    if store.exists() and not store.samefile(path):
        raise CopiedBase(name=environment.name, base=environment.base, place=engine.store.database.place)


def _root_now(known: Opened | Environment, home: Path) -> str:
    """The root of an environment, which was moved with a home beside it."""
    before = Path(known.home) if isinstance(known, Opened) else home_of(Path(known.base), known.name)
    is_beside = Path(known.root).is_relative_to(before.parent)
    return str(home.parent / Path(known.root).relative_to(before.parent)) if is_beside else known.root


def _check_is_idle(engine: Engine, name: str) -> None:
    """Raises `InUse` while a process builds in the environment, or an orchestrator would."""
    for launch in engine.queries.launches.open():
        if launch.holder is not None and not surely_gone(launch.holder):
            raise InUse(name=name, what=f"{in_words(launch.holder)} builds {launch.job} in it")
    for location in sorted({spec.location for spec in engine.queries.datasets.all().values()}):
        if has_orchestrator(engine, location):
            raise InUse(
                name=name,
                what=f"an orchestrator of {location} may tick in it: `databuild dev` did in the last ten minutes",
            )
