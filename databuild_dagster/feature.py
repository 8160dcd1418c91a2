"""A feature is one folder and one row: its row says what the folder adds to the tables of the core and of the faces.

The core asks `rows` for the entries of a column, and imports no feature. A column names the tuple that has its entries, so that
a row costs nothing until its column is asked for: `databuild --help` loads every row, and neither Dagster nor Spark.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Never, TypeVar, cast

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from databuild_dagster.bindings.authoring.definers import Definer
    from databuild_dagster.bindings.declare.settings import AssetSetting, Setting
    from databuild_dagster.bindings.orchestration.duties import Duty
    from databuild_dagster.bindings.orchestration.side_ticks import SideTick
    from databuild_dagster.calls.contributions import Check, Measure, StatusPart
    from databuild_dagster.data.keepers import OpenKeeper
    from databuild_dagster.engine.judge import Witness
    from databuild_dagster.engine.ports import Provider
    from databuild_dagster.store.invariants import Invariant
    from databuild_dagster.web.action import Action
    from databuild_dagster.web.routes import ApiRoute, MakeMark, Page, Probe

T = TypeVar("T", covariant=True)

#: The entry point group in which an installed package lists features: `name = "package.module:FEATURE"`.
ENTRY_POINTS: Final = "databuild_dagster.features"
#: Folders beside packages that describe them, and the bytes of a list of entry points.
_DESCRIBED: Final = (".dist-info", ".egg-info")
_MAX_BYTES: Final = 1_000_000
#: The package of the built-in features; its `BUILT_IN` lists their names.
_PACKAGE: Final = "databuild_dagster.features"


class Command(NamedTuple):
    """A command of the command line: `name` is `gc`, or `lot list` in the group `lot`."""

    name: str
    #: Module and function in the feature's package: "commands:gc".
    target: str
    #: The first sentence of its help, at most 60 characters.
    summary: str
    #: The section of `databuild --help`, and the command or group after which it stands there, or in its group. The name of the
    #: section itself is the first place; empty is the last one. A form such as `show --full` is with its command.
    section: str = ""
    after: str = ""
    #: The help of its group, for the first command of a group that the core does not have.
    group: str = ""


@dataclass(frozen=True)
class Column(Generic[T]):
    """The entries of one column: a tuple in a module of the feature, which is imported when the column is asked for."""

    #: Module and attribute in the feature's package, such as "settings:DEFINERS".
    place: str = ""
    #: The entries themselves, for a column without a place.
    given: tuple[T, ...] = ()

    def entries(self, package: str) -> tuple[T, ...]:
        """The tuple, of the feature in this package."""
        if not self.place:
            return self.given
        module, _, attribute = self.place.partition(":")
        return cast(tuple[T, ...], getattr(import_module(f"{package}.{module}"), attribute))


_NONE: Final = Column[Never]()


# Methods that nothing calls would make up a third of the time in which this module is imported.
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Feature:
    """The row of a feature. Each column has the name of the table that it adds to."""

    #: The feature's package, `__name__` in its `__init__.py`; the last part is its name.
    package: str
    #: One sentence for the page of the architecture: what a user loses without the feature.
    summary: str
    #: The features that this one imports; without one of them this feature is left out.
    needs: tuple[str, ...] = ()
    #: Settings of a code location: keywords of `build_definitions`, attributes of a `defs.yaml`.
    settings: Column[Setting[object]] = _NONE
    #: Options of the decorators of assets.
    asset_settings: Column[AssetSetting] = _NONE
    #: Jobs, sensors and assets that a code location gets besides the author's.
    definers: Column[Definer] = _NONE
    #: Tasks of each tick of the orchestrator.
    duties: Column[Duty] = _NONE
    #: Ticks of a sensor of its own.
    side_ticks: Column[SideTick] = _NONE
    #: Queries of `log check` over the tables.
    invariants: Column[Invariant] = _NONE
    #: Checks of `log check --deep` over files.
    checks: Column[Check] = _NONE
    #: Parts of `databuild status`.
    status_parts: Column[StatusPart] = _NONE
    #: Figures of `metrics --prometheus`.
    measures: Column[Measure] = _NONE
    #: Commands of the command line; plain data, because `--help` shows them.
    commands: tuple[Command, ...] = ()
    #: Urls of the API, pages, urls that say whether the web server is well, and actions.
    routes: Column[ApiRoute] = _NONE
    pages: Column[Page] = _NONE
    probes: Column[Probe] = _NONE
    actions: Column[Action] = _NONE
    #: Lines on every page about the build state that the pages show.
    marks: Column[MakeMark] = _NONE
    #: Reasons why `gc` keeps the data of an instance.
    keeps: Column[OpenKeeper] = _NONE
    #: Instances of refs without a build: adopted, borrowed, returned.
    provides: Column[Provider] = _NONE
    #: The judgement of launches: a witness says that a launch lives, or that it is lost.
    lives: Column[Witness] = _NONE

    @property
    def name(self) -> str:
        return self.package.rpartition(".")[2]

    def located_commands(self) -> list[Command]:
        """The commands, each with its full target."""
        return [command._replace(target=f"{self.package}.{command.target}") for command in self.commands]


class InvalidFeature(Exception):
    """A feature that cannot be used; the message names the feature and the reason."""


@cache
def built_in() -> tuple[Feature, ...]:
    """The features of this package whose folders are there, each after those that it needs.

    A folder that was removed is left out with the features that need it; nothing else has to change.
    """
    found: list[Feature] = []
    for name in import_module(_PACKAGE).BUILT_IN:
        module_name = f"{_PACKAGE}.{name}"
        try:
            module = import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name != module_name:
                raise
            continue
        # A folder of which git has left the caches alone has no `__init__.py`.
        if module.__file__ is not None:
            found.append(module.FEATURE)
    return tuple(_with_their_needs(found))


@cache
def features() -> tuple[Feature, ...]:
    """All features: built-in ones, then those of installed packages. Raises `InvalidFeature`."""
    found = list(built_in())
    if _may_be_listed():
        from importlib.metadata import entry_points

        for entry in entry_points(group=ENTRY_POINTS):
            found.append(_checked(_loaded(entry), f"the package {_package(entry)}", found))
    return tuple(found)


def rows(column: Callable[[Feature], Column[T]]) -> tuple[T, ...]:
    """The entries of one column of all features: `rows(lambda feature: feature.duties)`."""
    return tuple(row for feature in features() for row in column(feature).entries(feature.package))


def _may_be_listed() -> bool:
    """Whether an installed package may list features.

    To read the files costs `databuild --help` a twentieth of what `importlib.metadata` costs it.
    """
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except NotADirectoryError:
            # An archive of modules may have entry points, too.
            return True
        except OSError:
            continue
        if any(_names_the_group(f"{folder or '.'}/{name}") for name in names if name.endswith(_DESCRIBED)):
            return True
    return False


def _names_the_group(folder: str) -> bool:
    try:
        file = os.open(f"{folder}/entry_points.txt", os.O_RDONLY)
    except OSError:
        return False
    try:
        return ENTRY_POINTS.encode() in os.read(file, _MAX_BYTES)
    finally:
        os.close(file)


def _with_their_needs(found: Iterable[Feature]) -> list[Feature]:
    kept: list[Feature] = []
    left = list(found)
    while ready := [feature for feature in left if {*feature.needs} <= {known.name for known in kept}]:
        kept.append(ready[0])
        left.remove(ready[0])
    return kept


def _checked(feature: object, source: str, known: Iterable[Feature]) -> Feature:
    if not isinstance(feature, Feature):
        raise InvalidFeature(f"{source} gives {feature!r}, which is no Feature; name the row, such as `shop:FEATURE`.")
    names = [one.name for one in known]
    if feature.name in names:
        raise InvalidFeature(f"{source} gives a feature {feature.name!r}, which exists already; give it another name.")
    if missing := [need for need in feature.needs if need not in names]:
        raise InvalidFeature(f"The feature {feature.name!r} of {source} needs {missing[0]!r}, which is not installed.")
    return feature


def _loaded(entry: EntryPoint) -> object:
    try:
        return entry.load()
    except Exception as error:  # Code of other packages may raise anything while it is imported.
        raise InvalidFeature(
            f"The feature {entry.name!r} of the package {_package(entry)} cannot be loaded "
            f"({type(error).__name__}: {' '.join(str(error).split())}); repair or remove that package."
        ) from error


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value
