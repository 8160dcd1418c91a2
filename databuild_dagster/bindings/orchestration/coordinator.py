"""Dagster's own run queue, which also answers what nobody has to build (SPEC 8.1): one line of `dagster.yaml`.

    run_coordinator: {module: databuild_dagster, class: DatabuildRunCoordinator}

A run for what is live ends at once, without a process; a run for what others are building stays in the queue until
they have built it, holding nothing. Every other run goes the way it would go with the `QueuedRunCoordinator`, and so
does every run when something here fails: the guard in the step decides anyway. This module is imported by Dagster's
web server and daemon, and imports the rest of us only when a run is submitted.
"""

import logging
from collections.abc import Mapping, MutableMapping
from typing import Any

from dagster import DagsterRun, DagsterRunStatus, QueuedRunCoordinator, SubmitRunContext

from databuild_dagster.bindings.adapter.dagster_private import EngineEventData, RunQueueConfig
from databuild_dagster.bindings.adapter.run_tags import HELD, HOLD_TAG, LAUNCH_TAG, RELEASED

#: No run that wears this tag is started.
HOLD_LIMIT: Mapping[str, Any] = {"key": HOLD_TAG, "value": HELD, "limit": 0}

_log = logging.getLogger(__name__)


class DatabuildRunCoordinator(QueuedRunCoordinator[Any]):
    """Takes the configuration of `QueuedRunCoordinator`, and keeps it."""

    def get_run_queue_config(self) -> RunQueueConfig:
        """The user's limits and ours, also where `concurrency` in dagster.yaml would put the user's in the place of all."""
        _add_to_concurrency_settings(self._instance.get_settings("concurrency"))
        config = super().get_run_queue_config()
        return config._replace(tag_concurrency_limits=[*config.tag_concurrency_limits, HOLD_LIMIT])

    def submit_run(self, context: SubmitRunContext) -> DagsterRun:
        """Answer or hold the run, or enqueue it as it is; submitted twice, it is what it was the first time."""
        run = context.dagster_run
        if run.status is DagsterRunStatus.NOT_STARTED:
            self._without_anothers_hold(run)
            if LAUNCH_TAG not in run.tags and self._has_ended(run):
                return self._instance.get_run_by_id(run.run_id) or run
        return super().submit_run(context)

    def _without_anothers_hold(self, run: DagsterRun) -> None:
        """A re-execution wears the tags of the run before it."""
        if run.tags.get(HOLD_TAG) == HELD:
            self._instance.add_run_tags(run.run_id, {HOLD_TAG: RELEASED})

    def _has_ended(self, run: DagsterRun) -> bool:
        """Whether the run needs to be enqueued no more, having been answered."""
        try:
            from databuild_dagster.bindings.orchestration.held_runs import receive

            return receive(self._instance, run, may_hold=self.holds())
        except Exception as error:
            _log.exception("databuild: Dagster run %s is neither answered nor held", run.run_id)
            return self._let_go(run, error)

    def holds(self) -> bool:
        """Whether the daemon keeps to it that what is held is not started."""
        config = self._instance.get_concurrency_config().run_queue_config
        return config is not None and HOLD_LIMIT in config.tag_concurrency_limits

    def _let_go(self, run: DagsterRun, error: Exception) -> bool:
        """Something of ours failed: say so in the run's log, and let it go on like any other."""
        current = self._instance.get_run_by_id(run.run_id)
        if current is None or current.is_finished:
            return True
        if current.tags.get(HOLD_TAG) == HELD:
            self._instance.add_run_tags(run.run_id, {HOLD_TAG: RELEASED})
        message = (
            f"databuild could not say whether others do what this run asks for ({type(error).__name__}: {error}); "
            "it starts, and its steps will see."
        )
        self._instance.report_engine_event(message, run, EngineEventData())
        return False


def _add_to_concurrency_settings(settings: MutableMapping[str, Any]) -> None:
    """Limits given there replace those of the coordinator, ours too; so ours is added to them, in this process's copy."""
    runs = settings.get("runs") or {}
    if "tag_concurrency_limits" not in runs:
        return
    limits = runs["tag_concurrency_limits"] or []
    if HOLD_LIMIT not in limits:
        runs["tag_concurrency_limits"] = [*limits, dict(HOLD_LIMIT)]
