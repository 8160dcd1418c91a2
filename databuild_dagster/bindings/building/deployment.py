"""`Deployment`: the settings that `build_definitions` decides once for a code location, for steps and commands."""

from dataclasses import dataclass, field, fields, replace
from typing import Any

from dagster import Field, InitResourceContext, RepositoryDefinition, ResourceDefinition

from databuild_dagster.bindings.adapter.keys import DEPLOYMENT
from databuild_dagster.bindings.adapter.run_tags import (
    LAUNCH_TAG,
    OPERATION_TAG,
    PROCESS_TAG,
    WORKER_TAG,
)
from databuild_dagster.bindings.building.operation_types import Operations, known_operations
from databuild_dagster.bindings.declare.numbers import why_out_of_bounds
from databuild_dagster.bindings.display.alerts import Alert
from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.tick_pass import TickLimits
from databuild_dagster.model.datasets import AD_HOC_LOCATION
from databuild_dagster.model.wording import number_in_words

#: Partitions of one launch that are built at the same time, by threads of one Spark session. For 100 days four threads
#: took 8.8 s and one took 16.1 s; more threads wait for Spark's own cores.
DEFAULT_THREADS = 4
#: How long a Dagster run waits for refs that others build before it fails (rule 8.3).
DEFAULT_DELEGATION_TIMEOUT_SECONDS = 3600.0
#: Rows that a materialization in the UI shows of its data: Dagster's event log outlives `taint` and `gc`.
DEFAULT_SAMPLE_ROWS = 0

_REBUILD = "Build partitions again that are live or failed; builds of other runs are joined."


@dataclass(frozen=True, slots=True)
class Deployment:
    """One code location's settings."""

    location: str = AD_HOC_LOCATION
    #: None: beside the Dagster instance.
    warehouse: str | None = None
    threads: int = DEFAULT_THREADS
    delegation_timeout_seconds: float = DEFAULT_DELEGATION_TIMEOUT_SECONDS
    limits: TickLimits = field(default_factory=TickLimits)
    #: For deployments where all who see Dagster may see the data.
    sample_rows: int = DEFAULT_SAMPLE_ROWS
    #: Sent for missed SLAs, besides the line in the log.
    alerts: tuple[Alert, ...] = ()
    #: All known types: given ones, those of installed packages, provided ones.
    operations: Operations = field(default_factory=known_operations, compare=False)
    #: Whether this Dagster run builds live partitions again, as asked for in the Launchpad (rule 8.7).
    rebuild: bool = False
    #: The Spark resource as given, to interrupt sessions that dead Dagster runs left.
    spark: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Raises ValueError for a setting out of its bounds."""
        check_at_least("threads", self.threads, 1)
        for limit in fields(self.limits):
            check_at_least(f"limits.{limit.name}", getattr(self.limits, limit.name), 1)
        check_at_least("sample_rows", self.sample_rows, 0)
        check_at_least("delegation_timeout_seconds", self.delegation_timeout_seconds, 0)


def check_at_least(option: str, value: float, least: int) -> None:
    """Raises ValueError, also for a number that no setting has."""
    if why := why_out_of_bounds(value, least):
        raise ValueError(f"{option} is {number_in_words(value)}; {why}.")


class DeploymentResource(ResourceDefinition):
    """A deployment among Dagster's resources, readable without running anything."""

    def __init__(self, deployment: Deployment) -> None:
        def get(context: InitResourceContext) -> Deployment:
            _tag_process(context)
            return replace(deployment, rebuild=context.resource_config["rebuild"])

        super().__init__(
            get,
            config_schema={"rebuild": Field(bool, default_value=False, description=_REBUILD)},
            description="The settings that build_definitions decided for this code location.",
        )
        self.deployment = deployment


class LocationResource(ResourceDefinition):
    """The name of a location in the store."""

    def __init__(self, location: str) -> None:
        super().__init__(
            lambda _: location,
            description=f"The name of these definitions in the store: {location}. Definitions that are merged need one "
            "SharedLocation: build_definitions(…, location=shop).",
        )


def deployment_of_repository(repository: RepositoryDefinition) -> Deployment | None:
    """None for a repository that was made without `build_definitions`."""
    resource = repository.get_top_level_resources().get(DEPLOYMENT)
    return resource.deployment if isinstance(resource, DeploymentResource) else None


def _tag_process(context: InitResourceContext) -> None:
    """Tag the Dagster run of a launch, or of an executor of operations, with this process before its step may wait in a
    queue: if the process is killed there, the next tick sees that it is dead."""
    run, instance = context.run, context.instance
    if run is None or instance is None or run.tags.get(PROCESS_TAG) is not None:
        return
    if run.tags.get(LAUNCH_TAG) is None and OPERATION_TAG not in run.tags:
        return
    instance.add_run_tags(run.run_id, {WORKER_TAG: this_process()})
