"""The orchestrator as a sensor: one tick of the engine, and a run request per launch.

It decides nothing and remembers nothing but how long it has been watching: everything is in the store. What
it requests may be lost on the way; the next tick finds the launch without a Dagster run and asks again with
the same key.
"""

from collections.abc import Callable

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

from databuild_dagster.bindings.adapter.dry_run import is_dry_run
from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.claims.launcher import OrderCollector, run_request
from databuild_dagster.bindings.display.alerts import send_alerts
from databuild_dagster.bindings.display.report_dead_runs import tell_what_was_cut_short
from databuild_dagster.bindings.display.sla_check import report_sla_checks
from databuild_dagster.bindings.display.taint_ui import paint_taints
from databuild_dagster.bindings.orchestration.lot_copies import keep_copies
from databuild_dagster.bindings.orchestration.tend_held_runs import look_after
from databuild_dagster.bindings.reading.orphan_sessions import interrupt_orphaned_sessions
from databuild_dagster.bindings.registry.instance import engine_for, warehouse_of
from databuild_dagster.bindings.registry.plain_assets import ForeignAssets
from databuild_dagster.bindings.registry.registration import datasets_of, register
from databuild_dagster.data.lost_run_output import WarehouseRemains
from databuild_dagster.data.read_plan import unknown_sources
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.tick import TickReport, tick
from databuild_dagster.engine.tick_pass import Pass

#: The sensor's name in Dagster.
ORCHESTRATOR = "databuild_orchestrator"
#: Dagster's daemon does not evaluate a sensor more often.
MIN_INTERVAL_SECONDS = 5


def orchestrator_sensor(deployment: Deployment, *, interval_seconds: int) -> SensorDefinition:
    """The sensor that turns wants into launches; running as soon as it is deployed."""

    def evaluate(context: SensorEvaluationContext) -> SensorResult:
        repository = context.repository_def
        assert repository is not None, "a deployed sensor knows its repository"
        if is_dry_run(context):
            return SensorResult(skip_reason=SkipReason(_dry_summary(engine_for(context.instance), deployment)))
        launcher = OrderCollector(context.instance)
        taken: list[str] = []
        report = run_tick(
            context.instance, repository, deployment, launcher, tell=taken.append, interval_seconds=interval_seconds
        )
        orders = launcher.take_orders()
        for sentence in taken:
            context.log.warning(sentence)
        if not orders:
            return SensorResult(skip_reason=SkipReason(" ".join([_summary(report), *taken])))
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
    *,
    tell: Callable[[str], None] = lambda sentence: None,
    interval_seconds: float = 0.0,
) -> TickReport:
    """One tick for a loaded code location; the same for the sensor and the command line.

    `tell` hears of assets that another location has, the tick is about the others; and of arcs whose source nobody has.
    Who ticks regularly says how often. Raises `LocationTaken`.
    """
    engine = engine_for(instance)
    registered = register(engine, deployment.location, datasets_of(repository.asset_graph, deployment.location))
    for taken in registered.taken:
        tell(str(taken))
    datasets = registered.of(deployment.location)
    for sentence in unknown_sources(registered.datasets.values(), datasets.values()):
        tell(sentence)
    began_at = engine.queries.head().seq
    remains = WarehouseRemains(engine, deployment.warehouse or warehouse_of(instance))
    report = tick(
        Pass(
            engine,
            location=deployment.location,
            launcher=launcher,
            foreign=ForeignAssets(instance),
            # A judge that may call a launch dead has to have watched for a while, so it outlives the tick.
            judge=engine.memory.of(Judge, Judge),
            owner=this_process(),
            limits=deployment.limits,
            remains=remains,
            interval_seconds=interval_seconds,
        )
    )
    tell_what_was_cut_short(instance, report.lost)
    # After it, for what could be adopted is no remains.
    remains.clear(report.lost)
    # After it, so that what it has launched anew is held on for, and not built by who waits.
    look_after(
        instance,
        location=deployment.location,
        delegation_timeout_seconds=deployment.delegation_timeout_seconds,
    )
    send_alerts(instance, engine, deployment.location, deployment.alerts, began_at=began_at)
    report_sla_checks(instance, deployment.location, repository.asset_graph)
    # After it, for what it builds anew at once need not be red.
    paint_taints(instance, deployment.location)
    # After it, for what it has found lost has ended in Dagster too by now.
    interrupt_orphaned_sessions(instance, deployment.spark)
    # Last, for it may take a while, and nobody of ours waits for it.
    keep_copies(instance, deployment)
    return report


def _dry_summary(engine: Engine, deployment: Deployment) -> str:
    most = deployment.limits.due_refs
    due = engine.queries.due_refs(engine.queries.datasets(deployment.location), engine.now(), most)
    return f"Only a test: nothing is launched by it. {len(due)} refs are due for the next tick."


def _summary(report: TickReport) -> str:
    if report.idle:
        return "Nothing is due."
    parts = {
        "found lost": report.lost,
        "ended while they waited": report.given_up,
        "still miss inputs": report.missed,
        "wanted by arcs": report.fired,
        "arrived": report.arrived,
    }
    return "Nothing to launch; " + ", ".join(f"{len(what)} {name}" for name, what in parts.items() if what) + "."
