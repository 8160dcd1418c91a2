"""Interrupts the Spark operations of Dagster runs whose process is gone.

A note beside the heartbeats names each session that a Dagster run has on a server. It is an orphan if the process is dead,
or if the Dagster run has ended without its process. Every tick interrupts orphans, so that the retry of a lost launch does
not share the cores with them. A living process of a canceled run learns of it from its heartbeat and interrupts its own
operations.
"""

from typing import Any

from dagster import DagsterInstance

from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.engine.holders import surely_gone, this_process
from databuild_dagster.model.logs import log_failure, logger
from databuild_dagster.spark.errors import SparkUnreachable
from databuild_dagster.spark.interrupt import interrupt_orphans, session_address
from databuild_dagster.spark.settings import SparkSettings
from databuild_dagster.store.backends.heartbeats import NotedSession

#: A note that could not be handled is dropped after this time: a server has closed the session by then.
MAX_AGE_SECONDS = 24 * 3600.0

_log = logger(__name__)


class SessionUse:
    """The sessions of a Dagster run, each noted from its opening to the end of the run."""

    def __init__(self, instance: DagsterInstance, dagster_run_id: str) -> None:
        self._instance = instance
        self._dagster_run_id = dagster_run_id
        self._addresses: set[str] = set()

    def begin(self, spark: Any) -> None:
        """Note a session that was opened or is used again. A session in a JVM of this process ends with it and needs no note."""
        address = session_address(spark)
        if address is None:
            return
        engine = engine_for(self._instance)
        engine.heartbeats.note_session(NotedSession(self._dagster_run_id, address, this_process(), engine.clock()))
        self._addresses.add(address)

    def end(self) -> None:
        """Drop the notes, because the Dagster run has ended."""
        while self._addresses:
            engine_for(self._instance).heartbeats.forget_session(self._dagster_run_id, self._addresses.pop())


def interrupt_orphaned_sessions(instance: DagsterInstance, spark_resource: Any) -> list[str]:
    """Interrupt the operations of dead Dagster runs; returns the ids of the dead runs. Cheap when there is none.

    `spark_resource` is the code location's resource, which has the credentials of a remote server. A server that does
    not answer is gone with its operations. Other errors are logged, and the next tick tries again.
    """
    engine = engine_for(instance)
    noted = engine.heartbeats.sessions()
    handled: list[str] = []
    for session in noted:
        if not _is_orphaned(instance, session, noted):
            continue
        try:
            interrupted = interrupt_orphans(_settings(instance, spark_resource), session.address)
        except SparkUnreachable:
            interrupted = ()
        except Exception as error:
            log_failure(_log, f"the Spark session of Dagster run {session.dagster_run_id} is not closed", error)
            if engine.clock() - session.at < MAX_AGE_SECONDS:
                continue
            interrupted = ()
        engine.heartbeats.forget_session(session.dagster_run_id, session.address)
        handled.append(session.dagster_run_id)
        if interrupted:
            run = session.dagster_run_id
            _log.warning("databuild: stopped %d Spark operations of the dead Dagster run %s", len(interrupted), run)
    return handled


def _settings(instance: DagsterInstance, spark_resource: Any) -> SparkSettings:
    """The settings of the resource's sessions; without a resource of ours, the settings of the home's server."""
    home = None if instance.is_ephemeral else instance.root_directory
    if not hasattr(spark_resource, "settings_at"):
        return SparkSettings(home=home)
    with spark_resource.process_config_and_initialize_cm() as resource:
        settings: SparkSettings = resource.settings_at(home)
        return settings


def _is_orphaned(instance: DagsterInstance, session: NotedSession, noted: list[NotedSession]) -> bool:
    if surely_gone(session.holder):
        return True
    if not _has_ended(instance, session.dagster_run_id):
        return False
    # Its process may be alive and use the same session for its next Dagster run.
    others = (other for other in noted if other.address == session.address and other is not session)
    return all(_has_ended(instance, other.dagster_run_id) for other in others)


def _has_ended(instance: DagsterInstance, dagster_run_id: str) -> bool:
    run = instance.get_run_by_id(dagster_run_id)
    return run is None or run.is_finished
