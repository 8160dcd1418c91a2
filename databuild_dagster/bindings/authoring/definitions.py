"""`build_definitions`: assets, ours and plain ones, become Dagster `Definitions` with an orchestrator.

Our resources have our own keys, so that the result merges with other Definitions. No executor is set, because two
Definitions with executors do not merge.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
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

from databuild_dagster.bindings.adapter.dagster_private import AssetGraph, quiet_beta_warnings
from databuild_dagster.bindings.adapter.keys import DEPLOYMENT, IO_MANAGER, SPARK, WANTS, asset_text
from databuild_dagster.bindings.adapter.pyspark_resource import LazyPySparkResource, PySparkResource
from databuild_dagster.bindings.arrivals.arrival_sensors import arrival_sensors
from databuild_dagster.bindings.authoring.automation import AUTOMATION, automation_sensors
from databuild_dagster.bindings.authoring.translator import DatabuildTranslator, translated
from databuild_dagster.bindings.building.deployment import (
    DEFAULT_DELEGATION_TIMEOUT_SECONDS,
    DEFAULT_SAMPLE_ROWS,
    DEFAULT_THREADS,
    Deployment,
    DeploymentResource,
    check_at_least,
)
from databuild_dagster.bindings.building.io_manager import databuild_io_manager
from databuild_dagster.bindings.building.operation_types import known_operations
from databuild_dagster.bindings.declare.asset_spec import body_of
from databuild_dagster.bindings.display.alerts import Alert
from databuild_dagster.bindings.orchestration.operation_runs import operation_job, operations_sensor
from databuild_dagster.bindings.orchestration.orchestrator import MIN_INTERVAL_SECONDS, orchestrator_sensor
from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark
from databuild_dagster.bindings.reading.wants import Wants
from databuild_dagster.bindings.registry.registration import remember
from databuild_dagster.engine.operations.manager import DistributedOperation
from databuild_dagster.engine.tick_pass import TickLimits
from databuild_dagster.model.wording import few_of
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
    """Definitions with the orchestrator sensor running, and one for automation conditions that read the store.

    `assets` are ours, boundaries and plain ones alike; `translator` changes how they look here. `spark` may be a plain
    `PySparkResource`. `location` is the name of these definitions in the store, the same in every process that loads
    them: the calling module's name, `shop.definitions`, unless given. `warehouse` is a folder or a url such as
    `s3://bucket/prefix`, `<DAGSTER_HOME>/warehouse` unless given. `threads` build the partitions of one launch. Dagster
    shows and keeps `sample_rows` of each partition, none unless asked. `alerts` are sent for wants that miss their SLA. `operations`
    can run over the datasets, besides those of databuild and of installed packages.

    Raises `InvalidAsset` for a translation that is not possible, `InvalidOperationType`, ValueError for a setting out
    of range.
    """
    deployment = Deployment(
        location=location or _calling_module(),
        warehouse=None if warehouse is None else Warehouse(str(warehouse)).root,
        threads=threads,
        delegation_timeout_seconds=delegation_timeout_seconds,
        limits=limits or TickLimits(),
        sample_rows=sample_rows,
        alerts=tuple(alerts),
        operations=known_operations(operations),
        spark=spark or DatabuildSpark(),
    )
    parts = location_parts(deployment, interval_seconds)
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
    remember(deployment.location, lambda: definitions.get_repository_def().asset_graph)
    return definitions


@dataclass(frozen=True, slots=True)
class LocationParts:
    """The parts that all Definitions of a code location share: Dagster merges identical objects only."""

    deployment: Deployment
    resources: Mapping[str, Any]
    orchestrator: SensorDefinition
    #: The job whose runs are executors of operations, and the sensor that launches them.
    executors: JobDefinition
    operations: SensorDefinition


def location_parts(deployment: Deployment, interval_seconds: int) -> LocationParts:
    """Raises ValueError for an interval below one second."""
    check_at_least("interval_seconds", interval_seconds, 1)
    resources = {
        **dict.fromkeys(_PYSPARK_KEYS, deployment.spark),
        WANTS: Wants(location=deployment.location),
        DEPLOYMENT: DeploymentResource(deployment),
        SPARK: deployment.spark,
        IO_MANAGER: databuild_io_manager,
    }
    return LocationParts(
        deployment,
        resources,
        orchestrator_sensor(deployment, interval_seconds=interval_seconds),
        operation_job(),
        operations_sensor(deployment, interval_seconds=interval_seconds),
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
    """Definitions of some assets of a location, with the parts that they need. Raises `InvalidAsset`."""
    shown, checks = translated(translator, map(_deployed, assets), asset_checks or ())
    given = list(sensors or ())
    for key in (DEPLOYMENT, SPARK, IO_MANAGER):
        if key in (resources or {}):
            raise ValueError(f"Resource {key!r} is databuild's own; give yours another key.")

    all_resources = {**parts.resources, **(resources or {})}

    def asset_graph() -> AssetGraph:
        alone = Definitions(assets=shown, asset_checks=checks, resources=all_resources)
        return alone.resolve_asset_graph()

    _warn_of_step_retries(jobs or (), shown, asset_graph)
    automation = automation_sensors(shown, given, asset_graph, name=automation_name)
    return Definitions(
        assets=shown,
        asset_checks=checks,
        jobs=[*(jobs or ()), *([parts.executors] if has_orchestrator else [])],
        schedules=list(schedules or ()),
        sensors=[
            *given,
            *automation,
            *arrival_sensors(parts.deployment, shown),
            *([parts.orchestrator, parts.operations] if has_orchestrator else []),
        ],
        resources=all_resources,
    )


def _warn_of_step_retries(jobs: Iterable[Any], assets: Iterable[Any], asset_graph: Callable[[], AssetGraph]) -> None:
    """Dagster repeats a step by the policy of its job, but a step of ours has ended well or for good (rule 6.8)."""
    repeating = [job for job in jobs if getattr(job, "op_retry_policy", None) is not None and hasattr(job, "selection")]
    if not repeating:
        return
    graph = asset_graph()
    ours = {key for asset in assets if isinstance(asset, AssetsDefinition) and body_of(asset) for key in asset.keys}
    for job in repeating:
        if touched := sorted(asset_text(key) for key in ours & job.selection.resolve(graph)):
            warnings.warn(
                f"op_retry_policy of job {job.name!r} does not repeat {few_of(touched)}: raise Transient in the function where a "
                "retry may help, and the orchestrator makes up to three attempts.",
                stacklevel=4,
            )


def _deployed(asset: Any) -> Any:
    """The asset without the default resources it brings along, which would conflict with the deployment's."""
    if not isinstance(asset, AssetsDefinition) or body_of(asset) is None:
        return asset
    with quiet_beta_warnings():
        return AssetsDefinition(**{**asset.get_attributes_dict(), "resource_defs": {}})


def _calling_module() -> str:
    """The module that called `build_definitions`, with its package; outside of a package, with its folder.

    The file alone decides, so that `-m shop.definitions` and `-f shop/definitions.py` are one location, and the
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
