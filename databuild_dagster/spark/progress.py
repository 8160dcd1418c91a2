"""From Spark's stages to the number of finished tasks and of all.

Only for clients of a server: the answers to a running operation carry its progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from databuild_dagster.spark.pyspark_names import reports_progress
from databuild_dagster.spark.session import is_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.shell.progress import ProgressHandler

#: Seconds between two reports of one operation, at least.
EVERY_SECONDS = 5.0

#: Tag, tasks done, tasks known so far; the last may grow while stages are found.
OnProgress = Callable[[str, int, int], None]


@contextmanager
def watch_progress(
    spark: SparkSession, on_progress: OnProgress, *, every_seconds: float = EVERY_SECONDS
) -> Iterator[None]:
    """Inside the block, call `on_progress` for tagged operations, every `every_seconds` per operation.

    The waiting threads call it, so several at a time, and it should be quick. Short operations report nothing, nor does a
    session in a JVM of this process.
    """
    if not is_client(spark) or not reports_progress(spark):
        yield
        return
    #: The time of the last report of each running operation, or of its start.
    reported: dict[str | None, float] = {}
    lock = Lock()

    def is_time(operation_id: str | None) -> bool:
        now = time.monotonic()
        with lock:
            if now - reported.setdefault(operation_id, now) < every_seconds:
                return False
            reported[operation_id] = now
            return True

    def report(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        if done:
            with lock:
                reported.pop(operation_id, None)
            return
        known = list(stages or ())
        total = sum(stage.num_tasks for stage in known)
        if total and is_time(operation_id):
            finished = sum(stage.num_completed_tasks for stage in known)
            for tag in sorted(spark.getTags()):
                on_progress(tag, finished, total)

    # A subclass of PySpark's class would need its import.
    handler = cast("ProgressHandler", report)
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)
