"""`Settings` and `Deployment`: what `build_definitions` decides once for a code location, for steps and commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dagster import Field, InitResourceContext, RepositoryDefinition, ResourceDefinition

from databuild_dagster.bindings.adapter import run_tags
from databuild_dagster.bindings.adapter.keys import DEPLOYMENT
from databuild_dagster.bindings.declare.parameters import why_out_of_bounds
from databuild_dagster.bindings.declare.settings import settings
from databuild_dagster.data.environment import is_in_environment
from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.tick_pass import TickLimits
from databuild_dagster.model.datasets import AD_HOC_LOCATION
from databuild_dagster.model.wording import number_in_words

if TYPE_CHECKING:
    from databuild_dagster.bindings.reading.spark_resource import LazyPySparkResource, PySparkResource
    from databuild_dagster.features.settings import LocationOptions

#: Seconds between two ticks. Dagster's daemon does not evaluate a sensor more often.
MIN_INTERVAL_SECONDS: Final = 5
#: Partitions of a launch that are built at the same time, by threads of a shared Spark session. For 100 days four threads
#: took 8.8 s and one thread took 16.1 s; more threads wait for Spark's own cores.
DEFAULT_THREADS = 4
#: How long a Dagster run waits for refs that other runs build before it fails (rule 8.3).
DEFAULT_DELEGATION_TIMEOUT_SECONDS = 3600.0
#: Rows that a materialization in the UI shows of its data: Dagster's event log outlives `taint` and `gc`.
DEFAULT_SAMPLE_ROWS = 0

_REBUILD = "Build partitions again that are live or failed; builds of other runs are joined."


def _said(description: str, default: Any = None) -> Any:
    """A setting with this default, and with the description that `dg` shows of it."""
    return field(default=default, metadata={"description": description})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a code location: keywords of `build_definitions`, attributes of a `defs.yaml`.

    Raises ValueError for a setting out of its bounds.
    """

    #: None: beside the Dagster instance.
    warehouse: str | None = _said(
        "A folder, or a url such as s3://bucket/prefix; <DAGSTER_HOME>/warehouse unless given."
    )
    #: The Spark resource as given, to interrupt sessions that dead Dagster runs left.
    spark: Any = field(
        default=None,
        compare=False,
        repr=False,
        metadata={"description": "Where Spark runs; a local server unless given."},
    )
    threads: int = _said("Partitions of one launch that are built at the same time.", DEFAULT_THREADS)
    interval_seconds: int = _said("Seconds between two ticks of the orchestrator.", MIN_INTERVAL_SECONDS)
    delegation_timeout_seconds: float = _said(
        "How long a Dagster run waits for builds of others.", DEFAULT_DELEGATION_TIMEOUT_SECONDS
    )
    #: For deployments where all who see Dagster may see the data.
    sample_rows: int = _said("Rows of each partition that Dagster shows; 0 for none.", DEFAULT_SAMPLE_ROWS)
    limits: TickLimits = field(default_factory=TickLimits, metadata={"description": "How much one tick may start."})
    #: The values of the settings that features add, by name.
    of_features: Mapping[str, object] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        check_at_least("threads", self.threads, 1)
        check_at_least("interval_seconds", self.interval_seconds, 1)
        if not isinstance(self.limits, TickLimits):
            raise ValueError(f"limits is {self.limits!r}; write TickLimits(…).")
        for limit in fields(self.limits):
            check_at_least(f"limits.{limit.name}", getattr(self.limits, limit.name), 1)
        if isinstance(self.spark, str | Mapping) or type(self.spark).__module__.startswith("pyspark."):
            raise ValueError(
                f"spark is {self.spark!r}; write DatabuildSpark(…), or a PySparkResource(spark_config={{…}})."
            )
        check_at_least("sample_rows", self.sample_rows, 0)
        check_at_least("delegation_timeout_seconds", self.delegation_timeout_seconds, 0)
        if self.warehouse is not None and is_in_environment():
            # It is the base's; an environment writes below its own root alone (rule 16.1).
            object.__setattr__(self, "warehouse", None)


if TYPE_CHECKING:

    class GivenSettings(LocationOptions, total=False):
        """The settings as an author gives them, for type checkers; `Settings` has their meaning and defaults."""

        warehouse: str | Path | None
        spark: LazyPySparkResource | PySparkResource | None
        threads: int
        interval_seconds: int
        delegation_timeout_seconds: float
        sample_rows: int
        limits: TickLimits | None

else:
    # `typing.get_type_hints` evaluates the annotation.
    GivenSettings = dict


@dataclass(frozen=True, kw_only=True)
class Deployment(Settings):
    """A code location: its name in the store, and its settings."""

    location: str = AD_HOC_LOCATION
    #: Whether this Dagster run builds live partitions again, as asked for in the Launchpad (rule 8.7).
    rebuild: bool = False


#: The settings of the core, in the order in which they are declared.
CORE_SETTINGS: Final = tuple(setting for setting in fields(Settings) if setting.name != "of_features")


def differing(given: Mapping[str, Any]) -> Iterable[str]:
    """The given settings that are not what they would be without being given."""
    core = {setting.name: setting.default for setting in CORE_SETTINGS} | {"limits": None}
    unset = core | {name: setting.yaml_default for name, setting in settings().items()}
    for name, value in given.items():
        # Any iterable will do for a setting that has several values.
        if (tuple(value) if unset[name] == () else value) != unset[name]:
            yield name


def keywords_of(function: Callable[..., Any]) -> list[str]:
    """The parameters of a function that takes `**settings`, and the names of the settings."""
    own = (name for name in inspect.signature(function).parameters if name not in ("self", "settings"))
    return [*own, *(setting.name for setting in CORE_SETTINGS), *settings()]


def refuse_unknown(function: Callable[..., Any], given: Iterable[str]) -> None:
    """Raises TypeError for a keyword that a function with `**settings` has not."""
    known = keywords_of(function)
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}=?" if near else f"the settings are {', '.join(known)}."
            raise TypeError(f"{function.__qualname__.removesuffix('.__init__')}() has no argument {name}=; {hint}")


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
    if run is None or instance is None or run.tags.get(run_tags.PROCESS_TAG) is not None:
        return
    if run.tags.get(run_tags.LAUNCH_TAG) is None and run_tags.OPERATION_TAG not in run.tags:
        return
    instance.add_run_tags(run.run_id, {run_tags.WORKER_TAG: this_process()})
