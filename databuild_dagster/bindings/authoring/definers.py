"""What features add to the Dagster definitions of a code location: jobs and sensors, and facts about its assets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dagster import JobDefinition, SensorDefinition

from databuild_dagster.bindings.building.deployment import Deployment

#: The assets of one `Definitions`, as `build_definitions` takes them.
Assets = Sequence[Any]


def _no_jobs(deployment: Deployment) -> Sequence[JobDefinition]:
    return ()


def _no_sensors(deployment: Deployment) -> Sequence[SensorDefinition]:
    return ()


def _no_sensors_of(deployment: Deployment, assets: Assets) -> Sequence[SensorDefinition]:
    return ()


def _unchanged(deployment: Deployment, assets: Assets) -> Assets:
    return assets


@dataclass(frozen=True, kw_only=True)
class Definer:
    """A feature's part of the definitions."""

    #: Made once for a code location, because `Definitions.merge` unites identical objects alone.
    jobs: Callable[[Deployment], Sequence[JobDefinition]] = _no_jobs
    sensors: Callable[[Deployment], Sequence[SensorDefinition]] = _no_sensors
    #: Made for each `Definitions` of a location, from its assets.
    sensors_of: Callable[[Deployment, Assets], Sequence[SensorDefinition]] = _no_sensors_of
    #: The assets with what the feature knows of them. Raises `InvalidAsset`.
    assets: Callable[[Deployment, Assets], Assets] = _unchanged
