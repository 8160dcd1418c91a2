"""From Dagster runs whose process is gone to the end of what they still run on a Spark server.

While a Dagster run has a session on a server, a note beside the heartbeats says so. What is left of the notes when
the process is dead, or when the Dagster run has ended behind its back, is an orphan; every tick looks for them, so
that a lost launch's next try does not share the cores with its last one. A process canceled from elsewhere that
still lives hears of it by its heartbeat and interrupts its own work.
"""

import logging
from typing import Any

from dagster import DagsterInstance

from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.engine.holders import surely_gone, this_process
from databuild_dagster.spark.errors import SparkUnreachable
from databuild_dagster.spark.orphans import interrupt_orphans, session_address
from databuild_dagster.spark.session import SparkSettings
from databuild_dagster.store.backends.heartbeats import NotedSession

#: After this long a note is dropped that nobody could follow up: by then a server has forgotten the session itself.
MAX_AGE_SECONDS = 24 * 3600.0

_log = logging.getLogger(__name__)


class SessionUse:
    """One Dagster run's sessions, noted from opening to the end of the run."""

    def __init__(self, instance: DagsterInstance, dagster_run_id: str) -> None:
        self._instance = instance
        self._dagster_run_id = dagster_run_id
        self._addresses: set[str] = set()

    def begin(self, spark: Any) -> None:
        """A session was opened, or is used on; one in a JVM of this process ends with it and needs no note."""
        address = session_address(spark)
        if address is None:
            return
        engine = engine_for(self._instance)
        engine.heartbeats.note_session(NotedSession(self._dagster_run_id, address, this_process(), engine.clock()))
        self._addresses.add(address)

    def end(self) -> None:
        """The Dagster run is done, whatever became of it."""
        while self._addresses:
            engine_for(self._instance).heartbeats.forget_session(self._dagster_run_id, self._addresses.pop())


def interrupt_orphaned_sessions(instance: DagsterInstance, spark_resource: Any) -> list[str]:
    """Interrupt what dead Dagster runs left running; returns their ids. Cheap when there is none.

    `spark_resource` is that of the code location, which knows how to be let in to a remote server. A server that
    does not answer is gone, and its jobs with it. What else goes wrong is logged, and tried again by the next tick.
    """
    engine = engine_for(instance)
    noted = engine.heartbeats.sessions()
    seen_to: list[str] = []
    for session in noted:
        if not _is_orphaned(instance, session, noted):
            continue
        try:
            interrupted = interrupt_orphans(_settings(instance, spark_resource), session.address)
        except SparkUnreachable:
            interrupted = ()
        except Exception:
            _log.exception("databuild: the Spark session of Dagster run %s is not let go of", session.dagster_run_id)
            if engine.clock() - session.at < MAX_AGE_SECONDS:
                continue
            interrupted = ()
        engine.heartbeats.forget_session(session.dagster_run_id, session.address)
        seen_to.append(session.dagster_run_id)
        if interrupted:
            run = session.dagster_run_id
            _log.warning("databuild: %d Spark operations of dead Dagster run %s were stopped", len(interrupted), run)
    return seen_to


def _settings(instance: DagsterInstance, spark_resource: Any) -> SparkSettings:
    """What sessions are opened with; where the resource is not ours, those of the home's own server."""
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
    # Its process may live on, and have the same session for its next Dagster run.
    others = (each for each in noted if each.address == session.address and each is not session)
    return all(_has_ended(instance, each.dagster_run_id) for each in others)


def _has_ended(instance: DagsterInstance, dagster_run_id: str) -> bool:
    run = instance.get_run_by_id(dagster_run_id)
    return run is None or run.is_finished
