"""Stop the Spark jobs of running operations, and of sessions whose client has died.

An operation that is interrupted while it hands a job to Spark is reported as canceled, but the job runs on, and no later
interrupt reaches it: adaptive execution submits jobs in a thread of its own (Spark 4.3: 27 of 31 operations that were hit
within 0.4 s of their start, on a busy machine). A JVM of this process likewise forgets to cancel a job that has not
begun. So `interrupt_begun` reads Spark's UI first, if there is one, and waits until a job has run for a while.

A client's death stops nothing: its server continues the operation, on cores that the next attempt needs. Any process that
knows the session's address can stop it. The address holds no token; the token is read from the server's record.
"""

from __future__ import annotations

import json
import urllib.request
from datetime import UTC, datetime
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from databuild_dagster.spark import endpoints, pyspark_names, server, session
from databuild_dagster.spark.settings import CONNECT_PORT, RemoteSpark, SparkMode, SparkSettings, parse_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

#: The UI shows jobs a little late: with a shorter time, the next job could be about to begin.
SETTLED_SECONDS = 1.0
#: The UI's first answer takes seconds on a busy machine.
TIMEOUT_SECONDS = 10.0

#: Spark's format of times, and its mark before the id of an operation.
_TIME = "%Y-%m-%dT%H:%M:%S.%fGMT"
_OPERATION = "_Operation_"

#: Without a proxy: the UI is on this machine.
_ask = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def interrupt_begun(spark: SparkSession, tag: str) -> bool:
    """Stop the operations with `tag` whose Spark job has run for a while; False if there is no UI to tell.

    Call it repeatedly, as long as an operation may begin. Raises what PySpark raises when its server or its JVM is gone.
    """
    url = session.spark_ui_url(spark)
    if url is None:
        return False
    now = datetime.now(UTC)
    running = [job for job in running_jobs(url) if job.has_tag(tag)]
    if not running or (now - max(job.since for job in running)).total_seconds() < SETTLED_SECONDS:
        return True
    if session.is_client(spark):
        tags = {job_tag for job in running for job_tag in job.tags if _OPERATION in job_tag}
        for operation in {job_tag.rpartition(_OPERATION)[2] for job_tag in tags}:
            spark.interruptOperation(operation)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)
    return True


class RunningJob(NamedTuple):
    """A job that Spark runs now."""

    since: datetime
    tags: tuple[str, ...]
    n_stages: int
    n_done_stages: int
    n_tasks: int
    n_done_tasks: int

    def has_tag(self, tag: str) -> bool:
        """Whether the job has a tag; a server writes SparkConnect_SessionTag_User_…_Session_…_Tag_TAG."""
        return any(job_tag == tag or job_tag.endswith(f"_Tag_{tag}") for job_tag in self.tags)


def running_jobs(url: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> list[RunningJob]:
    """The running jobs in the Spark UI at `url`; none if it does not answer."""
    try:
        return [
            RunningJob(
                datetime.strptime(job["submissionTime"], _TIME).replace(tzinfo=UTC),
                tuple(job["jobTags"]),
                len(job["stageIds"]) - job["numSkippedStages"],
                job["numCompletedStages"],
                job["numTasks"] - job["numSkippedTasks"],
                job["numCompletedTasks"],
            )
            for application in _answer(f"{url}/api/v1/applications", timeout_seconds)
            for job in _answer(f"{url}/api/v1/applications/{application['id']}/jobs?status=running", timeout_seconds)
        ]
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return []


def _answer(url: str, timeout_seconds: float) -> Any:
    with _ask(url, timeout=timeout_seconds) as answer:
        return json.load(answer)


def session_address(spark: SparkSession) -> str | None:
    """`sc://host:port/;user_id=…;session_id=…`, without a token, for an interrupt from another process.

    None for a session in a JVM of this process, which ends with it.
    """
    if not session.is_client(spark):
        return None
    endpoint, user, session_id = pyspark_names.address_of(cast("ConnectSession", spark).client)
    return f"sc://{endpoint}/;user_id={user or ''};session_id={session_id}"


def interrupt_orphans(settings: SparkSettings, address: str) -> tuple[str, ...]:
    """Stop all operations in a session of a dead client; returns their ids.

    The token comes from the record of the home's server, or from the url of `settings`. Raises `SparkUnreachable` if the server
    is gone, too, and what PySpark raises if access is denied.
    """
    place = parse_url(address)
    (host, port) = place.endpoints[0]
    endpoints.check_reachable(host, port)
    user = dict(place.parameters).get("user_id") or None
    client = pyspark_names.new_client(_with_access(place, settings), user)
    try:
        return tuple(client.interrupt_all() or ())
    finally:
        client.close()


def _with_access(place: RemoteSpark, settings: SparkSettings) -> str:
    (host, port) = place.endpoints[0]
    session_id = dict(place.parameters)["session_id"]
    if host == server.HOST and (record := server.record_at(settings.home, port)) is not None:
        return f"{record.url};session_id={session_id}"
    remote = settings.remote if SparkMode(settings.mode) is SparkMode.REMOTE else None
    theirs = remote.parameters if remote is not None and remote.endpoints == place.endpoints else ()
    parameters = [(key, value) for key, value in theirs if key not in ("user_id", "session_id")]
    text = ";".join(f"{key}={value}" for key, value in (*parameters, ("session_id", session_id)))
    return f"sc://{f'[{host}]' if ':' in host else host}:{port or CONNECT_PORT}/;{text}"
