"""`build_definitions`: assets, ours and plain ones, become Dagster `Definitions` with an orchestrator.

What our assets need stands among the resources under our own keys, so that the result merges with other
Definitions; an executor is never set, for two Definitions with executors do not merge.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dagster import (
    AssetChecksDefinition,
    AssetsDefinition,
    AssetSpec,
    Definitions,
    JobDefinition,
    SensorDefinition,
    SourceAsset,
)
from dagster_pyspark import LazyPySparkResource, PySparkResource

from databuild_dagster.bindings.adapter.dagster_private import AssetGraph, quiet_beta_warnings
from databuild_dagster.bindings.adapter.resource_keys import DEPLOYMENT, IO_MANAGER, SPARK, WANTS
from databuild_dagster.bindings.arrivals.arrival_sensors import arrival_sensors
from databuild_dagster.bindings.authoring.automation import AUTOMATION, automation_sensors
from databuild_dagster.bindings.authoring.translator import DatabuildTranslator, translated
from databuild_dagster.bindings.building.deployment import (
    DEFAULT_DELEGATION_TIMEOUT_SECONDS,
    DEFAULT_SAMPLE_ROWS,
    DEFAULT_THREADS,
    Deployment,
    DeploymentResource,
)
from databuild_dagster.bindings.building.io_manager import databuild_io_manager
from databuild_dagster.bindings.building.operation_types import known_operations
from databuild_dagster.bindings.declare.asset_spec import body_of
from databuild_dagster.bindings.display.alerts import Alert
from databuild_dagster.bindings.orchestration.operation_runs import operation_job, operations_sensor
from databuild_dagster.bindings.orchestration.orchestrator import MIN_INTERVAL_SECONDS, orchestrator_sensor
from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark, Wants
from databuild_dagster.bindings.registry.registration import remember
from databuild_dagster.engine.operations.manager import DistributedOperation
from databuild_dagster.engine.tick_pass import TickLimits
from databuild_dagster.warehouse.layout import Warehouse

#: Names under which code written for dagster-pyspark usually asks for its resource.
_PYSPARK_KEYS = ("pyspark", "lazy_pyspark", "spark")


def build_definitions(
    assets: Iterable[AssetsDefinition | AssetSpec | SourceAsset],
    *,
    spark: LazyPySparkResource | PySparkResource | None = None,
    resources: Mapping[str, Any] | None = None,
    jobs: Iterable[Any] | None = None,
    schedules: Iterable[Any] | None = None,
    sensors: Iterable[Any] | None = None,
    asset_checks: Iterable[AssetChecksDefinition] | None = None,
    translator: DatabuildTranslator | None = None,
    warehouse: str | Path | None = None,
    location: str | None = None,
    interval_seconds: int = MIN_INTERVAL_SECONDS,
    threads: int = DEFAULT_THREADS,
    delegation_timeout_seconds: float = DEFAULT_DELEGATION_TIMEOUT_SECONDS,
    limits: TickLimits | None = None,
    sample_rows: int = DEFAULT_SAMPLE_ROWS,
    alerts: Iterable[Alert] = (),
    operations: Iterable[DistributedOperation[Any]] = (),
) -> Definitions:
    """Definitions with the orchestrator sensor running, and one for automation conditions that ask the store.

    `assets` are ours, boundaries and plain ones alike; `translator` says how they look here. `spark` may be a plain
    `PySparkResource`. `location` names what is defined here in the store, the same in every process that loads
    it: by default the calling module's name, `shop.definitions`. `warehouse` is a folder or a url such as `s3://bucket/prefix`,
    `<DAGSTER_HOME>/warehouse` unless given; `threads` build the partitions of one launch;
    `sample_rows` of each partition are shown in Dagster, none with 0; `alerts` hear of wants that miss their SLA;
    `operations` can be run over the datasets, besides those that databuild and installed packages have.
    Raises `InvalidAsset` for a translation that cannot be, `InvalidOperationType`.
    """
    parts = location_parts(
        location or _calling_module(),
        spark=spark,
        warehouse=warehouse,
        interval_seconds=interval_seconds,
        threads=threads,
        delegation_timeout_seconds=delegation_timeout_seconds,
        limits=limits,
        sample_rows=sample_rows,
        alerts=alerts,
        operations=operations,
    )
    definitions = assembled(
        parts,
        assets,
        resources=resources,
        jobs=jobs,
        schedules=schedules,
        sensors=sensors,
        asset_checks=asset_checks,
        translator=translator,
    )
    remember(parts.deployment.location, lambda: definitions.get_repository_def().asset_graph)
    return definitions


@dataclass(frozen=True, slots=True)
class LocationParts:
    """What a code location has once, however many Definitions it is merged from: Dagster merges the same objects only."""

    deployment: Deployment
    resources: Mapping[str, Any]
    orchestrator: SensorDefinition
    #: Executors of operations, and who launches them.
    executors: JobDefinition
    operations: SensorDefinition


def location_parts(
    location: str,
    *,
    spark: LazyPySparkResource | PySparkResource | None,
    warehouse: str | Path | None,
    interval_seconds: int,
    threads: int,
    delegation_timeout_seconds: float,
    limits: TickLimits | None,
    sample_rows: int = DEFAULT_SAMPLE_ROWS,
    alerts: Iterable[Alert] = (),
    operations: Iterable[DistributedOperation[Any]] = (),
) -> LocationParts:
    """Raises ValueError for settings that cannot be, `InvalidOperationType`."""
    spark = spark or DatabuildSpark()
    deployment = Deployment(
        location=location,
        warehouse=None if warehouse is None else Warehouse(str(warehouse)).root,
        threads=_at_least_one("threads", threads),
        delegation_timeout_seconds=delegation_timeout_seconds,
        limits=_checked_limits(limits or TickLimits()),
        sample_rows=_at_least("sample_rows", sample_rows, 0),
        alerts=tuple(alerts),
        spark=spark,
        operations=known_operations(operations),
    )
    interval = _at_least_one("interval_seconds", interval_seconds)
    return LocationParts(
        deployment,
        _resources(deployment, spark),
        orchestrator_sensor(deployment, interval_seconds=interval),
        operation_job(),
        operations_sensor(deployment, interval_seconds=interval),
    )


def assembled(
    parts: LocationParts,
    assets: Iterable[Any],
    *,
    resources: Mapping[str, Any] | None = None,
    jobs: Iterable[Any] | None = None,
    schedules: Iterable[Any] | None = None,
    sensors: Iterable[Any] | None = None,
    asset_checks: Iterable[AssetChecksDefinition] | None = None,
    translator: DatabuildTranslator | None = None,
    automation_name: str = AUTOMATION,
    has_orchestrator: bool = True,
) -> Definitions:
    """Some assets of a location, with what they need of it. Raises `InvalidAsset`."""
    shown = translated(translator, map(_deployed, assets), asset_checks or ())
    given = list(sensors or ())
    for key in (DEPLOYMENT, SPARK, IO_MANAGER):
        if key in (resources or {}):
            raise ValueError(f"Resource {key!r} is databuild's own; give yours another key.")

    all_resources = {**parts.resources, **(resources or {})}

    def asset_graph() -> AssetGraph:
        alone = Definitions(assets=shown.assets, asset_checks=shown.asset_checks, resources=all_resources)
        return alone.resolve_asset_graph()

    automation = automation_sensors(shown.assets, given, asset_graph, name=automation_name)
    return Definitions(
        assets=shown.assets,
        asset_checks=shown.asset_checks,
        jobs=[*(jobs or ()), *([parts.executors] if has_orchestrator else [])],
        schedules=list(schedules or ()),
        sensors=[
            *given,
            *automation,
            *arrival_sensors(parts.deployment, shown.assets),
            *([parts.orchestrator, parts.operations] if has_orchestrator else []),
        ],
        resources=all_resources,
    )


def _resources(deployment: Deployment, spark: Any) -> dict[str, Any]:
    return {
        **dict.fromkeys(_PYSPARK_KEYS, spark),
        WANTS: Wants(location=deployment.location),
        DEPLOYMENT: DeploymentResource(deployment),
        SPARK: spark,
        IO_MANAGER: databuild_io_manager,
    }


def _deployed(asset: Any) -> Any:
    """Without the default resources an asset brings along, which would conflict with the deployment's."""
    if not isinstance(asset, AssetsDefinition) or body_of(asset) is None:
        return asset
    with quiet_beta_warnings():
        return AssetsDefinition(**{**asset.get_attributes_dict(), "resource_defs": {}})


def _calling_module() -> str:
    """The module that called `build_definitions`, with its package, or its folder where it is in none.

    Told from its file alone, so that `-m shop.definitions` and `-f shop/definitions.py` are one location, and the
    `definitions.py` of two projects are two (decision 0011).
    """
    frame = sys._getframe(2)
    path = Path(frame.f_code.co_filename)
    if not path.is_file():
        # A notebook, or a prompt.
        return str(frame.f_globals.get("__name__", "")) or path.stem
    path = path.resolve()
    folders = [path.parent]
    while (folders[0] / "__init__.py").is_file():
        folders.insert(0, folders[0].parent)
    within = folders[1:] or folders
    names = [folder.name for folder in within if folder.name]
    return ".".join(names if path.stem == "__init__" else [*names, path.stem])


def _checked_limits(limits: TickLimits) -> TickLimits:
    for each in fields(limits):
        _at_least_one(f"limits.{each.name}", getattr(limits, each.name))
    return limits


def _at_least_one(option: str, value: int) -> int:
    return _at_least(option, value, 1)


def _at_least(option: str, value: int, least: int) -> int:
    if value < least:
        raise ValueError(f"{option} is {value}; it must be at least {least}.")
    return value
