"""Real Dagster and real Spark: the tests share one server, and each has a Dagster instance of its own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value

from databuild_dagster.bindings.adapter.dagster_private import (
    IMPLICIT_ASSET_JOB_NAME,
    InMemoryJob,
    execute_run_iterator,
)
from databuild_dagster.bindings.adapter.keys import asset_key
from databuild_dagster.bindings.adapter.run_tags import partition_tags
from databuild_dagster.bindings.adapter.sqlite_tuning import tune_dagster_writes
from databuild_dagster.bindings.authoring.definitions import build_definitions
from databuild_dagster.bindings.building.deployment import Deployment, deployment_of_repository
from databuild_dagster.bindings.claims.launcher import OrderCollector
from databuild_dagster.bindings.orchestration.inprocess import execute_order
from databuild_dagster.bindings.orchestration.orchestrator import run_tick
from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark
from databuild_dagster.bindings.registry.instance import engine_for, warehouse_of
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.registering import register
from databuild_dagster.model.commands import ClaimRefs, CreateWants
from databuild_dagster.model.events import BufferedRun
from databuild_dagster.model.refs import asset_of, partition_key_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.warehouse.files import read_table
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import read_manifest
from tests.support.dagster_files import copy_dagster_files, fresh_instance

copy_dagster_files()

#: No test needs more rounds of tick and launches.
MAX_TICKS = 20


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    tune_dagster_writes()
    with fresh_instance() as instance:
        yield instance


@dataclass
class Site:
    """A deployed code location on a fresh Dagster instance."""

    instance: dg.DagsterInstance
    repository: dg.RepositoryDefinition
    deployment: Deployment
    engine: Engine
    #: The Dagster runs so far, in order.
    runs: list[dg.DagsterRun] = field(default_factory=list)
    #: Steps of the last run by how they ended.
    steps: dict[str, str] = field(default_factory=dict)

    def want(self, *refs: str) -> None:
        self.engine.handle(CreateWants(wants=tuple((ref,) for ref in refs)))

    def build(self, *refs: str, most_ticks: int = MAX_TICKS) -> None:
        """Want refs, then tick and execute until a tick launches nothing."""
        if refs:
            self.want(*refs)
        launcher = OrderCollector(self.instance)
        for _ in range(most_ticks):
            run_tick(self.instance, self.repository, self.deployment, launcher)
            orders = launcher.take_orders()
            if not orders:
                return
            for order in orders:
                self._follow(execute_order(self.instance, self.repository, order))
        raise AssertionError(f"still launching after {most_ticks} ticks")

    def launch(
        self,
        assets: Sequence[str],
        keys: Sequence[str] = (),
        tags: dict[str, str] | None = None,
        run_config: dict[str, Any] | None = None,
    ) -> dg.DagsterRun:
        """A Dagster run that is not a launch of ours, as the UI starts one."""
        selection = frozenset(asset_key(asset) for asset in assets)
        job = self.repository.get_job(IMPLICIT_ASSET_JOB_NAME).get_subset(asset_selection=selection)
        config = {"execution": {"config": {"in_process": {}}}, **(run_config or {})}
        all_tags = {**partition_tags(list(keys)), **(tags or {})}
        run = self.instance.create_run_for_job(job, tags=all_tags, asset_selection=selection, run_config=config)
        self._follow(execute_run_iterator(InMemoryJob(job), run, self.instance))
        return self.runs[-1]

    def _follow(self, events: Iterator[dg.DagsterEvent]) -> None:
        self.steps = {}
        for event in events:
            if event.event_type_value in ("STEP_SUCCESS", "STEP_FAILURE", "STEP_SKIPPED"):
                self.steps[str(event.step_key)] = event.event_type_value.removeprefix("STEP_").lower()
        (run,) = self.instance.get_runs(limit=1)
        self.runs.append(run)

    def state(self, ref: str) -> InstanceState | None:
        return self.engine.queries.canonical.states([ref])[ref]

    def rows(self, ref: str) -> list[dict[str, Any]]:
        canonical = self.engine.queries.canonical.of([ref])[ref]
        assert canonical.uuid is not None
        warehouse = Warehouse(self.deployment.warehouse or warehouse_of(self.instance))
        manifest = read_manifest(warehouse, ref.partition("@")[0], canonical.uuid)
        return [dict(row) for row in read_table(warehouse, [manifest]).to_pylist()]

    def materialized(self, asset: str) -> list[str]:
        return sorted(self.instance.get_materialized_partitions(dg.AssetKey(asset.split("/"))))

    def _status(self, asset: str) -> tuple[Any, Any]:
        """What Dagster has cached of an asset's partitions, and their definition."""
        key = asset_key(asset)
        partitions = self.repository.asset_graph.get(key).partitions_def
        assert partitions is not None
        return get_and_update_asset_status_cache_value(self.instance, key, partitions), partitions

    def red(self, asset: str) -> list[str]:
        """The partitions that Dagster shows as failed."""
        status, partitions = self._status(asset)
        failed = None if status is None else status.deserialize_failed_partition_subsets(partitions)
        return [] if failed is None else list(failed.get_partition_keys())

    def colours(self, asset: str) -> dict[str, str]:
        """What Dagster shows of each partition that it shows at all; in progress hides what was before, as red does."""
        status, partitions = self._status(asset)
        if status is None:
            return {}
        subsets = {
            "green": status.deserialize_materialized_partition_subsets(partitions),
            "red": status.deserialize_failed_partition_subsets(partitions),
            "in progress": status.deserialize_in_progress_partition_subsets(partitions),
        }
        return {key: colour for colour, subset in subsets.items() for key in subset.get_partition_keys()}

    def failure(self) -> str:
        """How the last run says that it failed."""
        for record in self.instance.all_logs(self.runs[-1].run_id):
            event = record.dagster_event
            if event is not None and event.event_type_value == "STEP_FAILURE":
                failure = event.step_failure_data.user_failure_data
                assert failure is not None
                return str(failure.description)
        raise AssertionError("no step failed")


def claim(engine: Engine, *refs: str, holder: str, **facts: Any) -> list[str]:
    """Another Dagster run builds refs of one job; returns the job run of each."""
    dataset = engine.queries.datasets.get(asset_of(refs[0]))
    assert dataset is not None
    ids = {"launch_id": engine.new_id(), "dagster_run_id": engine.new_id()}
    runs = tuple(BufferedRun(engine.new_id(), (ref,), partition_key_of(ref)) for ref in refs)
    engine.handle(
        ClaimRefs(job=dataset.job, location=dataset.location, holder=holder, runs=runs, **{**ids, **facts}),
    )
    return [run.job_run_id for run in runs]


def deployed(instance: dg.DagsterInstance, spark_home: str, *assets: Any, **options: Any) -> Site:
    """A code location with these assets, registered on an instance."""
    options.setdefault("location", "tests")
    options.setdefault("spark", DatabuildSpark(home=spark_home))
    definitions = build_definitions(assets, **options)
    repository = definitions.get_repository_def()
    deployment = deployment_of_repository(repository)
    assert deployment is not None
    engine = engine_for(instance)
    register(engine, deployment.location, datasets_of(repository.asset_graph, deployment.location))
    return Site(instance, repository, deployment, engine)


@pytest.fixture
def deploy(instance: dg.DagsterInstance, spark_home: str) -> Any:
    return partial(deployed, instance, spark_home)
