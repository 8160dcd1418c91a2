"""What `build_definitions` decides once for a code location, as steps and commands find it again."""

from dataclasses import dataclass, field, replace
from typing import Any

from dagster import Field, InitResourceContext, RepositoryDefinition, ResourceDefinition

from databuild_dagster.bindings.adapter.resource_keys import DEPLOYMENT
from databuild_dagster.bindings.adapter.run_tags import LAUNCH_TAG, OPERATION_TAG, PROCESS_TAG, WORKER_TAG
from databuild_dagster.bindings.building.operation_types import Operations, known_operations
from databuild_dagster.bindings.display.alerts import Alert
from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.tick_pass import TickLimits
from databuild_dagster.model.datasets import AD_HOC_LOCATION

#: Partitions of one launch that are built at the same time, by threads of one Spark session. Four threads
#: took 8.8 s where one took 16.1 s for 100 days; more of them wait for Spark's own cores.
DEFAULT_THREADS = 4
#: How long a Dagster run waits for refs that others build before it fails (SPEC 8.3).
DEFAULT_DELEGATION_TIMEOUT_SECONDS = 3600.0
#: Rows that a materialization in the UI shows of its data.
DEFAULT_SAMPLE_ROWS = 5


_REBUILD = "Build anew what is live or has failed; what others are building is joined."


@dataclass(frozen=True, slots=True)
class Deployment:
    """One code location's settings."""

    location: str = AD_HOC_LOCATION
    #: None: beside the Dagster instance.
    warehouse: str | None = None
    threads: int = DEFAULT_THREADS
    delegation_timeout_seconds: float = DEFAULT_DELEGATION_TIMEOUT_SECONDS
    limits: TickLimits = field(default_factory=TickLimits)
    #: 0: none, where data is not for everybody who may look at Dagster.
    sample_rows: int = DEFAULT_SAMPLE_ROWS
    #: Who hears of missed SLAs, besides the log.
    alerts: tuple[Alert, ...] = ()
    #: All that are known: given, of installed packages, provided.
    operations: Operations = field(default_factory=known_operations, compare=False)
    #: In the Dagster run at hand, what is live is built anew: asked for in the Launchpad (SPEC 8.7).
    rebuild: bool = False
    #: The Spark resource as it was given, for who stops what dead Dagster runs left running.
    spark: Any = field(default=None, compare=False, repr=False)

    @property
    def is_ad_hoc(self) -> bool:
        return self.location == AD_HOC_LOCATION


class DeploymentResource(ResourceDefinition):
    """A deployment among Dagster's resources, where it can also be looked at without running anything."""

    def __init__(self, deployment: Deployment) -> None:
        def get(context: InitResourceContext) -> Deployment:
            _say_who_executes(context)
            return replace(deployment, rebuild=context.resource_config["rebuild"])

        super().__init__(
            get,
            config_schema={"rebuild": Field(bool, default_value=False, description=_REBUILD)},
            description="What build_definitions decided for this code location.",
        )
        self.deployment = deployment


def deployment_of_repository(repository: RepositoryDefinition) -> Deployment | None:
    """None for a repository that was made without `build_definitions`."""
    resource = repository.get_top_level_resources().get(DEPLOYMENT)
    return resource.deployment if isinstance(resource, DeploymentResource) else None


def _say_who_executes(context: InitResourceContext) -> None:
    """Of a launch, or of an executor of operations, before its step may have to wait for its turn: should the process be
    killed then, who looks after it knows."""
    run, instance = context.run, context.instance
    if run is None or instance is None or PROCESS_TAG in run.tags:
        return
    if LAUNCH_TAG not in run.tags and OPERATION_TAG not in run.tags:
        return
    instance.add_run_tags(run.run_id, {WORKER_TAG: this_process()})
