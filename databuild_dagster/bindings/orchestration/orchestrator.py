"""The orchestrator as a sensor: a tick of the engine, and a run request per launch.

All state is in the store, except how long the process has watched each launch. A run request may get lost: the next
tick finds the launch without a Dagster run and repeats the request with the same key.
"""

from collections.abc import Callable, Collection, Mapping

import dagster as dg

from databuild_dagster.bindings.adapter.dagster_private import is_dry_run
from databuild_dagster.bindings.adapter.keys import ORCHESTRATOR
from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.claims.launcher import OrderCollector, run_request
from databuild_dagster.bindings.orchestration.duties import TICK, Beside, Work, do_duties, duties_in
from databuild_dagster.bindings.orchestration.refused_orders import fail_refused
from databuild_dagster.bindings.registry.instance import engine_for, warehouse_of
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.data.lost_run_output import WarehouseRemains
from databuild_dagster.data.read_plan import unknown_sources
from databuild_dagster.engine.orchestrator_notes import note_process
from databuild_dagster.engine.registering import register
from databuild_dagster.engine.tick import TickReport
from databuild_dagster.model.redaction import errors_without_secrets
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.wording import few_of, one_line

#: Reasons that a tick prints for setting something aside.
MAX_SENTENCES = 10

_TWO_VERSIONS = (
    "Another version of the code of location {location!r} is registered and at work. "
    "This process leaves {assets} to it; stop one of the two."
)


def orchestrator_sensor(deployment: Deployment, *, interval_seconds: int) -> dg.SensorDefinition:
    """The sensor that turns wants into launches; it runs as soon as it is deployed."""

    @errors_without_secrets()
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        repository = context.repository_def
        assert repository is not None, "a deployed sensor knows its repository"
        if is_dry_run(context):
            engine = engine_for(context.instance)
            due = engine.queries.planning.due_refs(
                engine.queries.datasets.all(deployment.location), engine.now(), deployment.limits.due_refs
            )
            test = f"Only a test: nothing is launched by it. {len(due)} refs are due for the next tick."
            return dg.SensorResult(skip_reason=dg.SkipReason(test))
        launcher = OrderCollector(context.instance)
        taken: list[str] = []
        report = run_tick(
            context.instance,
            repository,
            deployment,
            launcher,
            report_problem=taken.append,
            interval_seconds=interval_seconds,
        )
        orders = launcher.take_orders()
        for sentence in taken:
            context.log.warning(sentence)
        if not orders:
            return dg.SensorResult(skip_reason=dg.SkipReason(" ".join([_summary(report), *taken])))
        return dg.SensorResult(run_requests=[run_request(order, repository) for order in orders])

    return dg.SensorDefinition(
        name=ORCHESTRATOR,
        evaluation_fn=evaluate,
        asset_selection=dg.AssetSelection.all(),
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Turns open wants into launches. Its decisions are in the store.",
    )


def run_tick(
    instance: dg.DagsterInstance,
    repository: dg.RepositoryDefinition,
    deployment: Deployment,
    launcher: OrderCollector,
    *,
    report_problem: Callable[[str], None] = lambda sentence: None,
    interval_seconds: float = 0.0,
    serving: Collection[Ref] | None = None,
    beside: Mapping[str, Beside] | None = None,
) -> TickReport:
    """A tick for a loaded code location, with all its duties, for the sensor and the command line.

    `report_problem` gets a sentence for each asset that a different location owns, which this tick ignores, for the assets that
    are left to a different version of the code, for each arc without its source, for each failed duty, and for each reason to
    set something aside. `interval_seconds` is the time between regular ticks. With `serving`, the tick launches only its refs
    and what they need (rule 8.9). `beside` has threads that do the work of duties. Raises `LocationTaken`, and errors of the store.
    """
    engine = engine_for(instance)
    datasets = datasets_of(repository.asset_graph, deployment.location)
    # A tick of a command is a person's.
    registered = register(engine, deployment.location, datasets, is_asked=not interval_seconds)
    is_orchestrator = bool(interval_seconds)
    note_process(engine, deployment.location, registered.fingerprint, registered.code, is_orchestrator=is_orchestrator)
    for taken in registered.taken:
        report_problem(str(taken))
    if registered.left and is_orchestrator:
        report_problem(_TWO_VERSIONS.format(location=deployment.location, assets=few_of(registered.left)))
    unknown = unknown_sources(registered.datasets.values(), registered.of(deployment.location).values())
    for sentence in (*registered.redefined, *unknown):
        report_problem(sentence)
    warehouse = deployment.warehouse or warehouse_of(instance)
    work = Work(
        instance,
        engine,
        repository,
        deployment,
        launcher,
        remains=WarehouseRemains(engine, warehouse),
        interval_seconds=interval_seconds,
        registered=registered,
        serving=serving,
        beside=beside or {},
    )
    failed = do_duties(duties_in(instance), work)
    if is_orchestrator:
        engine.store.note_seen()
    for name, error in failed.items():
        if name == TICK:
            raise error
        report_problem(f"The tick could not {name}: {type(error).__name__}: {one_line(error)}")
    for sentence in fail_refused(instance, repository, launcher)[:MAX_SENTENCES]:
        report_problem(sentence)
    for sentence in work.report.set_aside.sentences()[:MAX_SENTENCES]:
        report_problem(sentence)
    return work.report


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
