"""The orchestrator as a sensor: one tick of the engine, and a run request per launch.

It decides nothing and remembers nothing but how long it has been watching: everything is in the store. What
it requests may be lost on the way; the next tick finds the launch without a Dagster run and asks again with
the same key.
"""

import os
from functools import cache

from dagster import (
    AssetSelection,
    DagsterInstance,
    DefaultSensorStatus,
    RepositoryDefinition,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
)

from databuild_dagster.bindings.deployment import Deployment
from databuild_dagster.bindings.foreign import ForeignAssets
from databuild_dagster.bindings.instance import engine_for, store_url
from databuild_dagster.bindings.launcher import OrderCollector, run_request
from databuild_dagster.bindings.orphans import interrupt_orphaned_sessions
from databuild_dagster.bindings.registration import datasets_of, register
from databuild_dagster.engine import Judge, TickReport, this_process, tick

#: The sensor's name in Dagster.
ORCHESTRATOR = "databuild_orchestrator"
#: Dagster's daemon does not evaluate a sensor more often.
MIN_INTERVAL_SECONDS = 5


def orchestrator_sensor(deployment: Deployment, *, interval_seconds: int) -> SensorDefinition:
    """The sensor that turns wants into launches; running as soon as it is deployed."""

    def evaluate(context: SensorEvaluationContext) -> SensorResult:
        repository = context.repository_def
        assert repository is not None, "a deployed sensor knows its repository"
        launcher = OrderCollector(context.instance)
        report = run_tick(context.instance, repository, deployment, launcher)
        orders = launcher.take_orders()
        if not orders:
            return SensorResult(skip_reason=SkipReason(_summary(report)))
        return SensorResult(run_requests=[run_request(order, repository) for order in orders])

    return SensorDefinition(
        name=ORCHESTRATOR,
        evaluation_fn=evaluate,
        asset_selection=AssetSelection.all(),
        minimum_interval_seconds=interval_seconds,
        default_status=DefaultSensorStatus.RUNNING,
        description="Builds what is wanted: turns open wants into launches. Its decisions are in the store.",
    )


def run_tick(
    instance: DagsterInstance,
    repository: RepositoryDefinition,
    deployment: Deployment,
    launcher: OrderCollector,
) -> TickReport:
    """One tick for a loaded code location; the same for the sensor and the command line."""
    engine = engine_for(instance)
    register(engine, deployment.location, datasets_of(repository.asset_graph, deployment.location))
    report = tick(
        engine,
        location=deployment.location,
        launcher=launcher,
        foreign=ForeignAssets(instance),
        judge=_judge(os.getpid(), store_url(instance)),
        owner=this_process(),
        limits=deployment.limits,
    )
    # After it, for what it has found lost has ended in Dagster too by now.
    interrupt_orphaned_sessions(instance, deployment.spark)
    return report


@cache
def _judge(pid: int, url: str) -> Judge:
    """Who may call a launch dead has to have watched for a while, so it outlives the tick."""
    return Judge()


def _summary(report: TickReport) -> str:
    if report.idle:
        return "Nothing is due."
    parts = {"found lost": report.lost, "still miss inputs": report.missed, "arrived": report.arrived}
    return "Nothing to launch; " + ", ".join(f"{len(what)} {name}" for name, what in parts.items() if what) + "."
