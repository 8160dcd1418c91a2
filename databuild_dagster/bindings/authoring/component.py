"""A `defs.yaml` becomes `build_definitions(…)` on the files or modules that it names.

A code location has one orchestrator, one warehouse and one Spark, and a dg project is a code location: the
components of a project share these, and refuse to say different things of them.
"""

import importlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, cast
from weakref import WeakKeyDictionary

from dagster import (
    AssetChecksDefinition,
    AssetSpec,
    Component,
    ComponentLoadContext,
    ComponentTypeSpec,
    Definitions,
    Model,
    Resolvable,
    Resolver,
    load_definitions_from_modules,
    scaffold_with,
)

from databuild_dagster.bindings.adapter.dagster_private import (
    TranslationFn,
    TranslationFnResolver,
    quiet_beta_warnings,
)
from databuild_dagster.bindings.authoring import automation as conditions
from databuild_dagster.bindings.authoring.automation import AUTOMATION
from databuild_dagster.bindings.authoring.definitions import LocationParts, assembled, location_parts
from databuild_dagster.bindings.authoring.scaffolding import DatabuildScaffolder
from databuild_dagster.bindings.authoring.translator import DatabuildTranslator
from databuild_dagster.bindings.building.deployment import (
    DEFAULT_DELEGATION_TIMEOUT_SECONDS,
    DEFAULT_SAMPLE_ROWS,
    DEFAULT_THREADS,
)
from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.bindings.display.alerts import Alert, CommandAlert, WebhookAlert
from databuild_dagster.bindings.orchestration.orchestrator import MIN_INTERVAL_SECONDS
from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark
from databuild_dagster.bindings.registry.registration import remember
from databuild_dagster.engine.operations.manager import DistributedOperation
from databuild_dagster.engine.tick_pass import TickLimits

_LIMITS = TickLimits()

#: As `DatabuildSpark` has them.
_MODES = ("shared", "classic", "remote")


def _described(description: str) -> Any:
    """What `dg` shows of an attribute; a value may be a template."""
    return Resolver.default(description=description)


class SparkAttributes(Model, Resolvable):
    """Where Spark runs, as `DatabuildSpark` takes it."""

    mode: Annotated[str, _described(f"How processes come to their session: {', '.join(_MODES)}.")] = _MODES[0]
    url: Annotated[
        str | None, _described("For mode remote: sc://host:port, or a master such as spark://host:port.")
    ] = None
    config: Annotated[Mapping[str, Any], _described("Spark's own settings, flat or nested.")] = {}
    app_name: Annotated[str, _described("How Spark's UI names us.")] = "databuild"


class LimitAttributes(Model, Resolvable):
    """How much one tick of the orchestrator may start."""

    launches: Annotated[int, _described("Launches buffered by one tick.")] = _LIMITS.launches
    open_launches: Annotated[int, _described("Launches out at once.")] = _LIMITS.open_launches
    due_refs: Annotated[int, _described("Due refs looked at by one level of planning.")] = _LIMITS.due_refs
    executors: Annotated[int, _described("Executors of one operation, queued or running at once.")] = _LIMITS.executors


class AlertAttributes(Model, Resolvable):
    """Who hears of a want that has missed its SLA: a webhook or a command."""

    webhook: Annotated[str | None, _described("A url that JSON is POSTed to.")] = None
    headers: Annotated[Mapping[str, str], _described("Of the webhook's request.")] = {}
    command: Annotated[Sequence[str] | None, _described("A program with its arguments, given JSON on its stdin.")] = (
        None
    )

    def alert(self, place: str) -> Alert:
        """Raises `InvalidAsset` where it says neither, or both."""
        if self.webhook is not None and self.command is None:
            return WebhookAlert(self.webhook, self.headers)
        if self.command and self.webhook is None and not self.headers:
            return CommandAlert(tuple(self.command))
        raise InvalidAsset(
            f"{place} gives an alert that is not one webhook, with or without headers, or one command; "
            "write an entry of its own for each."
        )


@scaffold_with(DatabuildScaffolder)
class DatabuildComponent(Component, Model, Resolvable):
    """Partitions that are built once, on Spark, when somebody wants them."""

    assets: Annotated[
        Sequence[str],
        _described(
            "Where the assets are: Python files beside the defs.yaml (flights.py), or modules (my_project.flights). "
            "Their asset checks, jobs, schedules and sensors are taken too."
        ),
    ]
    translation: Annotated[
        TranslationFn[None] | None,
        TranslationFnResolver[None](template_vars_for_translation_fn=lambda _: {}),
    ] = None
    warehouse: Annotated[
        str | None,
        _described("A folder, or a url such as s3://bucket/prefix; <DAGSTER_HOME>/warehouse unless given."),
    ] = None
    spark: Annotated[SparkAttributes | None, _described("Where Spark runs; a local server unless given.")] = None
    threads: Annotated[int, _described("Partitions of one launch that are built at the same time.")] = DEFAULT_THREADS
    interval_seconds: Annotated[int, _described("How often the orchestrator looks for what is wanted.")] = (
        MIN_INTERVAL_SECONDS
    )
    delegation_timeout_seconds: Annotated[float, _described("How long a Dagster run waits for what others build.")] = (
        DEFAULT_DELEGATION_TIMEOUT_SECONDS
    )
    sample_rows: Annotated[int, _described("Rows of each partition that Dagster shows; 0 for none.")] = (
        DEFAULT_SAMPLE_ROWS
    )
    limits: Annotated[LimitAttributes | None, _described("How much one tick may start.")] = None
    alerts: Annotated[
        Sequence[AlertAttributes],
        _described("Who hears of wants that miss their SLA, besides the orchestrator's log."),
    ] = ()
    operations: Annotated[
        Sequence[str],
        _described(
            "Operations over whole datasets, besides those that databuild and installed packages have: "
            "my_project.quality.RowCount, a class that is made without arguments, or an object."
        ),
    ] = ()
    location: Annotated[str | None, _described("The name in the store; the project's package unless given.")] = None

    @classmethod
    def get_spec(cls) -> ComponentTypeSpec:
        return ComponentTypeSpec(
            description=cls.__doc__,
            tags=["databuild", "spark"],
            produces=["asset", "asset_check", "sensor", "resource"],
        )

    @classmethod
    def get_additional_scope(cls) -> Mapping[str, Any]:
        """For templates: `automation_condition: "{{ databuild.eager() }}"`."""
        return {**super().get_additional_scope(), "databuild": conditions}

    def get_asset_spec(self, spec: AssetSpec) -> AssetSpec:
        """How an asset looks in Dagster; a subclass may say it in code. See `DatabuildTranslator`."""
        return spec if self.translation is None else self.translation(spec, None)

    def build_defs(self, context: ComponentLoadContext) -> Definitions:
        """Raises `InvalidAsset` for what is not there, or cannot be."""
        # As Dagster numbers the components of one file; alone, it needs no number.
        place = context.component_loc.get_display_key(context.defs_module_path).removesuffix("[0]")
        if not self.assets:
            raise InvalidAsset(f"{place} names no assets; write files beside the defs.yaml, or modules.")
        modules = [_module(context, place, name) for name in self.assets]
        with quiet_beta_warnings():
            found = load_definitions_from_modules(modules)
        shared = self._shared(context, place)
        tree = context.component_tree
        # What this component defines is a part of what the code location has: the store is told the whole.
        remember(shared.parts.deployment.location, lambda: tree.build_defs().get_repository_def().asset_graph)
        return assembled(
            shared.parts,
            found.assets or (),
            jobs=found.jobs,
            schedules=found.schedules,
            sensors=found.sensors,
            asset_checks=cast(Iterable[AssetChecksDefinition] | None, found.asset_checks),
            translator=_ComponentTranslator(self, place),
            automation_name=re.sub(r"\W+", "_", f"{AUTOMATION}_{place}").rstrip("_"),
            # Dagster copies what a component defines, to note where it comes from, and two orchestrators would not load.
            has_orchestrator=shared.place == place,
        )

    def _shared(self, context: ComponentLoadContext, place: str) -> "_Shared":
        """What the project's first component has, if this one says the same. Raises `InvalidAsset`."""
        said = self._settings(context)
        project = context.component_tree.state_tracker
        if project not in _shared_by_project:
            _shared_by_project[project] = _Shared(place, said, self._parts(place, said["location"]))
        shared = _shared_by_project[project]
        if different := [name for name, value in said.items() if shared.said[name] != value]:
            raise InvalidAsset(
                f"{place} gives another {different[0]} than {shared.place}: the components of a project share one "
                "orchestrator, one warehouse and one Spark; write the same in both."
            )
        return shared

    def _settings(self, context: ComponentLoadContext) -> dict[str, Any]:
        said = {name: getattr(self, name) for name in _SHARED}
        return {**said, "location": self.location or context.defs_module_name.partition(".")[0]}

    def _parts(self, place: str, location: str) -> LocationParts:
        spark = self.spark or SparkAttributes()
        if spark.mode not in _MODES:
            raise InvalidAsset(f"{place} gives spark the mode {spark.mode!r}; there are {', '.join(_MODES)}.")
        return location_parts(
            location,
            spark=DatabuildSpark(
                mode=cast(Literal["shared", "classic", "remote"], spark.mode),
                url=spark.url,
                spark_config=dict(spark.config),
                app_name=spark.app_name,
            ),
            warehouse=self.warehouse,
            interval_seconds=self.interval_seconds,
            threads=self.threads,
            delegation_timeout_seconds=self.delegation_timeout_seconds,
            limits=None if self.limits is None else TickLimits(**self.limits.model_dump()),
            sample_rows=self.sample_rows,
            alerts=[each.alert(place) for each in self.alerts],
            operations=[_operation(place, name) for name in self.operations],
        )


#: Attributes that are the code location's.
_SHARED = (
    "location",
    "warehouse",
    "spark",
    "threads",
    "interval_seconds",
    "delegation_timeout_seconds",
    "limits",
    "sample_rows",
    "alerts",
    "operations",
)


@dataclass(frozen=True, slots=True)
class _Shared:
    """What the components of a project have in common."""

    #: The first component's; the orchestrator stands among its definitions.
    place: str
    said: Mapping[str, Any]
    parts: LocationParts


#: By project, as Dagster has loaded it.
_shared_by_project: WeakKeyDictionary[Any, _Shared] = WeakKeyDictionary()


class _ComponentTranslator(DatabuildTranslator):
    """What the component says of its assets."""

    def __init__(self, component: DatabuildComponent, place: str) -> None:
        self._component = component
        self._place = place

    def get_asset_spec(self, spec: AssetSpec) -> AssetSpec:
        return self._component.get_asset_spec(spec)

    def __str__(self) -> str:
        return f"The translation in {self._place}"


def _operation(place: str, name: str) -> DistributedOperation[Any]:
    """Raises `InvalidAsset` when nothing is called so, or it is something else."""
    module_name, _, own = name.rpartition(".")
    found = getattr(_imported(module_name), own, None) if module_name else None
    if found is None:
        raise InvalidAsset(
            f"{place} names the operation {name!r}, which cannot be imported; write it as my_project.quality.RowCount."
        )
    made = found() if isinstance(found, type) else found
    if not isinstance(made, DistributedOperation):
        raise InvalidAsset(f"{place} names the operation {name!r}, which is no DistributedOperation.")
    return made


def _imported(name: str) -> ModuleType | None:
    """None where there is none; what the module itself raises goes through."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith(str(error.name)):
            raise
        return None


def _module(context: ComponentLoadContext, place: str, name: str) -> ModuleType:
    """Raises `InvalidAsset` when there is none; what the module itself raises goes through."""
    if not name.endswith(".py"):
        found = _imported(name)
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
    if made := [name for name, value in vars(module).items() if isinstance(value, Definitions)]:
        raise InvalidAsset(
            f"{module.__name__}, which {place} names, makes Definitions of its own ({made[0]}); "
            "leave only the assets there, the component makes the Definitions."
        )
    return module
