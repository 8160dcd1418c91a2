"""A `defs.yaml` becomes `build_definitions(…)` on the files or modules that it names.

A dg project is a single code location. Its components share an orchestrator, a warehouse and a Spark, and settings that
differ are refused.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_type_hints
from weakref import WeakKeyDictionary

import dagster as dg
from pydantic import create_model

from databuild_dagster.bindings.adapter.dagster_private import TranslationFn, TranslationFnResolver, quiet_beta_warnings
from databuild_dagster.bindings.authoring import automation as conditions
from databuild_dagster.bindings.authoring.automation import AUTOMATION
from databuild_dagster.bindings.authoring.definitions import assembled
from databuild_dagster.bindings.authoring.shared_location import LocationParts, deployment_of, location_parts
from databuild_dagster.bindings.authoring.translator import DatabuildTranslator
from databuild_dagster.bindings.building.deployment import CORE_SETTINGS, Settings
from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.bindings.declare.settings import described, imported, settings
from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark
from databuild_dagster.bindings.registry.registration import remember
from databuild_dagster.engine.tick_pass import TickLimits

if TYPE_CHECKING:
    from databuild_dagster.features.settings import ComponentAttributes

_LIMITS = TickLimits()

#: As `DatabuildSpark` has them.
_MODES = ("shared", "sail", "classic", "remote")


_ASSETS = '''"""The assets of {name}: replace them with yours."""

import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, databuild_asset

daily = dg.DailyPartitionsDefinition("2024-01-01")


@databuild_asset(partitions_def=daily)
def {name}_raw(context: BuildContext) -> pd.DataFrame:
    """The events of one day; called once per day."""
    return pd.DataFrame({{"day": context.partition_key, "item": ["a", "b"], "amount": [1.5, 2.5]}})


@databuild_asset(partitions_def=daily, batched=True)
def {name}_by_day({name}_raw: pd.DataFrame) -> pd.DataFrame:
    """Called once for all days of a launch; `partition_key` is the day of a row."""
    return {name}_raw.groupby("partition_key", as_index=False)["amount"].sum()
'''


class DatabuildScaffolder(dg.Scaffolder[Any]):
    """`dg scaffold defs databuild_dagster.DatabuildComponent NAME` writes a component with two assets; existing files
    stay untouched."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Raises `InvalidAsset` for a component in Python."""
        if request.scaffold_format == "python":
            raise InvalidAsset(
                "DatabuildComponent is scaffolded as yaml: files beside a component.py are loaded by Dagster as well, and "
                "the assets would be there twice; leave --format out, or name a module outside of defs/ in your own."
            )
        folder = request.target_path.parent if request.append else request.target_path
        path = _free(folder)
        name = re.sub(r"\W", "_", folder.name) + path.stem.removeprefix("assets")
        path.write_text(_ASSETS.format(name=name if name.isidentifier() else f"_{name}"))
        dg.scaffold_component(request, {"assets": [path.name]})


def _free(folder: Path) -> Path:
    """`assets.py`, or the first numbered name that does not exist."""
    number = 1
    while (path := folder / f"assets{'' if number == 1 else f'_{number}'}.py").exists():
        number += 1
    return path


class SparkAttributes(dg.Model, dg.Resolvable):
    """Where Spark runs, as `DatabuildSpark` takes it."""

    mode: Annotated[str, described(f"How a process gets its session: {', '.join(_MODES)}.")] = _MODES[0]
    url: Annotated[str | None, described("For mode remote: sc://host:port, or a master such as spark://host:port.")] = (
        None
    )
    config: Annotated[Mapping[str, Any], described("Spark's own settings, flat or nested.")] = {}
    app_name: Annotated[str, described("The name in Spark's UI.")] = "databuild"


class LimitAttributes(dg.Model, dg.Resolvable):
    """How much a tick of the orchestrator may start."""

    launches: Annotated[int, described("Launches buffered by one tick.")] = _LIMITS.launches
    open_launches: Annotated[int, described("Launches open at once.")] = _LIMITS.open_launches
    due_refs: Annotated[int, described("Due refs read by one level of planning.")] = _LIMITS.due_refs
    executors: Annotated[int, described("Executors of one operation, queued or running at once.")] = _LIMITS.executors


#: The types of the settings whose values are written differently in a file than in Python.
_IN_YAML: Mapping[str, object] = {"spark": SparkAttributes | None, "limits": LimitAttributes | None}


def _attributes() -> dict[str, Any]:
    """An attribute for each setting of a code location: its type with its description, and its default."""
    types = get_type_hints(Settings)
    core = {
        setting.name: (
            Annotated[_IN_YAML.get(setting.name, types[setting.name]), described(setting.metadata["description"])],
            None if setting.default is MISSING else setting.default,
        )
        for setting in CORE_SETTINGS
    }
    of_features = {
        name: (Annotated[setting.in_yaml, described(setting.description)], setting.yaml_default)
        for name, setting in sorted(settings().items())
    }
    return core | of_features


class _Assets(dg.Model):
    """The attributes that are no settings."""

    assets: Annotated[
        Sequence[str],
        described(
            "Where the assets are: Python files beside the defs.yaml (flights.py), or modules (my_project.flights). "
            "Their asset checks, jobs, schedules and sensors are taken too."
        ),
    ]
    translation: Annotated[
        TranslationFn[None] | None, TranslationFnResolver[None](template_vars_for_translation_fn=lambda _: {})
    ] = None


if TYPE_CHECKING:

    class _Attributes(_Assets, ComponentAttributes):
        """The attributes for type checkers; `Settings` has their meaning and defaults."""

        warehouse: str | None = None
        spark: SparkAttributes | None = None
        threads: int = 0
        interval_seconds: int = 0
        delegation_timeout_seconds: float = 0
        sample_rows: int = 0
        limits: LimitAttributes | None = None

else:
    _Attributes = create_model("_Attributes", __base__=_Assets, **_attributes())


@dg.scaffold_with(DatabuildScaffolder)
class DatabuildComponent(dg.Component, _Attributes, dg.Resolvable):
    """Partitions that Spark builds once, when they are wanted."""

    location: Annotated[str | None, described("The name in the store; the project's package unless given.")] = None

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """The description of the component that `dg list components` shows."""
        return dg.ComponentTypeSpec(
            description=cls.__doc__,
            tags=["databuild", "spark"],
            produces=["asset", "asset_check", "sensor", "resource"],
        )

    @classmethod
    def get_additional_scope(cls) -> Mapping[str, Any]:
        """For templates: `automation_condition: "{{ databuild.eager() }}"`."""
        return {**super().get_additional_scope(), "databuild": conditions}

    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        """The asset's look in Dagster; a subclass may override it. See `DatabuildTranslator`."""
        return spec if self.translation is None else self.translation(spec, None)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Raises `InvalidAsset` for files, modules or settings that are missing or do not fit."""
        # Dagster numbers the components of one file; a single one needs no number.
        place = context.component_loc.get_display_key(context.defs_module_path).removesuffix("[0]")
        if not self.assets:
            raise InvalidAsset(f"{place} names no assets; write files beside the defs.yaml, or modules.")
        modules = [_module(context, place, name) for name in self.assets]
        with quiet_beta_warnings():
            found = dg.load_definitions_from_modules(modules)
        shared = self._shared(context, place)
        tree = context.component_tree
        # The store records the assets of the whole code location, not of this component alone.
        remember(shared.parts.deployment.location, lambda: tree.build_defs().get_repository_def().asset_graph)
        return assembled(
            shared.parts,
            found.assets or (),
            jobs=found.jobs,
            schedules=found.schedules,
            sensors=found.sensors,
            asset_checks=cast(Iterable[dg.AssetChecksDefinition] | None, found.asset_checks),
            translator=_ComponentTranslator(self, place),
            automation_name=re.sub(r"\W+", "_", f"{AUTOMATION}_{place}").rstrip("_"),
            # Dagster copies each component's definitions to note their origin, and two orchestrators would not load.
            has_orchestrator=shared.place == place,
        )

    def _shared(self, context: dg.ComponentLoadContext, place: str) -> "_Shared":
        """The settings of the project's first component. Raises `InvalidAsset` if this component's settings differ."""
        given = {name: getattr(self, name) for name in _SHARED}
        given["location"] = self.location or context.defs_module_name.partition(".")[0]
        project = context.component_tree.state_tracker
        if project not in _shared_by_project:
            _shared_by_project[project] = _Shared(place, given, self._parts(place, given["location"]))
        shared = _shared_by_project[project]
        if different := [name for name, value in given.items() if shared.given[name] != value]:
            raise InvalidAsset(
                f"{place} gives another {different[0]} than {shared.place}: the components of a project share one "
                "orchestrator, one warehouse and one Spark; write the same in both."
            )
        return shared

    def _parts(self, place: str, location: str) -> LocationParts:
        core = {setting.name: getattr(self, setting.name) for setting in CORE_SETTINGS}
        given = core | {
            "spark": _spark(place, core["spark"] or SparkAttributes()),
            "limits": None if core["limits"] is None else TickLimits(**core["limits"].model_dump()),
        }
        for setting in settings().values():
            value = getattr(self, setting.name)
            if value != setting.yaml_default:
                given[setting.name] = setting.from_yaml(value, place)
        return location_parts(deployment_of(location, given, place))


#: Attributes of the whole code location.
_SHARED = [name for name in DatabuildComponent.model_fields if name not in ("assets", "translation")]


def _spark(place: str, spark: SparkAttributes) -> DatabuildSpark:
    """Raises `InvalidAsset` for an unknown mode."""
    if spark.mode not in _MODES:
        raise InvalidAsset(f"{place} gives spark the mode {spark.mode!r}; there are {', '.join(_MODES)}.")
    return DatabuildSpark(
        mode=cast(Literal["shared", "sail", "classic", "remote"], spark.mode),
        url=spark.url,
        spark_config=dict(spark.config),
        app_name=spark.app_name,
    )


@dataclass(frozen=True, slots=True)
class _Shared:
    """The settings that the components of a project share."""

    #: The first component, whose definitions have the orchestrator.
    place: str
    given: Mapping[str, Any]
    parts: LocationParts


#: By project, as Dagster has loaded it.
_shared_by_project: WeakKeyDictionary[Any, _Shared] = WeakKeyDictionary()


class _ComponentTranslator(DatabuildTranslator):
    """The translation of the component's assets."""

    def __init__(self, component: DatabuildComponent, place: str) -> None:
        self._component = component
        self._place = place

    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        return self._component.get_asset_spec(spec)

    def __str__(self) -> str:
        return f"The translation in {self._place}"


def _module(context: dg.ComponentLoadContext, place: str, name: str) -> ModuleType:
    """Raises `InvalidAsset` when there is none; errors of the module itself pass through."""
    if not name.endswith(".py"):
        found = imported(name)
        if found is None:
            raise InvalidAsset(
                f"{place} names the module {name!r}, which cannot be imported; a file beside it ends with .py."
            )
        module = found
    else:
        folder = context.path.parent if context.path.is_file() else context.path
        path = (folder / name).resolve()
        if not path.is_file():
            raise InvalidAsset(f"{place} names the file {name!r}, which is not there; write it beside the defs.yaml.")
        if not path.is_relative_to(folder.resolve()):
            raise InvalidAsset(f"{place} names the file {name!r} of another folder; name its module instead.")
        module = context.load_defs_relative_python_module(Path(name))
    if made := [name for name, value in vars(module).items() if isinstance(value, dg.Definitions)]:
        raise InvalidAsset(
            f"{module.__name__}, which {place} names, makes Definitions of its own ({made[0]}); "
            "leave only the assets there, the component makes the Definitions."
        )
    return module
