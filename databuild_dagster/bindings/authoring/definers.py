"""What features add to the Dagster definitions of a code location: jobs and sensors, and facts about its assets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dagster import JobDefinition, SensorDefinition

from databuild_dagster.bindings.building.deployment import Deployment

#: The assets of a `Definitions`, as `build_definitions` takes them.
Assets = Sequence[Any]


@dataclass(frozen=True, kw_only=True)
class Definer:
    """A feature's part of the definitions."""

    #: Made once for a code location, because `Definitions.merge` unites identical objects alone.
    jobs: Callable[[Deployment], Sequence[JobDefinition]] = lambda deployment: ()
    sensors: Callable[[Deployment], Sequence[SensorDefinition]] = lambda deployment: ()
    #: Made for each `Definitions` of a location, from its assets.
    sensors_of: Callable[[Deployment, Assets], Sequence[SensorDefinition]] = lambda deployment, assets: ()
    #: The assets with what the feature knows of them. Raises `InvalidAsset`.
    assets: Callable[[Deployment, Assets], Assets] = lambda deployment, assets: assets
