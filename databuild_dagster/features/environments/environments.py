"""Environments are opened and removed, each by steps that a killed command leaves to its repetition (rules 16.1, 16.6)."""

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from databuild_dagster.bindings.registry.plain_keys import dynamic_name
from databuild_dagster.data.dynamic_keys import dynamic_keys
from databuild_dagster.data.environment import FILE_NAME, Environment, environment_of, folder_of, home_of
from databuild_dagster.data.home import DATABASE_NAME, SETTINGS, sqlite_url, store_url_of_home
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
from databuild_dagster.features.environments.errors import (
    BadEnvironmentName,
    BadRoot,
    BaseElsewhere,
    BaseIsEnvironment,
    EnvironmentClosing,
    EnvironmentExists,
    InUse,
    NoEnvironment,
    NotOpened,
)
from databuild_dagster.features.environments.records import (
    Opened,
    Opening,
    close_in,
    forget_in,
    given_in,
    open_in,
    opened_in,
    opening_of,
    record_opening,
)
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.warehouse.errors import ManifestMissing
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import file_paths, read_manifest

#: Days until an environment is over, unless it says otherwise.
DEFAULT_DAYS: Final = 14
_DAY_SECONDS = 86_400.0
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


class Environments:
    """The environments of the base in a home. `open_engine` opens the engine of a home; None for a store outside the home."""

    def __init__(self, base: Path, open_engine: Callable[[Path], Engine | None]) -> None:
        self.base, self._open = base, open_engine

    def opened(self) -> dict[str, Opened]:
        """By name. Raises `BaseElsewhere`."""
        with self._engine_of(self.base) as engine:
            return opened_in(engine.store)

    def figures(self, opened: Opened) -> tuple[int, int] | None:
        """The numbers of borrowed and built instances; None for an environment that was not opened to its end."""
        with self._own_engine(opened) as engine:
            return None if engine is None else engine.queries.instances.n_borrowed_and_built()

    @contextmanager
    def both(self, name: str) -> Iterator[tuple[Engine, Engine]]:
        """The engines of the base and of an environment. Raises `NoEnvironment`, `EnvironmentClosing`, `NotOpened`, `BaseElsewhere`."""
        with self._engine_of(self.base) as base:
            found = opened_in(base.store)
            if (opened := found.get(name)) is None:
                raise NoEnvironment(name=name, names=list(found))
            if opened.is_closing:
                raise EnvironmentClosing(name=name)
            with self._own_engine(opened) as own:
                if own is None:
                    raise NotOpened(name=name)
                yield base, own

    @contextmanager
    def _own_engine(self, opened: Opened) -> Iterator[Engine | None]:
        """The engine of an environment; None for an environment that was not opened to its end."""
        home = Path(opened.home)
        if environment_of(home) is None or not (home / DATABASE_NAME).exists():
            yield None
            return
        with self._engine_of(home) as engine:
            opening = opening_of(engine.store)
            yield engine if opening is not None and opening.id == opened.id else None

    def create(self, name: str, *, root: Path | None = None, days: float = DEFAULT_DAYS) -> Opened:
        """Open an environment, pinned at this moment. A killed call is continued by the next.

        Raises `BadEnvironmentName`, `BadRoot`, `BaseIsEnvironment`, `BaseElsewhere`, `EnvironmentExists`, `EnvironmentClosing`, `OSError`.
        """
        if not _NAME.fullmatch(name):
            raise BadEnvironmentName(value=name)
        # With a link alone, its target would stay when the environment is removed.
        root = None if root is None else root.resolve()
        if (outer := environment_of(self.base)) is not None:
            raise BaseIsEnvironment(home=str(self.base), name=outer.name)
        with self._engine_of(self.base) as engine:
            opened = opened_in(engine.store).get(name)
            if opened is None and home_of(self.base, name).exists():
                # The base was restored to a time before the environment; its log is about another history.
                raise EnvironmentExists(name=name)
            if opened is None:
                place = _free_root(folder_of(self.base, name))
                if root is not None and root.is_relative_to(place.parent.parent.resolve()):
                    raise BadRoot(value=str(root), why="it is in the folder of the environments")
                opened = self._record(engine, name, root or place, days)
            elif opened.is_closing:
                raise EnvironmentClosing(name=name)
            elif self.figures(opened) is not None or (root is not None and str(root) != opened.root):
                raise EnvironmentExists(name=name)
            # A store of an older version has no id.
            store_id, fingerprint = engine.store.identity().id or "", engine.queries.events.fingerprint(opened.pin)
            assert fingerprint is not None, "the event of the pin has been recorded"
            _make_home(self.base, opened, engine.queries.datasets.all().values())
            with self._engine_of(Path(opened.home)) as own:
                Ownership(own.store).claim(Warehouse(opened.root))
                record_opening(own, Opening(opened.id, name, store_id, opened.pin, fingerprint))
        return opened

    def _record(self, engine: Engine, name: str, root: Path, days: float) -> Opened:
        """Record the opening in the base, which pins it there."""
        _check_root(root, self.base)
        now = engine.now()
        asked = Opened(
            id=engine.new_id(),
            name=name,
            home=str(home_of(self.base, name)),
            root=str(root),
            opened_at=now,
            keep_until=now + days * _DAY_SECONDS,
            opened_by=this_user(),
        )
        open_in(engine, asked)
        opened = opened_in(engine.store)[name]
        if opened.id != asked.id:
            raise EnvironmentExists(name=name)
        return opened

    def drop(self, name: str) -> None:
        """Remove an environment and what it built, also one that a restored base does not know. A killed call is continued by the next.

        Raises `NoEnvironment`, `InUse`, `BaseElsewhere`, `OSError`.
        """
        with self._engine_of(self.base) as engine:
            found = opened_in(engine.store)
            opened = found.get(name)
            home = home_of(self.base, name) if opened is None else Path(opened.home)
            if opened is None and not (_NAME.fullmatch(name) and home.exists()):
                raise NoEnvironment(name=name, names=list(found))
            known = opened or environment_of(home)
            store_id, kept = None, frozenset[str]()
            if (home / DATABASE_NAME).exists():
                with self._engine_of(home) as own:
                    _check_is_idle(own, name)
                    if opened is not None:
                        close_in(engine, opened)
                        # A launch may have begun meanwhile; none begins in an environment that is closing.
                        _check_is_idle(own, name)
                    store_id = own.store.identity().id
                    kept = taken_files(engine, own)
            base = engine.store.identity()
            heir = Marker(base.id or "", base.place or "")
            # The data before the home, which alone says whose the data is.
            if known is not None:
                _remove_root(known.root, store_id, kept, heir)
            _remove_folder(home.parent, store_id)
            if opened is not None:
                forget_in(engine, name)

    @contextmanager
    def _engine_of(self, home: Path) -> Iterator[Engine]:
        """The engine on the SQLite store of a home, closed at the end. Raises `BaseElsewhere`."""
        engine = self._open(home) if store_url_of_home(home) == sqlite_url(home) else None
        if engine is None:
            raise BaseElsewhere(home=str(home))
        try:
            yield engine
        finally:
            engine.store.close()


def taken_files(base: Engine, own: Engine) -> frozenset[str]:
    """The folders and files of what an environment gave and its base took, as real paths. Raises `DatabuildError`."""
    given = frozenset[str]().union(*given_in(own.store).values())
    kept: set[str] = set()
    for one in base.queries.instances.named(given):
        if one.manifest_uri is None or one.manifest_state == REMOVED:
            continue
        asset = asset_of(one.ref)
        place = Warehouse.of_manifest(one.manifest_uri, asset)
        kept.add(os.path.realpath(place.instance_dir(asset, one.uuid)))
        # Without a manifest nothing is left to keep.
        with suppress(ManifestMissing):
            kept.update(map(os.path.realpath, file_paths(place, read_manifest(place, asset, one.uuid))))
    return frozenset(kept)


def _remove_root(root: str, store_id: str | None, kept: frozenset[str], heir: Marker) -> None:
    """Remove a root that the store of an environment owns, but what its base keeps there: then the base owns the root.

    The marker goes last, so that a killed removal is continued.
    """
    warehouse = Warehouse(root)
    marker = marker_of(warehouse)
    if marker is None or marker.store_id != store_id:
        return
    real = os.path.realpath(root)
    here = frozenset(path for path in kept if path.startswith(f"{real}/"))
    holding = frozenset(str(parent) for path in here for parent in Path(path).parents)
    _remove_all_but(real, here | {f"{real}/{MARKER_NAME}"}, holding)
    if here:
        replace_marker(warehouse, heir)
    else:
        shutil.rmtree(root)


def _remove_all_but(folder: str, kept: frozenset[str], holding: frozenset[str]) -> None:
    """`holding` are the folders with something that is kept."""
    for entry in os.scandir(folder):
        if entry.path in kept:
            continue
        if entry.path in holding:
            _remove_all_but(entry.path, kept, holding)
        elif entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


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


def _check_root(root: Path, base: Path) -> None:
    """Raises `BadRoot` for a root inside a home or a different root, and for a root with files."""
    home = other_home(Warehouse(str(root / "data")), str(base / "no store"))
    if home is not None or root.is_relative_to(base):
        raise BadRoot(value=str(root), why=f"it is inside the Dagster home {home or base}")
    for folder in root.parents:
        if (folder / MARKER_NAME).exists():
            raise BadRoot(value=str(root), why=f"it is inside the warehouse {folder}")
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise BadRoot(value=str(root), why="it is not empty")


def _make_home(base: Path, opened: Opened, datasets: Iterable[DatasetSpec]) -> None:
    home = Path(opened.home)
    home.mkdir(parents=True, exist_ok=True)
    Path(opened.root).mkdir(parents=True, exist_ok=True)
    (home.parent.parent / ".gitignore").write_text("*\n")
    (home / "dagster.yaml").write_text(SETTINGS)
    contents = msgspec.json.encode(Environment(opened.name, str(base), opened.root))
    temporary = home / f"{FILE_NAME}.new"
    temporary.write_bytes(contents)
    os.replace(temporary, home / FILE_NAME)
    _bring_keys(base, home, datasets)


def _bring_keys(base: Path, home: Path, datasets: Iterable[DatasetSpec]) -> None:
    """Add the keys of dynamic partitions, which Dagster keeps in the home."""
    names = {name for spec in datasets if spec.partitions and (name := dynamic_name(spec.partitions)) is not None}
    keys = {name: found for name in names if (found := dynamic_keys(base, name))}
    if not keys:
        return
    # Dagster's import takes a second, and few projects have such partitions.
    from databuild_dagster.bindings.registry.instance import open_instance

    with open_instance(home) as instance:
        for name, found in keys.items():
            instance.add_dynamic_partitions(name, found)


def _check_is_idle(engine: Engine, name: str) -> None:
    """Raises `InUse` while a process builds in the environment."""
    for launch in engine.queries.launches.open():
        if launch.holder is not None and not surely_gone(launch.holder):
            raise InUse(name=name, holder=in_words(launch.holder), job=launch.job)
