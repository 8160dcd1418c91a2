"""The resource of a code location with its Spark session."""

import json
import os
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from dataclasses import asdict, replace
from itertools import count
from threading import Lock, Thread
from typing import Any, Final, Literal

from dagster import EnvVar, InitResourceContext
from pydantic import Field, PrivateAttr

from databuild_dagster.bindings.reading.orphan_sessions import SessionUse
from databuild_dagster.model.redaction import errors_without_secrets, keep_secrets_of, values_without_secrets
from databuild_dagster.spark.at_import import allow_before_sessions
from databuild_dagster.spark.errors import BadSetting
from databuild_dagster.spark.session import abandon, further_session, is_client, open_session, session_of_process
from databuild_dagster.spark.settings import IDLE_MINUTES, SparkSettings, parse_url
from databuild_dagster.spark.temporary import temporary

# dagster-pyspark's resources where it is installed, and a base of the same form where it is not: dagster-pyspark demands the
# distribution `pyspark`, which must not be beside a client such as databricks-connect.
try:
    from dagster_pyspark import LazyPySparkResource as LazyPySparkResource
    from dagster_pyspark import PySparkResource as PySparkResource
except ImportError:
    from dagster import ConfigurableResource
    from pydantic import PrivateAttr

    class LazyPySparkResource(ConfigurableResource):  # type: ignore[no-redef,type-arg]
        """A resource with a session that is opened when it is first asked for."""

        spark_config: dict[str, Any]
        _spark_session: Any = PrivateAttr(default=None)

        def _init_session(self) -> None:
            raise NotImplementedError

        @property
        def spark_session(self) -> Any:
            """The session, which is opened now unless it is open. Raises errors of opening."""
            self._init_session()
            return self._spark_session

        @property
        def spark_context(self) -> Any:
            """The context of the session's JVM. A client has none, and PySpark says so."""
            return self.spark_session.sparkContext

    class PySparkResource(LazyPySparkResource):  # type: ignore[no-redef]
        """The same; no session is opened before it is asked for."""


# This module is imported with the decorators, before the modules of a project that use them.
allow_before_sessions()

#: The number of the session that Dagster runs of this thread use. Launches that run beside each other have different numbers, since
#: a session has its views and settings for itself.
session_number: ContextVar[int] = ContextVar("databuild_session_number", default=0)

#: Sessions of this process by number and settings: opening one takes seconds, and a process may host many Dagster runs.
_sessions: dict[tuple[int, int, str], Any] = {}
_sessions_lock = Lock()

#: Mark to the secret in its place, in this process.
_secrets: dict[str, str] = {}
_secrets_lock = Lock()

#: On a Dagster run: Spark settings for it alone, as a JSON object.
SPARK_CONFIG_TAG: Final = "databuild/spark"


class DatabuildSpark(LazyPySparkResource):
    """The Spark session of a code location, opened when it is first needed.

    `shared` is a local Spark server that all processes of the Dagster instance use (beside PySpark 3.5, which brings no
    server, it is `classic`); `sail` is the same with Sail, which
    needs no Java; `classic` is a JVM per process; `remote` is an existing Spark at `url`: a Spark Connect server
    (`sc://host:port`) or a master (`spark://host:port`, `yarn`, `k8s://https://host:port`), whose driver is a JVM per
    process.

    Raises `BadSparkUrl` for `remote` without a url. Opening raises the errors of `open_session`, such as `JavaMissing`,
    `PySparkTwice`, `SparkUnreachable` or `FixedSetting`.
    """

    mode: Literal["shared", "sail", "classic", "remote"] = Field(
        default="shared", description="How a process gets its session."
    )
    url: str | None = Field(
        default=None, description="For mode remote: sc://host:port, or a master such as spark://host:port."
    )
    spark_config: dict[str, Any] = Field(default_factory=dict, description="Spark's own settings, flat or nested.")
    home: str | None = Field(default=None, description="The home with the shared server, by default the instance's.")
    app_name: str = Field(default="databuild", description="The name in Spark's UI.")
    idle_minutes: float = Field(
        default=IDLE_MINUTES, ge=0, description="A local server that no process uses ends after this time; 0: never."
    )

    _instance_home: str | None = PrivateAttr(default=None)
    _run_config: dict[str, str] = PrivateAttr(default_factory=dict)
    _number: int = PrivateAttr(default=0)
    _use: SessionUse | None = PrivateAttr(default=None)
    _is_temporary: bool = PrivateAttr(default=False)

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{name: _sealed(value, name) for name, value in settings.items()})
        if self.mode == "remote" and self.url is None:
            parse_url(None)  # Raises; not by the first build.

    @errors_without_secrets()
    def setup_for_execution(self, context: InitResourceContext) -> None:
        self._number = session_number.get()
        # An ephemeral instance's directory is removed with it, so its runs share a server that ends with this process.
        self._is_temporary = context.instance is not None and context.instance.is_ephemeral and self.home is None
        if context.instance is not None and not context.instance.is_ephemeral:
            self._instance_home = context.instance.root_directory
            if context.run is not None:
                self._use = SessionUse(context.instance, context.run.run_id)
        if context.run is not None and (text := context.run.tags.get(SPARK_CONFIG_TAG)) is not None:
            self._run_config = _config_of_tag(text)
        # Wrong settings fail the Dagster run here, before it has claimed refs.
        self._given_settings().check()

    def teardown_after_execution(self, context: InitResourceContext) -> None:
        if self._use is not None:
            self._use.end()

    def _init_session(self) -> None:
        if self._spark_session is None and self._is_temporary and self.mode == "shared":
            self._spark_session = session_of_process()
        if self._spark_session is None:
            self._spark_session = _session_for(self.settings(), self._number)
            if self._use is not None:
                self._use.begin(self._spark_session)

    def forget_session(self) -> None:
        """Drop the lost session; the next use opens a new session."""
        self._spark_session = None
        _forget(self.settings(), self._number)

    def forget_session_at(self, home: str | None) -> None:
        """Drop the session of all Dagster runs of the instance at `home`; launches beside them get new ones from the next use on."""
        _forget(self.settings_at(home))
        self.leave_session_at(home)

    def leave_session_at(self, home: str | None) -> None:
        """Let the next use open new sessions; calls that run in the present sessions continue."""
        settings = self.settings_at(home)
        for number in _numbers(settings):
            _leave(settings, number)

    def settings(self) -> SparkSettings:
        """The settings of the session. Only a session asks for them: the settings of a temporary server create its folder."""
        settings = self._given_settings()
        return temporary(settings) if self._is_temporary else settings

    def _given_settings(self) -> SparkSettings:
        return replace(self.settings_at(self._instance_home), run_config=self._run_config)

    def settings_at(self, home: str | None) -> SparkSettings:
        """The settings of sessions of all Dagster runs of the instance at `home`."""
        return SparkSettings(
            mode=self.mode,
            url=_of_the_environment(_unsealed(self.url)),
            config={str(key): _text(_unsealed(value)) for key, value in _flat(self.spark_config)},
            app_name=self.app_name,
            idle_minutes=self.idle_minutes,
            home=_of_the_environment(self.home) or home,
        )


def forget_session_of(resource: Any, session: Any) -> None:
    """Drop a resource's lost session, also of dagster-pyspark's own resources; the next use opens a new session.

    dagster-pyspark uses `getOrCreate`, which otherwise returns the dead session as long as the process lives.
    """
    forget = getattr(resource, "forget_session", None)
    if forget is not None:
        forget()
    elif session is not None:
        abandon(session)
        if getattr(resource, "_spark_session", None) is session:
            resource._spark_session = None


def _key(settings: SparkSettings, number: int) -> tuple[int, int, str]:
    return os.getpid(), number, json.dumps(asdict(settings), default=str, sort_keys=True)


def _numbers(settings: SparkSettings) -> list[int]:
    """The numbers of the open sessions with these settings."""
    with _sessions_lock:
        return [number for _, number, _ in _sessions if _key(settings, number) in _sessions]


def _session_for(settings: SparkSettings, number: int = 0) -> Any:
    key = _key(settings, number)
    with _sessions_lock:
        if key not in _sessions:
            session = open_session(settings)
            # A JVM of this process gives each caller the same session.
            _sessions[key] = further_session(session, settings) if number and not is_client(session) else session
        return _sessions[key]


def _leave(settings: SparkSettings, number: int = 0) -> Any:
    with _sessions_lock:
        return _sessions.pop(_key(settings, number), None)


def _forget(settings: SparkSettings, number: int = 0) -> None:
    if (lost := _leave(settings, number)) is not None:
        # Another launch may be opening the context of a JVM here.
        with nullcontext() if is_client(lost) else _sessions_lock:
            abandon(lost)


def open_now(spark: DatabuildSpark, home: str | None) -> Any:
    """The session of an instance's Dagster runs. Raises errors of opening."""
    return _session_for(spark.settings_at(home))


def open_ahead(spark: DatabuildSpark, home: str | None) -> None:
    """Open the session of an instance's Dagster runs in a thread. The runs wait for it, or get the error themselves."""

    def try_it() -> None:
        with suppress(Exception):
            _session_for(spark.settings_at(home))

    Thread(target=try_it, name="databuild session", daemon=True).start()


def temporary_session() -> Any:
    """The session of Dagster runs on ephemeral instances: that of this process's JVM, else a client of a server that ends with it."""
    return session_of_process() or _session_for(temporary(DatabuildSpark().settings_at(None)))


def close_sessions() -> None:
    """Close this process's sessions. Call it before their server stops: afterwards closing takes long and fails."""
    with _sessions_lock:
        while _sessions:
            _sessions.popitem()[1].stop()


def _config_of_tag(text: str) -> dict[str, str]:
    """The settings of a Dagster run from its tag. Raises `BadSetting`."""
    what = f"Tag {SPARK_CONFIG_TAG} = {text!r}"
    try:
        config = json.loads(text)
    except ValueError as error:
        raise BadSetting(what=what, why=f"it is not JSON ({error})") from error
    if not isinstance(config, dict):
        raise BadSetting(what=what, why="it is not a JSON object")
    flat = dict(_flat(config))
    for key, value in flat.items():
        if not isinstance(value, str | int | float):
            raise BadSetting(what=what, why=f"{key} is neither a text, a number nor true or false")
    return {key: _text(value) for key, value in flat.items()}


def _sealed(value: Any, name: str) -> Any:
    """A setting with a mark in the place of each secret, because Dagster shows and stores what a resource is given.

    The mark is the same in every process that loads the same code: otherwise Dagster would store a new snapshot of each job.
    """
    if isinstance(value, dict):
        return {key: _sealed(found, f"{name}.{key}") for key, found in value.items()}
    # The value of an EnvVar is not in it.
    if not isinstance(value, str) or isinstance(value, EnvVar) or value in _secrets:
        return value
    keep_secrets_of({name: value})
    shown = str(values_without_secrets({name: value})[name])
    if shown == value:
        return value
    with _secrets_lock:
        marks = (shown if n == 1 else f"{shown}{n}" for n in count(1))
        return next(mark for mark in marks if _secrets.setdefault(mark, value) == value)


def _unsealed(value: Any) -> Any:
    return _secrets.get(value, value) if isinstance(value, str) else value


def _of_the_environment(value: str | None) -> str | None:
    """The value of an `EnvVar`: Dagster replaces it only when it sets the resource up."""
    return value.get_value() if isinstance(value, EnvVar) else value


def _flat(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{name}.")
        else:
            yield name, value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
