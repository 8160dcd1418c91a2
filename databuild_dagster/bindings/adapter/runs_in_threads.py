"""Lets several Dagster runs execute at once, each in a thread of one process, which Dagster does not foresee."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dagster import DagsterInstance

from databuild_dagster.bindings.adapter.dagster_private import CapturedLogContext


def allow_runs_in_threads(instance: DagsterInstance) -> None:
    """Take two habits from this process's runs of the instance. Call it before the first of them; a second call changes nothing.

    - Dagster configures Python's logging for each run. That takes logging's lock and then those of all handlers. A handler
      that writes an event in another thread takes them in the other order, and both threads wait for ever. So the handlers
      of dagster.yaml (`python_logs`) are made once.
    - Dagster sends stdout and stderr of the whole process to a file of the run. Runs that end in another order than they began
      would leave them in the file of an ended run. So what a step prints stays in the output of the process.
    """
    handlers = list(instance.get_yaml_python_handlers())
    instance.get_yaml_python_handlers = lambda: handlers  # type: ignore[method-assign]
    instance.compute_log_manager.capture_logs = _nothing_captured  # type: ignore[method-assign]


@contextmanager
def _nothing_captured(log_key: Sequence[str]) -> Iterator[CapturedLogContext]:
    yield CapturedLogContext(log_key)
