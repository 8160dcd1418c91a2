"""From what Spark says of its stages to a few words for a person: how many tasks of how many are done.

Only of sessions that are clients of a server: there the answers to a running operation carry its progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from databuild_dagster.spark.session import is_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.shell.progress import ProgressHandler

#: What is told of one operation, at most this often.
EVERY_SECONDS = 5.0

#: Tag, tasks done, tasks known so far; the last may grow while stages are found.
OnProgress = Callable[[str, int, int], None]


@contextmanager
def watch_progress(
    spark: SparkSession, on_progress: OnProgress, *, every_seconds: float = EVERY_SECONDS
) -> Iterator[None]:
    """Inside the block `on_progress` hears of operations that carry a tag, at most every so often per
    operation.

    It is called in the thread that waits for the operation, so from several at a time, and should be quick; first
    when an operation has run for `every_seconds`, so that short ones say nothing. Nothing happens for a session in
    a JVM of this process.
    """
    if not is_client(spark):
        yield
        return
    # PySpark asks for a subclass of its own class, which is not to be imported before somebody needs it.
    teller = cast("ProgressHandler", _Teller(spark, on_progress, every_seconds))
    spark.registerProgressHandler(teller)
    try:
        yield
    finally:
        spark.removeProgressHandler(teller)


class _Teller:
    def __init__(self, spark: SparkSession, on_progress: OnProgress, every_seconds: float) -> None:
        self._spark = spark
        self._on_progress = on_progress
        self._every_seconds = every_seconds
        #: When each running operation was last told of, or first heard of.
        self._told: dict[str | None, float] = {}
        self._lock = Lock()

    def __call__(self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        if done:
            with self._lock:
                self._told.pop(operation_id, None)
            return
        known = list(stages or ())
        total = sum(stage.num_tasks for stage in known)
        if total and self._is_time(operation_id):
            finished = sum(stage.num_completed_tasks for stage in known)
            for tag in sorted(self._spark.getTags()):
                self._on_progress(tag, finished, total)

    def _is_time(self, operation_id: str | None) -> bool:
        now = time.monotonic()
        with self._lock:
            if now - self._told.setdefault(operation_id, now) < self._every_seconds:
                return False
            self._told[operation_id] = now
            return True
