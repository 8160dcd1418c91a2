"""Probes beside the ticks: what is out of reach is asked again and again, and an outage ends with the first answer (rule 6.17)."""

from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from dagster import DagsterInstance

from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.reading.probes import Ask, ask_spark, ask_warehouse
from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark, open_now
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.engine.outages import end_outage, outages
from databuild_dagster.model.logs import logger
from databuild_dagster.model.set_aside import Subject, same_reason
from databuild_dagster.model.surroundings import Surrounding
from databuild_dagster.spark.errors import SparkRunsNoJob
from databuild_dagster.spark.failures import explain_failure
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.threads import in_own_thread

if TYPE_CHECKING:
    from databuild_dagster.bindings.orchestration.duties import Work

#: The pause after the first probe that fails; each further failure doubles it.
FIRST_PAUSE_SECONDS: Final = 1.0
MAX_PAUSE_SECONDS: Final = 15.0
ACTOR: Final = "probe"

_log = logger(__name__)


@dataclass
class Prober:
    """The probes of a surrounding, one at a time, each in a thread of its own."""

    ask: Ask
    next_at: float = 0.0
    pause: float = FIRST_PAUSE_SECONDS
    running: Future[object] | None = None
    #: Why the last probe failed.
    why: str | None = None

    def passed(self, now: float) -> bool:
        """Whether the probe has passed since the last look; begins the next probe when the time of that has come."""
        done = self.running
        if done is None:
            if now >= self.next_at:
                self.running = in_own_thread(self.ask, "databuild probe")
            return False
        if not done.done():
            return False
        self.running = None
        if (error := done.exception()) is None:
            return True
        said, self.why = self.why, explain_failure(error)
        if not same_reason(said, self.why):
            # The job run that began the outage may have had another reason, on another host.
            _log.warning("databuild: what is out of reach does not answer this process: %s", self.why)
        self.next_at, self.pause = now + self.pause, min(2 * self.pause, MAX_PAUSE_SECONDS)
        return False


def probe_outages(work: "Work") -> None:
    """End the outages of the location whose probe has passed. A tick waits for no probe."""
    engine, location = work.engine, work.deployment.location
    probers: dict[Surrounding, Prober] = engine.memory.of((probe_outages, location), dict)
    if not work.report.out_of_reach:
        # An answer to a question of the last outage is none to that of the next one.
        probers.clear()
        return
    out = {what for what, aside in outages(engine, location) if aside.kind is Subject.OUTAGE}
    for what in out:
        if what not in probers:
            # Nothing can be asked: the next launch shows it.
            probers[what] = Prober(questions(work.instance, work.deployment).get(what, lambda: None))
        if probers[what].passed(engine.steady()):
            end_outage(engine, location, what, ACTOR)
            del probers[what]


def questions(instance: DagsterInstance, deployment: Deployment) -> dict[Surrounding, Ask]:
    """The questions of an orchestrator. Of a Spark that is no `DatabuildSpark` nothing can be asked outside of a Dagster run."""
    warehouse = Warehouse(deployment.warehouse or warehouse_of(instance))
    asks: dict[Surrounding, Ask] = {Surrounding.WAREHOUSE: lambda: ask_warehouse(warehouse)}
    if isinstance(spark := deployment.spark, DatabuildSpark):
        home = instance.root_directory
        asks[Surrounding.SPARK] = partial(_ask_spark_of, spark, home, warehouse)
    return asks


def _ask_spark_of(spark: DatabuildSpark, home: str | None, warehouse: Warehouse) -> None:
    try:
        ask_spark(partial(open_now, spark, home), lambda session: spark.forget_session_at(home), warehouse)
    except SparkRunsNoJob:
        # A connection whose other end is gone is silent for a quarter of an hour; the next probe tries a new one.
        spark.leave_session_at(home)
        raise
