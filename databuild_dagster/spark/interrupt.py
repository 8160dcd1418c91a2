"""Stopping what Spark has begun to run, and only that.

An operation of a client that is interrupted as it hands a job to Spark is reported as canceled, and that job runs on
where nothing reaches it any more: adaptive execution hands jobs over in a thread that nobody tells (Spark 4.3: 27 of 31
operations that were hit within 0.4 s of their start, on a busy machine). A JVM of this process forgets just so to cancel
a job that it has not begun. So who stops something looks at Spark's UI first, where there is one, and waits until a job
is no news.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from databuild_dagster.spark.session import is_client, spark_ui_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The UI hears of jobs a little late; one that has run so long is not the one before the one that is about to begin.
SETTLED_SECONDS = 1.0
#: Its first answer takes seconds on a busy machine.
TIMEOUT_SECONDS = 10.0

#: As Spark writes its times, and before the id of an operation.
_TIME = "%Y-%m-%dT%H:%M:%S.%fGMT"
_OPERATION = "_Operation_"

#: No proxy stands between this process and its own machine.
_ask = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def interrupt_begun(spark: SparkSession, tag: str) -> bool:
    """Stop what runs with `tag` and has been in one Spark job for a while; False where nobody can ever tell what has.

    To be called again and again, as long as something may still begin. Raises what PySpark raises when its server, or its
    JVM, is gone.
    """
    url = spark_ui_url(spark)
    if url is None:
        return False
    now = datetime.now(UTC)
    running = [job for job in running_jobs(url) if _has_tag(job.tags, tag)]
    if not running or (now - max(job.since for job in running)).total_seconds() < SETTLED_SECONDS:
        return True
    if is_client(spark):
        for operation in {each.rpartition(_OPERATION)[2] for job in running for each in job.tags if _OPERATION in each}:
            spark.interruptOperation(operation)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)
    return True


class RunningJob(NamedTuple):
    """One that Spark runs now."""

    since: datetime
    tags: tuple[str, ...]


def running_jobs(url: str) -> list[RunningJob]:
    """By the Spark UI at `url`, whoever asked for them; none where it does not answer."""
    try:
        return [
            RunningJob(datetime.strptime(job["submissionTime"], _TIME).replace(tzinfo=UTC), tuple(job["jobTags"]))
            for application in _answer(f"{url}/api/v1/applications")
            for job in _answer(f"{url}/api/v1/applications/{application['id']}/jobs?status=running")
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _has_tag(tags: Collection[str], tag: str) -> bool:
    """A server writes SparkConnect_SessionTag_User_…_Session_…_Tag_TAG."""
    return any(each == tag or each.endswith(f"_Tag_{tag}") for each in tags)


def _answer(url: str) -> Any:
    with _ask(url, timeout=TIMEOUT_SECONDS) as answer:
        return json.load(answer)
