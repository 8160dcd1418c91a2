"""Dagster's own run queue, which also answers runs that need no build of their own (rule 8.1): a single line of
`dagster.yaml`.

    run_coordinator: {module: databuild_dagster, class: DatabuildRunCoordinator}

A run for live refs ends at once, without a process. A run for refs that other runs build stays in the queue until the refs
are built, and holds nothing. Every other run is queued as by the `QueuedRunCoordinator`; so is every run if this code
fails, because its steps decide in any case. Dagster's web server and daemon import this module; it imports the rest of
the package only when a run is submitted.
"""

from collections.abc import Mapping
from typing import Any

from dagster import DagsterRun, DagsterRunStatus, QueuedRunCoordinator, SubmitRunContext

from databuild_dagster.bindings.adapter.dagster_private import EngineEventData
from databuild_dagster.bindings.adapter.dagster_storage import RunQueueConfig, target_assets_alone
from databuild_dagster.bindings.adapter.run_tags import HELD, HOLD_TAG, LAUNCH_TAG, RELEASED
from databuild_dagster.bindings.orchestration.beside_the_queue import n_beside_the_queue, vouch_for_runs, with_more_runs
from databuild_dagster.model.logs import log_failure, logger
from databuild_dagster.model.wording import one_line

#: Dagster's queue starts no run with this tag.
HOLD_LIMIT: Mapping[str, Any] = {"key": HOLD_TAG, "value": HELD, "limit": 0}

_log = logger(__name__)


class DatabuildRunCoordinator(QueuedRunCoordinator[Any]):
    """Takes and keeps the configuration of `QueuedRunCoordinator`."""

    #: The limit in `concurrency` of dagster.yaml, before this process adds to it; None if there is none.
    _limit_in_settings: int | None = None

    def get_run_queue_config(self) -> RunQueueConfig:
        """The user's limits and ours, also where `concurrency` in dagster.yaml would replace all limits.

        `max_concurrent_runs` is a limit for the runs of the queue: runs that commands execute themselves come on top.
        """
        n_beside = self._n_beside()
        self._add_to_concurrency_settings(n_beside)
        config = super().get_run_queue_config()
        return config._replace(
            max_concurrent_runs=with_more_runs(config.max_concurrent_runs, n_beside),
            tag_concurrency_limits=[*config.tag_concurrency_limits, HOLD_LIMIT],
        )

    def _n_beside(self) -> int:
        try:
            return n_beside_the_queue(self._instance)
        except Exception as error:
            log_failure(_log, "the runs of commands count for max_concurrent_runs", error)
            return 0

    @property
    def dequeue_interval_seconds(self) -> int:
        """Only Dagster's daemon reads it, as it begins: before its run monitoring looks for the first time."""
        vouch_for_runs(self._instance)
        return super().dequeue_interval_seconds

    def _add_to_concurrency_settings(self, n_beside: int) -> None:
        """Limits given there replace all limits of the coordinator, so ours are added to them in this process's copy."""
        runs = self._instance.get_settings("concurrency").get("runs") or {}
        if "max_concurrent_runs" in runs:
            if self._limit_in_settings is None:
                self._limit_in_settings = runs["max_concurrent_runs"]
            runs["max_concurrent_runs"] = with_more_runs(self._limit_in_settings, n_beside)
        if "tag_concurrency_limits" in runs:
            limits = runs["tag_concurrency_limits"] or []
            if HOLD_LIMIT not in limits:
                runs["tag_concurrency_limits"] = [*limits, dict(HOLD_LIMIT)]

    def submit_run(self, context: SubmitRunContext) -> DagsterRun:
        """Answer or hold the run, or enqueue it unchanged; a second submission has no effect."""
        run = context.dagster_run
        if run.status is DagsterRunStatus.NOT_STARTED:
            self._show_assets(context)
            if run.tags.get(HOLD_TAG) == HELD:
                # A re-execution has copies of the tags of the run before it.
                self._instance.add_run_tags(run.run_id, {HOLD_TAG: RELEASED})
            if run.tags.get(LAUNCH_TAG) is None and self._has_ended(run):
                return self._instance.get_run_by_id(run.run_id) or run
        return super().submit_run(context)

    def _show_assets(self, context: SubmitRunContext) -> None:
        """Dagster's list of runs has a single line for assets as soon as a run names checks, and a partition takes that line."""
        run = context.dagster_run
        try:
            graph = context.workspace.asset_graph
            of_assets = [graph.get(key).check_keys for key in run.asset_selection or () if graph.has(key)]
            if run.asset_check_selection and run.asset_check_selection == set().union(*of_assets):
                target_assets_alone(self._instance, run)
        except Exception as error:
            log_failure(
                _log, f"Dagster's list of runs shows the checks of run {run.run_id} in place of its asset", error
            )

    def _has_ended(self, run: DagsterRun) -> bool:
        """Whether the run was answered and need not be enqueued."""
        try:
            from databuild_dagster.bindings.orchestration.held_runs import receive

            return receive(self._instance, run, may_hold=self.holds())
        except Exception as error:
            log_failure(_log, f"Dagster run {run.run_id} is neither answered nor held, and starts", error)
            return self._enqueue_anyway(run, error)

    def holds(self) -> bool:
        """Whether the daemon is configured not to start held runs."""
        config = self._instance.get_concurrency_config().run_queue_config
        return config is not None and HOLD_LIMIT in config.tag_concurrency_limits

    def _enqueue_anyway(self, run: DagsterRun, error: Exception) -> bool:
        """Our code failed: log it in the run, and let it start like any other."""
        current = self._instance.get_run_by_id(run.run_id)
        if current is None or current.is_finished:
            return True
        if current.tags.get(HOLD_TAG) == HELD:
            self._instance.add_run_tags(run.run_id, {HOLD_TAG: RELEASED})
        message = (
            f"databuild could not check whether other runs build the partitions of this run ({type(error).__name__}: "
            f"{one_line(error)}); the run starts, and its steps check again."
        )
        self._instance.report_engine_event(message, run, EngineEventData())
        return False
