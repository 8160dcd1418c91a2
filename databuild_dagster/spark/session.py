"""From settings to a Spark session that fails at once where PySpark would retry for ten minutes.

A shared session is a client of a local server (`server`): sessions of a server share neither views nor settings. A
classic session is a JVM inside this process; PySpark allows a single JVM per process. A remote session is either a client
of a Connect server elsewhere, or a JVM here with a cluster."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, assert_never, cast

from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.spark import endpoints, errors, installed, project_modules, pyspark_names
from databuild_dagster.spark.failures import refusal
from databuild_dagster.spark.server import HOST, check_user, server_statuses, use_server
from databuild_dagster.spark.settings import LOOPBACK, RemoteSpark, SparkMode, SparkSettings, name_driver, worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession
    from pyspark.sql.connect.shell.progress import ProgressHandler


#: PySpark's own marks are in the environment, which a child process inherits; this mark is not.
_client_in: dict[str, int] = {}
_MARKS_OF_A_CLIENT = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE")

#: Spark's conditions for a setting that a running session cannot change.
_FIXED = ("CANNOT_MODIFY_CONFIG", "CANNOT_MODIFY_STATIC_CONFIG")

#: A command that waits for a Connect server in vain ends within ten seconds.
_REMOTE_ANSWER_SECONDS = 6.0

#: The UI of the server behind a client's session, by session id: a client cannot ask for it.
_ui_urls: dict[str, str] = {}

#: Names of the Connect servers that are no server of Spark on this machine, by session id.
_engine_names: dict[str, str] = {}


def open_session(settings: SparkSettings) -> SparkSession:
    """A session for `settings`: a new session on a server, or the process's own session with a JVM here.

    Raises `PySparkMissing`, `PySparkTwice`, `PySparkTooOld`, `PySparkDiffers`, `NoSparkHere`, `JavaMissing`, `SailMissing`,
    `ServerFailed`, `SparkUnreachable`, `SparkRefuses`, `TooManyServers`, `SessionModesMixed`, `BadSparkUrl`, `BadSetting`,
    `FixedSetting`.
    """
    settings.check()
    installed.installed_pyspark()
    settings = replace(settings, mode=installed.mode_here(settings.mode))
    mode = SparkMode(settings.mode)
    pyspark_names.silence_query_errors()
    match mode:
        case SparkMode.SHARED | SparkMode.SAIL:
            return _open_shared(settings)
        case SparkMode.CLASSIC:
            return _open_classic(settings, settings.master)
        case SparkMode.REMOTE:
            return _open_remote(settings)
        case _:
            assert_never(mode)


def check_startable(settings: SparkSettings) -> None:
    """Check that a session could be opened, without opening it, so that a command that would fail says so first.

    Raises `PySparkMissing`, `PySparkTwice`, `PySparkTooOld`, `NoSparkHere`, `JavaMissing`, `SailMissing`, `RemoteUnreachable`,
    `NoTemporaryFolder`, `ServerOfAnotherUser`, `StrangeFolder`, and what `SparkSettings.check` raises.
    """
    settings.check()
    installed.installed_pyspark()
    settings = replace(settings, mode=installed.mode_here(settings.mode))
    if settings.remote is not None:
        _check_answers(settings.remote)
        if settings.remote.is_connect:
            return  # A cluster's driver runs here, and needs a Java.
    elif settings.home and settings.mode != SparkMode.CLASSIC:
        check_user(settings.state_dir)
    match SparkMode(settings.mode):
        case SparkMode.SAIL:
            installed.sail_version()
        case SparkMode.SHARED if settings.home and _has_server(settings.home, settings.fingerprint()):
            return
        case SparkMode.SHARED as mode:
            installed.check_has_server(mode.value)
            _check_jvm_startable()
        case mode:
            installed.check_has_spark(mode.value)
            _check_jvm_startable()


def _check_jvm_startable() -> None:
    installed.find_java()
    installed.temporary_folder()


def _has_server(home: str | Path, fingerprint: str) -> bool:
    return any(server.fingerprint == fingerprint for server in server_statuses(home))


def is_client(spark: SparkSession) -> bool:
    """Whether the session is a client of a server, and not a JVM of this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def has_workers_elsewhere(spark: SparkSession) -> bool:
    """Whether the Python workers of the session are no children of this process, and so have other folders to import from."""
    return is_client(spark) or not str(spark.sparkContext.master).startswith("local")


def engine_name(spark: SparkSession) -> str | None:
    """The name for messages of a remote Spark, or of Sail; None for a Spark that this package started on this machine.

    What it sees and how it writes is not known before a probe (`reach`).
    """
    if is_client(spark):
        return _engine_names.get(cast("ConnectSession", spark).session_id)
    master = str(spark.sparkContext.master)
    return None if master.startswith("local") else master


def spark_ui_url(spark: SparkSession) -> str | None:
    """The url of Spark's own UI for this session; None if there is none, or it is not known here."""
    if is_client(spark):
        return _ui_urls.get(cast("ConnectSession", spark).session_id)
    return spark.sparkContext.uiWebUrl


def ui_urls(home: str | Path) -> list[str]:
    """The urls of Spark's UIs: of the servers of a home, and of the JVM of this process. For any thread, at any time."""
    urls = [status.ui_url for status in server_statuses(home)]
    # PySpark is not imported for this: without it, no JVM is here.
    jvm = pyspark_names.context_class() if "pyspark" in sys.modules else None
    if jvm is not None and jvm._active_spark_context:
        # The context has no JVM yet while it starts, and none any more when it ends.
        with suppress(AttributeError, *_wire_errors()):
            urls.append(jvm._active_spark_context.uiWebUrl)
    return [url for url in urls if url is not None]


@contextmanager
def tag_operations(spark: SparkSession, tag: str) -> Iterator[None]:
    """Operations of this thread inside the block carry `tag`, by which any other thread can interrupt them.

    Works with any session. In a JVM of this process it is the job's tag, because the session's is visible only to the
    thread that set it (Spark 4.3).
    """
    if is_client(spark):
        spark.addTag(tag)
    else:
        spark.sparkContext.addJobTag(tag)
    try:
        yield
    finally:
        # An error of a dead JVM here must not hide the error that killed it.
        with suppress(*_wire_errors()):
            if is_client(spark):
                spark.removeTag(tag)
            else:
                spark.sparkContext.removeJobTag(tag)


@contextmanager
def active_in_thread(spark: SparkSession) -> Iterator[None]:
    """Inside the block, PySpark's functions that name no session use `spark` in this thread.

    `F.udf("int")` parses its type in the active session, else in the process's default session, which may be the client of
    a server that has stopped. PySpark has no public way to set the active session of a client. A JVM in this process
    has a single context, so nothing is set there.
    """
    if not is_client(spark):
        yield
        return
    active = cast("Any", type(spark))._active_session
    before = getattr(active, "session", None)
    active.session = spark
    try:
        yield
    finally:
        active.session = before


def interrupt(spark: SparkSession, tag: str) -> tuple[str, ...]:
    """Stop the operations with `tag` in this session; a client gets their ids. Waiting threads get an error.

    An operation that is interrupted before its job begins runs on and cannot be stopped: use `interrupt_begun`.
    """
    if is_client(spark):
        return tuple(spark.interruptTag(tag))
    spark.sparkContext.cancelJobsWithTag(tag)
    return ()


def abandon(spark: SparkSession) -> None:
    """Make PySpark forget a lost session; nothing happens if it lives.

    Otherwise `getOrCreate`, in any resource, keeps returning the session whose server or JVM is gone.
    """
    if is_client(spark):
        pyspark_names.shorten_retries(cast("ConnectSession", spark).client)
        with suppress(Exception):  # It is lost, so closing it may fail.
            spark.stop()
    elif not _lives(None):
        # Not asked of the session: another launch may have opened a new context meanwhile.
        _drop_dead_context()


# Clients


def _open_shared(settings: SparkSettings) -> SparkSession:
    _refuse_beside_a_jvm(SparkMode(settings.mode).value)
    if not settings.is_sail:
        installed.check_has_server(SparkMode(settings.mode).value)
    record = use_server(settings)
    spark = _client(record.url, settings)
    if record.ui_url is not None:
        _ui_urls[cast("ConnectSession", spark).session_id] = record.ui_url
    if settings.is_sail:
        pyspark_names.compress_rows(spark)
        _engine_names[cast("ConnectSession", spark).session_id] = f"Sail on {HOST}:{record.port}"
    return spark


def _open_remote(settings: SparkSettings) -> SparkSession:
    remote = settings.remote
    assert remote is not None, "checked before"
    if remote.is_connect:
        _refuse_beside_a_jvm("remote")
        _check_answers(remote)
        try:
            spark = _client(remote.url, settings)
        except DatabuildError:
            raise
        except Exception as error:  # A server of another version, or none of Spark's; the errors have no common class.
            raise refusal(remote.shown, error) from error
        _engine_names[cast("ConnectSession", spark).session_id] = remote.shown
        _warn_if_older(remote.shown, pyspark_names.spark_version(spark))
        return spark
    if remote.url == "yarn" and not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
        raise errors.BadSparkUrl(
            url=remote.url, why="neither HADOOP_CONF_DIR nor YARN_CONF_DIR says where the cluster is"
        )
    return _open_classic(settings, remote.url, _check_answers(remote))


@lru_cache
def _warn_if_older(url: str, version: tuple[int, ...]) -> None:
    """Say once per process that a server is older than the PySpark here, which Spark does not support."""
    here = installed.installed_pyspark()
    if here.distribution == "databricks-connect" or version >= here.version_info:
        return  # Databricks counts the versions of its client in another way, and checks them itself.
    number = ".".join(map(str, version))
    warnings.warn(
        f"The Spark of {url} is {number}, older than {here}, and Spark supports only clients that are not newer than their server: "
        f"install {here.distribution} {number}.",
        stacklevel=2,
    )


def _check_answers(remote: RemoteSpark) -> str | None:
    """This machine's address on the way, if it is known. Raises `RemoteUnreachable` if no master answers, or no Connect server."""
    failures: list[errors.SparkUnreachable] = []
    for host, port in remote.endpoints:
        try:
            address = endpoints.check_reachable(host, port)
            if remote.is_plain_connect:
                endpoints.check_answers(host, port, _REMOTE_ANSWER_SECONDS)
            return address
        except errors.SparkUnreachable as error:
            failures.append(error)
    if failures:
        raise errors.RemoteUnreachable(url=remote.shown, **failures[0].facts) from failures[0]
    return None


def _client(url: str, settings: SparkSettings) -> SparkSession:
    from pyspark.sql import SparkSession

    _client_in["pid"] = os.getpid()
    pyspark_names.leave_proxies_out()
    # `create`, without settings: nothing is sent before our retry policy is set.
    spark = SparkSession.builder.remote(url).create()
    pyspark_names.check_client(spark)
    pyspark_names.shorten_retries(cast("ConnectSession", spark).client)
    _configure(spark, settings.session_config())
    return spark


def _configure(spark: SparkSession, config: Mapping[str, str]) -> None:
    """Raises `FixedSetting` for a setting that Spark fixes and `is_set_by_session` does not know as fixed."""
    from pyspark.errors import PySparkException

    for key, value in config.items():
        try:
            spark.conf.set(key, value)
        except PySparkException as error:
            if pyspark_names.condition_of(error) in _FIXED:
                raise errors.FixedSetting(setting=key, what="a session") from error
            raise


def _refuse_beside_a_jvm(wanted: str) -> None:
    if (jvm := pyspark_names.context_class()) is not None and jvm._active_spark_context is not None:
        raise errors.SessionModesMixed(present="classic", wanted=wanted)


# A JVM of this process


def _open_classic(settings: SparkSettings, master: str, address: str | None = None) -> SparkSession:
    wanted = SparkMode(settings.mode).value
    installed.check_has_spark(wanted)
    if _client_in.get("pid") == os.getpid():
        raise errors.SessionModesMixed(present="shared", wanted=wanted)
    for name in _MARKS_OF_A_CLIENT:
        os.environ.pop(name, None)
    os.environ["JAVA_HOME"] = installed.find_java().home
    os.environ[installed.JVM_OPTIONS] = installed.jvm_options(os.environ)
    if settings.is_on_this_machine:
        os.environ.setdefault("PYSPARK_PYTHON", worker_python())
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    elif address is not None:
        name_driver(address, os.environ)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

    from pyspark.sql import SparkSession

    context = pyspark_names.context_class()._active_spark_context
    if context is not None:
        if not _lives(None):
            _drop_dead_context()
        elif context.master != master:
            # `getOrCreate` would silently return the other cluster's session.
            present = f"classic ({context.master})"
            raise errors.SessionModesMixed(present=present, wanted=f"{wanted} ({master})")
    builder = SparkSession.builder.master(master).appName(settings.app_name)
    for key, value in {"spark.ui.port": "0", **settings.all_config()}.items():
        builder = builder.config(key, value)
    with project_modules.workers_import_path():
        spark = builder.getOrCreate()
    if settings.run_config:
        # Other Dagster runs of this process must not see these settings.
        return further_session(spark, settings)
    return spark


def session_of_process() -> SparkSession | None:
    """The session that a test has made with a JVM of this process, as it is; None without one."""
    if not pyspark_names.has_jvm():
        return None
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()


def further_session(spark: SparkSession, settings: SparkSettings) -> SparkSession:
    """A session beside `spark` in the JVM of this process, with settings of its own."""
    further = spark.newSession()
    _configure(further, settings.session_config())
    return further


def _lives(spark: SparkSession | None) -> bool:
    """Whether the JVM answers, and its context was not stopped (by a master, for example)."""
    context: Any = pyspark_names.context_class()._active_spark_context if spark is None else spark.sparkContext
    if context is None or context._jsc is None:
        return False
    try:
        return not context._jsc.sc().isStopped()
    except _wire_errors():
        return False


def _drop_dead_context() -> None:
    """Forget the JVM, too: PySpark keeps even a dead JVM for the life of the process."""
    from pyspark.sql import SparkSession

    jvm = pyspark_names.context_class()
    context = jvm._active_spark_context
    session = SparkSession._instantiatedSession
    for stoppable in (session, context):
        if stoppable is not None:
            with suppress(Exception):  # It is dead; the references are dropped below.
                stoppable.stop()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    jvm._active_spark_context = None
    gateway = jvm._gateway
    process = getattr(gateway, "proc", None)
    if gateway is not None and process is not None and process.poll() is not None:
        with suppress(Exception):  # Its process has ended.
            gateway.shutdown()
        jvm._gateway = jvm._jvm = None


def _wire_errors() -> tuple[type[Exception], ...]:
    """The errors of a JVM that has ended. Raises nothing where no JVM can be: a client of PySpark brings no py4j."""
    try:
        from py4j.protocol import Py4JError
    except ImportError:
        return (ConnectionError,)
    return ConnectionError, Py4JError


# Progress, only for clients of a server: the answers to a running operation carry it.


#: Seconds between two reports of the same operation, at least.
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
    if not is_client(spark) or not pyspark_names.reports_progress(spark):
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
