"""`SharedLocation`: the settings of a code location become its orchestrator and resources, once for all of its definitions.

`Definitions.merge` unites identical objects and refuses different objects of the same name, so definitions that are to be
merged need the same objects. Components of a project share them in the same way.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from dagster import AssetKey, Definitions, JobDefinition, SensorDefinition

from databuild_dagster.bindings.adapter.dagster_private import AssetGraph
from databuild_dagster.bindings.adapter.keys import DEPLOYMENT, IO_MANAGER, LOCATION, SPARK, WANTS, specs_of
from databuild_dagster.bindings.authoring.automation import AUTOMATION
from databuild_dagster.bindings.building.deployment import (
    CORE_SETTINGS,
    Deployment,
    DeploymentResource,
    GivenSettings,
    LocationResource,
    refuse_unknown,
)
from databuild_dagster.bindings.building.io_manager import databuild_io_manager
from databuild_dagster.bindings.declare.settings import settings
from databuild_dagster.bindings.orchestration.orchestrator import orchestrator_sensor
from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark
from databuild_dagster.bindings.reading.wants import Wants
from databuild_dagster.feature import rows
from databuild_dagster.warehouse.layout import Warehouse

#: Names under which code written for dagster-pyspark usually asks for its resource.
_PYSPARK_KEYS = ("pyspark", "lazy_pyspark", "spark")


def deployment_of(location: str, given: Mapping[str, Any], place: str) -> Deployment:
    """The deployment with the `given` settings; `place` names where they were given.

    Raises ValueError for a setting out of its bounds, and what the settings of features raise.
    """
    names, of_features = [setting.name for setting in CORE_SETTINGS], settings()
    core = {name: value for name, value in given.items() if name in names}
    for may_be_none in ("warehouse", "spark", "limits"):
        if core.get(may_be_none, ...) is None:
            del core[may_be_none]
    if "warehouse" in core:
        core["warehouse"] = Warehouse(str(core["warehouse"])).root
    # Not the default of the record: each deployment has a resource of its own.
    core.setdefault("spark", DatabuildSpark())
    # The defaults, too: an installed package that is broken is named where definitions load, and not in a build.
    own = {
        name: setting.checked(given[name], place) if name in given else setting.default()
        for name, setting in of_features.items()
    }
    return Deployment(location=location, of_features=own, **core)


@dataclass(frozen=True, slots=True)
class LocationParts:
    """The parts that all Definitions of a code location share."""

    deployment: Deployment
    resources: Mapping[str, Any]
    jobs: Sequence[JobDefinition]
    sensors: Sequence[SensorDefinition]


def location_parts(deployment: Deployment) -> LocationParts:
    """The resources of a deployment, its orchestrator, and the jobs and sensors of features."""
    resources = {
        # The first, because Dagster names the first resource that differs where definitions do not merge.
        LOCATION: LocationResource(deployment.location),
        DEPLOYMENT: DeploymentResource(deployment),
        **dict.fromkeys(_PYSPARK_KEYS, deployment.spark),
        WANTS: Wants(location=deployment.location),
        SPARK: deployment.spark,
        IO_MANAGER: databuild_io_manager,
    }
    definers = rows(lambda feature: feature.definers)
    return LocationParts(
        deployment,
        resources,
        [job for definer in definers for job in definer.jobs(deployment)],
        [
            orchestrator_sensor(deployment, interval_seconds=deployment.interval_seconds),
            *(sensor for definer in definers for sensor in definer.sensors(deployment)),
        ],
    )


@dataclass(frozen=True, slots=True)
class _Member:
    """A part of a location: the `Definitions` of a single module or component."""

    automation_name: str
    assets: frozenset[AssetKey]
    definitions: Definitions


class SharedLocation:
    """A code location whose definitions are written in several modules.

    Give it to each `build_definitions(…, location=shop)`, and join the results by `Definitions.merge`: they share an orchestrator,
    a warehouse, a Spark and a name in the store. It takes the same settings as `build_definitions`.
    """

    def __init__(self, name: str, **settings: Unpack[GivenSettings]) -> None:
        """Raises `InvalidOperationType`, `InvalidAsset`, ValueError for a setting out of range or an empty name."""
        refuse_unknown(SharedLocation.__init__, settings)
        if not name:
            raise ValueError("The name of a location is empty; it is its name in the store, such as 'shop'.")
        self.parts = location_parts(deployment_of(name, settings, f"location {name!r}"))
        self._members: list[_Member] = []

    @property
    def name(self) -> str:
        """Its name in the store."""
        return self.parts.deployment.location

    def automation_name(self, assets: Iterable[Any], module: str) -> str:
        """The name of the sensor that evaluates the conditions of `assets`, different for each of the definitions."""
        others = {member.automation_name for member in self._others(_keys_of(assets))}
        of_the_module = re.sub(r"\W+", "_", f"{AUTOMATION}_{module}")
        names = [AUTOMATION, of_the_module, *(f"{of_the_module}_{n}" for n in range(2, len(others) + 2))]
        return next(name for name in names if name not in others)

    def add(self, definitions: Definitions, automation_name: str) -> None:
        """Add definitions. They replace earlier definitions of the same assets, which a module made when it was loaded before."""
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
