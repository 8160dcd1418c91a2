"""The launches that this process executes: one after another, or several at once, each in a thread of its own (rule 8.9)."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from databuild_dagster.warehouse.threads import in_own_thread

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun, RepositoryDefinition

    from databuild_dagster.engine.ports import LaunchOrder

#: How long the threads may take to end their Dagster runs, after the launches of an interrupted command were abandoned.
END_SECONDS = 5.0


@dataclass
class Launches:
    """Executes launch orders, at most `at_once` at a time."""

    instance: DagsterInstance
    at_once: int = 1
    _running: dict[Future[None], DagsterRun] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.at_once > 1:
            from databuild_dagster.bindings.orchestration.inprocess import allow_runs_in_threads

            allow_runs_in_threads(self.instance)

    @property
    def n_running(self) -> int:
        return len(self._running)

    @property
    def n_free(self) -> int:
        """Launches that may begin now."""
        return self.at_once - len(self._running)

    def begin(self, repository: RepositoryDefinition, order: LaunchOrder, log_level: str) -> None:
        """Execute an order, and return when it has ended, or when its thread has begun if several may run at once."""
        from databuild_dagster.bindings.claims.launcher import selected_keys
        from databuild_dagster.bindings.orchestration.inprocess import create_run, execute

        run = create_run(self.instance, repository, order, log_level=log_level)

        def whole() -> None:
            for _ in execute(self.instance, repository, run, selected_keys(order)):
                pass

        if self.at_once == 1:
            whole()
        else:
            self._running[in_own_thread(whole, f"databuild launch {order.launch_id}")] = run

    def wait(self, seconds: float | None = None) -> None:
        """Wait until one of the running launches has ended, at most so long. Raises what Dagster raised in its thread."""
        for done in wait(self._running, seconds, FIRST_COMPLETED).done:
            del self._running[done]
            done.result()

    def finish(self) -> None:
        """Wait until all of them have ended."""
        while self._running:
            self.wait()

    def abandon(self) -> None:
        """End all of them, as Ctrl-C ends a launch in the main thread. A further Ctrl-C ends the wait, and is raised."""
        from databuild_dagster.bindings.building.hosted_launch import end_open_launches

        running, self._running = self._running, {}
        try:
            # Each waits for its own calls.
            wait([in_own_thread(partial(end_open_launches, run.run_id), "databuild end") for run in running.values()])
            wait(running, END_SECONDS)
        finally:
            for future, run in running.items():
                if not future.done():
                    # Before its first job run, or in a call that does not end. The thread ends with the process.
                    self.instance.report_run_failed(run, "The command that executed it was interrupted.")
