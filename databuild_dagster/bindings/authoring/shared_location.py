"""`SharedLocation`: the settings of a code location become its orchestrator and resources, once for all of its definitions.

`Definitions.merge` unites objects that are identical and refuses others, so definitions that are to be merged need the same
objects. Components of one project share them in the same way.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagster import AssetKey, Definitions, JobDefinition, SensorDefinition

from databuild_dagster.bindings.adapter.dagster_private import AssetGraph
from databuild_dagster.bindings.adapter.keys import DEPLOYMENT, IO_MANAGER, LOCATION, SPARK, WANTS, specs_of
from databuild_dagster.bindings.adapter.pyspark_resource import LazyPySparkResource, PySparkResource
from databuild_dagster.bindings.authoring.automation import AUTOMATION
from databuild_dagster.bindings.building.deployment import (
    DEFAULT_DELEGATION_TIMEOUT_SECONDS,
    DEFAULT_SAMPLE_ROWS,
    DEFAULT_THREADS,
    Deployment,
    DeploymentResource,
    LocationResource,
    check_at_least,
)
from databuild_dagster.bindings.building.io_manager import databuild_io_manager
from databuild_dagster.bindings.building.operation_types import known_operations
from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.bindings.declare.publish import Iceberg, Publish, check_publish
from databuild_dagster.bindings.display.alerts import Alert
from databuild_dagster.bindings.orchestration.orchestrator import MIN_INTERVAL_SECONDS, orchestrator_sensor
from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark
from databuild_dagster.bindings.reading.wants import Wants
from databuild_dagster.engine.operations.manager import DistributedOperation
from databuild_dagster.engine.tick_pass import TickLimits
from databuild_dagster.features.operations.executor_runs import operation_job, operations_sensor
from databuild_dagster.warehouse.layout import Warehouse

#: Names under which code written for dagster-pyspark usually asks for its resource.
_PYSPARK_KEYS = ("pyspark", "lazy_pyspark", "spark")


@dataclass(frozen=True, slots=True)
class LocationParts:
    """The parts that all Definitions of a code location share."""

    deployment: Deployment
    resources: Mapping[str, Any]
    orchestrator: SensorDefinition
    #: The job whose runs are executors of operations, and the sensor that launches them.
    executors: JobDefinition
    operations: SensorDefinition
    #: The default table of its assets.
    publish: Publish = None


def location_parts(deployment: Deployment, interval_seconds: int, publish: Publish = None) -> LocationParts:
    """Raises ValueError for an interval below one second."""
    check_at_least("interval_seconds", interval_seconds, 1)
    resources = {
        # The first, because Dagster names the first resource that differs where definitions do not merge.
        LOCATION: LocationResource(deployment.location),
        DEPLOYMENT: DeploymentResource(deployment),
        **dict.fromkeys(_PYSPARK_KEYS, deployment.spark),
        WANTS: Wants(location=deployment.location),
        SPARK: deployment.spark,
        IO_MANAGER: databuild_io_manager,
    }
    return LocationParts(
        deployment,
        resources,
        orchestrator_sensor(deployment, interval_seconds=interval_seconds),
        operation_job(),
        operations_sensor(deployment, interval_seconds=interval_seconds),
        publish,
    )


@dataclass(frozen=True, slots=True)
class _Member:
    """One of the definitions of a location."""

    automation_name: str
    assets: frozenset[AssetKey]
    definitions: Definitions


class SharedLocation:
    """One code location whose definitions are written in several modules.

    Give it to each `build_definitions(…, location=shop)`, and join the results by `Definitions.merge`: they have one orchestrator,
    one warehouse, one Spark and one name in the store. The settings are those of `build_definitions`.
    """

    def __init__(
        self,
        name: str,
        *,
        spark: LazyPySparkResource | PySparkResource | None = None,
        warehouse: str | Path | None = None,
        interval_seconds: int = MIN_INTERVAL_SECONDS,
        threads: int = DEFAULT_THREADS,
        delegation_timeout_seconds: float = DEFAULT_DELEGATION_TIMEOUT_SECONDS,
        limits: TickLimits | None = None,
        sample_rows: int = DEFAULT_SAMPLE_ROWS,
        alerts: Iterable[Alert] = (),
        operations: Iterable[DistributedOperation[Any]] = (),
        publish: Publish = None,
    ) -> None:
        """Raises `InvalidOperationType`, `InvalidAsset`, ValueError for a setting out of range or an empty name."""
        if not name:
            raise ValueError("The name of a location is empty; it is its name in the store, such as 'shop'.")
        deployment = Deployment(
            location=name,
            warehouse=None if warehouse is None else Warehouse(str(warehouse)).root,
            threads=threads,
            delegation_timeout_seconds=delegation_timeout_seconds,
            limits=limits or TickLimits(),
            sample_rows=sample_rows,
            alerts=tuple(alerts),
            operations=known_operations(operations),
            spark=spark or DatabuildSpark(),
        )
        check_publish(f"location {name!r}", publish)
        if isinstance(publish, Iceberg) and publish.table is not None:
            raise InvalidAsset(
                f"publish of location {name!r} gives all assets one table, {publish.table!r}; write Iceberg(namespace=…) there."
            )
        self.parts = location_parts(deployment, interval_seconds, publish)
        self._members: list[_Member] = []

    @property
    def name(self) -> str:
        """Its name in the store."""
        return self.parts.deployment.location

    def automation_name(self, assets: Iterable[Any], module: str) -> str:
        """The name of the sensor that evaluates these assets' conditions: one of its own for each of the definitions."""
        others = {member.automation_name for member in self._others(_keys_of(assets))}
        of_the_module = re.sub(r"\W+", "_", f"{AUTOMATION}_{module}")
        names = [AUTOMATION, of_the_module, *(f"{of_the_module}_{n}" for n in range(2, len(others) + 2))]
        return next(name for name in names if name not in others)

    def add(self, definitions: Definitions, automation_name: str) -> None:
        """Take up definitions. They replace those that a module made with the same assets when it was loaded before."""
        keys = _keys_of(definitions.assets or ())
        self._members = [*self._others(keys), _Member(automation_name, keys, definitions)]

    def asset_graph(self) -> AssetGraph:
        """The assets of all definitions of the location. Raises Dagster's errors of definitions that do not fit together."""
        merged = Definitions.merge(*(member.definitions for member in self._members))
        return merged.get_repository_def().asset_graph

    def _others(self, keys: frozenset[AssetKey]) -> list[_Member]:
        return [member for member in self._members if not member.assets & keys]


def _keys_of(assets: Iterable[Any]) -> frozenset[AssetKey]:
    return frozenset(spec.key for asset in assets for spec in specs_of(asset))
