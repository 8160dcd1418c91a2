"""`build_definitions`: assets, ours and plain ones, become Dagster `Definitions` with an orchestrator.

What our assets need stands among the resources under our own keys, so that the result merges with other
Definitions; an executor is never set, for two Definitions with executors do not merge.
"""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dagster import (
    AssetChecksDefinition,
    AssetsDefinition,
    AssetSpec,
    Definitions,
    SourceAsset,
)
from dagster_pyspark import LazyPySparkResource, PySparkResource

from databuild_dagster.bindings.body import body_of
from databuild_dagster.bindings.dagster_private import quiet_beta_warnings
from databuild_dagster.bindings.deployed import remember
from databuild_dagster.bindings.deployment import (
    DEFAULT_DELEGATION_TIMEOUT_SECONDS,
    DEFAULT_THREADS,
    Deployment,
    DeploymentResource,
)
from databuild_dagster.bindings.io_manager import databuild_io_manager
from databuild_dagster.bindings.orchestrator import MIN_INTERVAL_SECONDS, orchestrator_sensor
from databuild_dagster.bindings.resource_keys import DEPLOYMENT, IO_MANAGER, SPARK, WANTS
from databuild_dagster.bindings.resources import DatabuildSpark, Wants
from databuild_dagster.engine import TickLimits
from databuild_dagster.warehouse import Warehouse

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
    warehouse: str | Path | None = None,
    location: str | None = None,
    interval_seconds: int = MIN_INTERVAL_SECONDS,
    threads: int = DEFAULT_THREADS,
    delegation_timeout_seconds: float = DEFAULT_DELEGATION_TIMEOUT_SECONDS,
    limits: TickLimits | None = None,
) -> Definitions:
    """Definitions with the orchestrator sensor running.

    `assets` are ours and plain ones alike; `spark` may be a plain `PySparkResource`. `location` names what is
    defined here in the store, the same in every process that loads it: by default the calling module's name.
    `warehouse` is a folder or a url such as `s3://bucket/prefix`, `<DAGSTER_HOME>/warehouse` unless given;
    `threads` build the partitions of one launch.
    """
    spark = spark or DatabuildSpark()
    deployment = Deployment(
        location=location or _calling_module(),
        warehouse=None if warehouse is None else Warehouse(str(warehouse)).root,
        threads=_at_least_one("threads", threads),
        delegation_timeout_seconds=delegation_timeout_seconds,
        limits=limits or TickLimits(),
        spark=spark,
    )
    orchestrator = orchestrator_sensor(deployment, interval_seconds=_at_least_one("interval_seconds", interval_seconds))
    definitions = Definitions(
        assets=[_deployed(asset) for asset in assets],
        asset_checks=list(asset_checks or ()),
        jobs=list(jobs or ()),
        schedules=list(schedules or ()),
        sensors=[*(sensors or ()), orchestrator],
        resources=_resources(deployment, spark, resources or {}),
    )
    remember(deployment.location, lambda: definitions.get_repository_def().asset_graph)
    return definitions


def _resources(deployment: Deployment, spark: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    for key in (DEPLOYMENT, SPARK, IO_MANAGER):
        if key in given:
            raise ValueError(f"Resource {key!r} is databuild's own; give yours another key.")
    return {
        **dict.fromkeys(_PYSPARK_KEYS, spark),
        WANTS: Wants(location=deployment.location),
        **given,
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
    """The module that called `build_definitions`; Dagster gives a file that it loads the file's name."""
    frame = sys._getframe(2)
    name = str(frame.f_globals.get("__name__", ""))
    return Path(frame.f_code.co_filename).stem if name in ("", "__main__") else name


def _at_least_one(option: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{option} is {value}; it must be at least 1.")
    return value
