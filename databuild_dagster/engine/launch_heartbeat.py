"""Heartbeat threads, which also watch for work that is ended from outside; the heartbeat of a launch is here."""

from collections.abc import Callable, Iterable
from functools import partial
from threading import Event, Thread, current_thread
from typing import Self

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.judge import HEARTBEAT_SECONDS, LEASE_SECONDS
from databuild_dagster.model.logs import log_failure, logger
from databuild_dagster.model.states import OPEN_JOB_RUNS

#: Seconds between two looks for canceled job runs: shorter than a heartbeat's, because a person waits.
WATCH_SECONDS = 2.0

#: The heartbeats of this process that fail at present. The store is away for all of them, so only the first warns.
_failing: set["Beating"] = set()
_TRIED_AGAIN = f"it is tried again every {WATCH_SECONDS:g} s, and its lease ends after {LEASE_SECONDS:g} s of silence"

_log = logger(__name__)


class Beating:
    """A context manager with a thread that beats and watches. An error, such as a full disk, does not end the thread; the
    lease decides."""

    def __init__(self, name: str, beat: Callable[[], object], watch: Callable[[], object]) -> None:
        self._name, self._beat, self._watch_once = name, beat, watch
        self._done = Event()
        self._thread = Thread(target=self._live, name=f"databuild heartbeat of {name}", daemon=True)

    def __enter__(self) -> Self:
        self._beat()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the heartbeat; a second call does nothing."""
        self._done.set()
        if self._thread is not current_thread():
            self._thread.join(timeout=WATCH_SECONDS)

    def _live(self) -> None:
        beats_every = max(1, round(HEARTBEAT_SECONDS / WATCH_SECONDS))
        turn = 0
        while not self._done.wait(WATCH_SECONDS):
            turn += 1
            try:
                if turn >= beats_every:
                    self._beat()
                    turn = 0
                self._watch_once()
            except Exception as error:
                if not _failing:
                    log_failure(_log, f"the heartbeat of {self._name} failed; {_TRIED_AGAIN}", error)
                _failing.add(self)
            else:
                _failing.discard(self)
        _failing.discard(self)


class Heartbeat(Beating):
    """The heartbeat around the work of a launch. `on_ended` gets each job run that is ended from outside."""

    def __init__(
        self, engine: Engine, launch_id: str, job_run_ids: Iterable[str], on_ended: Callable[[str, str], None]
    ) -> None:
        super().__init__(f"launch {launch_id}", partial(engine.beat, [launch_id]), self._watch)
        self._engine = engine
        self._launch_id = launch_id
        self._watched = set(job_run_ids)
        self._on_ended = on_ended

    def reported(self, job_run_ids: Iterable[str]) -> None:
        """Do not report `job_run_ids` as ended from outside: this process ended them."""
        self._watched.difference_update(job_run_ids)

    def _watch(self) -> None:
        for run in self._engine.queries.job_runs.of_launch(self._launch_id):
            if run.id in self._watched and run.state not in OPEN_JOB_RUNS:
                self._watched.discard(run.id)
                why = f"it was ended from outside as {run.state.value}: {run.error or 'no reason given'}"
                self._on_ended(run.id, why)
