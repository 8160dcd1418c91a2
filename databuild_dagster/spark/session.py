"""From settings to a Spark session that does not try for ten minutes what cannot work.

A shared session is a client of a local server (`server`): sessions of one server see neither each other's
views nor each other's settings. A classic session is a JVM inside this process; PySpark allows one of them
per process."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, assert_never, cast

from databuild_dagster.spark.errors import SessionModesMixed
from databuild_dagster.spark.java import find_java
from databuild_dagster.spark.server import use_server
from databuild_dagster.spark.settings import LOOPBACK, SparkMode, SparkSettings, worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

__all__ = ["SparkMode", "SparkSettings", "interrupt", "open_session", "tag_operations"]

#: After the server is gone a client tries this often, for two seconds together. PySpark's own 15 tries take
#: ten minutes, and when the process wants to end it makes them once more, to say goodbye.
CLIENT_RETRIES = 4
CLIENT_FIRST_WAIT_MS = 100
CLIENT_LONGEST_WAIT_MS = 1000

#: PySpark's own marks stand in the environment, which a process started by a client inherits; ours does not.
_shared_in: dict[str, int] = {}
_MARKS_OF_A_CLIENT = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE")


def open_session(settings: SparkSettings) -> SparkSession:
    """A session for these settings: a new one when shared, the process's one when classic.

    Raises `JavaMissing`, `ServerFailed`, `SparkUnreachable`, `TooManyServers`, `SessionModesMixed`.
    """
    mode = SparkMode(settings.mode)
    _silence_query_errors()
    match mode:
        case SparkMode.SHARED:
            return _open_shared(settings)
        case SparkMode.CLASSIC:
            return _open_classic(settings)
        case _:
            assert_never(mode)


def is_shared(spark: SparkSession) -> bool:
    """Whether the session is a client of a server."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def tag_operations(spark: SparkSession, tag: str) -> Iterator[None]:
    """What this thread runs inside the block carries `tag`, by which any other thread can interrupt it."""
    spark.addTag(tag)
    try:
        yield
    finally:
        spark.removeTag(tag)


def interrupt(spark: SparkSession, tag: str) -> tuple[str, ...]:
    """Stop what runs with `tag` in this session; the ids of what was asked to stop. Waiters get an error.

    Awkward: an operation that is hit between its own start and that of its first Spark job is reported as
    canceled while the job runs on (Spark 4.3; 1 of 25 hit within 0.3 s). Only stopping the server ends that.
    """
    return tuple(spark.interruptTag(tag))


def _silence_query_errors() -> None:
    """PySpark prints each failed query, and each broken call, to stderr as JSON, even if caught; telling is up to who catches."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "pyspark.sql.connect.logging"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _open_shared(settings: SparkSettings) -> SparkSession:
    from pyspark.core.context import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client.retries import DefaultPolicy

    if SparkContext._active_spark_context is not None:
        raise SessionModesMixed(present="classic", wanted="shared")
    record = use_server(settings)
    _shared_in["pid"] = os.getpid()
    # `create`, without settings: nothing is sent yet, so that the first thing sent is under our policy.
    spark = SparkSession.builder.remote(record.url).create()
    connect = cast("ConnectSession", spark)
    connect.client.set_retry_policies(
        [
            DefaultPolicy(
                max_retries=CLIENT_RETRIES,
                initial_backoff=CLIENT_FIRST_WAIT_MS,
                max_backoff=CLIENT_LONGEST_WAIT_MS,
                backoff_multiplier=3.0,
                jitter=50,
            )
        ]
    )
    for key, value in settings.session_config().items():
        spark.conf.set(key, value)
    return spark


def _open_classic(settings: SparkSettings) -> SparkSession:
    if _shared_in.get("pid") == os.getpid():
        raise SessionModesMixed(present="shared", wanted="classic")
    for name in _MARKS_OF_A_CLIENT:
        os.environ.pop(name, None)
    os.environ["JAVA_HOME"] = find_java().home
    os.environ.setdefault("PYSPARK_PYTHON", worker_python())
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)

    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(settings.master).appName(settings.app_name)
    for key, value in settings.all_config().items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
