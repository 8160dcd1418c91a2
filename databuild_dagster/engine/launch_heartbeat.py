"""While a step builds, a thread says that its launch is alive, and hears when others end its job runs."""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from threading import Event, Thread, current_thread

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.judge import HEARTBEAT_SECONDS
from databuild_dagster.engine.operations.executor import Executor
from databuild_dagster.model.states import OPEN_JOB_RUNS

#: How often the store is asked whether job runs were canceled: a person waits for it, a heartbeat does not.
WATCH_SECONDS = 2.0

_log = logging.getLogger(__name__)


def _beat_and_watch(done: Event, beat: Callable[[], object], watch: Callable[[], object], who: str) -> None:
    """Until it is done. A full disk now must not end the heartbeat for good; the lease is the judge."""
    beats_every = max(1, round(HEARTBEAT_SECONDS / WATCH_SECONDS))
    turn = 0
    while not done.wait(WATCH_SECONDS):
        turn += 1
        try:
            if turn % beats_every == 0:
                beat()
            watch()
        except Exception:
            _log.exception("databuild: the heartbeat of %s failed once", who)


class ExecutorHeartbeat:
    """The same around the work of an executor of operations: who loses a job, or hears that its operation is gone, stops it."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._done = Event()
        self._thread = Thread(target=self._live, name=f"databuild executor {executor.id}", daemon=True)

    def __enter__(self) -> "ExecutorHeartbeat":
        self._executor.beat()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join(timeout=WATCH_SECONDS)

    def _live(self) -> None:
        _beat_and_watch(self._done, self._executor.beat, self._executor.watch, f"executor {self._executor.id}")


class Heartbeat:
    """A context manager around the work of one launch. `on_ended` gets each job run that others ended."""

    def __init__(
        self, engine: Engine, launch_id: str, job_run_ids: Iterable[str], on_ended: Callable[[str, str], None]
    ) -> None:
        self._engine = engine
        self._launch_id = launch_id
        self._watched = set(job_run_ids)
        self._on_ended = on_ended
        self._done = Event()
        self._thread = Thread(target=self._live, name=f"databuild heartbeat {launch_id}", daemon=True)

    def __enter__(self) -> "Heartbeat":
        self._engine.beat([self._launch_id])
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Nothing is kept alive any more. Twice is once."""
        self._done.set()
        if self._thread is not current_thread():
            self._thread.join(timeout=WATCH_SECONDS)

    def reported(self, job_run_ids: Iterable[str]) -> None:
        """These ended by our own word; nobody has to be told."""
        self._watched.difference_update(job_run_ids)

    def _live(self) -> None:
        beat = partial(self._engine.beat, [self._launch_id])
        _beat_and_watch(self._done, beat, self._watch, f"launch {self._launch_id}")

    def _watch(self) -> None:
        for run in self._engine.queries.job_runs_of_launch(self._launch_id):
            if run.id in self._watched and run.state not in OPEN_JOB_RUNS:
                self._watched.discard(run.id)
                self._on_ended(
                    run.id,
                    f"it was ended from outside as {run.state.value}: {run.error or 'no reason given'}",
                )
