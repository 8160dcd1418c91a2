"""Resources a code location gets: the Spark session, and wanting."""

import os
from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import Any, Literal

from dagster import (
    ConfigurableResource,
    DagsterInstance,
    InitResourceContext,
)
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr

from databuild_dagster.bindings.deployed import register_deployed
from databuild_dagster.bindings.instance import engine_for
from databuild_dagster.engine import Engine
from databuild_dagster.model.commands import DEFAULT_TTL_SECONDS, CancelWants, CreateWants
from databuild_dagster.model.refs import PartitionRef
from databuild_dagster.spark import SparkSettings, open_session
from databuild_dagster.store.queries import WantView

#: Sessions of this process by settings: opening one costs seconds, and a process that hosts many Dagster runs
#: asks often.
_sessions: dict[tuple[int, str], Any] = {}
_sessions_lock = Lock()

Refs = Iterable[PartitionRef | str]


class DatabuildSpark(LazyPySparkResource):
    """The Spark session of a code location, opened when it is first needed.

    `shared` is a local Spark server that all processes of the Dagster instance use; `classic` a JVM per
    process.
    """

    mode: Literal["shared", "classic"] = Field(default="shared", description="How processes come to their session.")
    spark_config: dict[str, Any] = Field(default_factory=dict, description="Spark's own settings, flat or nested.")
    home: str | None = Field(
        default=None, description="Whose server is shared; by default that of the Dagster instance."
    )
    app_name: str = Field(default="databuild", description="How Spark's UI names us.")

    _instance_home: str | None = PrivateAttr(default=None)

    def setup_for_execution(self, context: InitResourceContext) -> None:
        # An ephemeral instance's directory ends with it; a server should not be started for every test.
        if context.instance is not None and not context.instance.is_ephemeral:
            self._instance_home = context.instance.root_directory

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = _session_for(self.settings())

    def forget_session(self) -> None:
        """The session was lost; who asks next gets another one."""
        self._spark_session = None
        _forget(self.settings())

    def settings(self) -> SparkSettings:
        """What the session is opened with."""
        return SparkSettings(
            mode=self.mode,
            config={str(key): _text(value) for key, value in _flat(self.spark_config)},
            app_name=self.app_name,
            home=self.home or self._instance_home,
        )


class Wants(ConfigurableResource[Any]):
    """Wanting refs, for sensors and schedules: what is wanted gets built, with everything it needs."""

    location: str = Field(default="", description="The code location whose assets are wanted.")

    _instance: DagsterInstance | None = PrivateAttr(default=None)

    def setup_for_execution(self, context: InitResourceContext) -> None:
        self._instance = context.instance

    def create(
        self,
        refs: Refs,
        *,
        comment: str = "",
        priority: int = 0,
        ttl_seconds: float | None = DEFAULT_TTL_SECONDS,
        source: str = "sensor",
        command_id: str | None = None,
    ) -> str:
        """Want each ref; returns the request's id. Raises a subclass of `Refused`, with nothing recorded.

        The same `command_id` again gives the same request and wants nothing new.
        """
        engine = self._engine()
        outcome = engine.handle(
            CreateWants(
                wants=tuple((str(ref),) for ref in refs),
                source=source,
                comment=comment,
                priority=priority,
                ttl_seconds=ttl_seconds,
            ),
            command_id=command_id,
            actor=source,
        )
        assert outcome.request_id is not None
        return outcome.request_id

    def cancel(self, *ids: str, reason: str = "", terminate: bool = False) -> None:
        """Take wants back, by want id or request id."""
        self._engine().handle(CancelWants(ids=ids, reason=reason, terminate=terminate), actor="sensor")

    def status(self, name: str) -> Sequence[WantView]:
        """The wants of a request, or one want."""
        return self._engine().queries.wants_named(name)

    def _engine(self) -> Engine:
        assert self._instance is not None, "Dagster sets the resource up before it is used"
        engine = engine_for(self._instance)
        register_deployed(engine, self.location)
        return engine


def _session_for(settings: SparkSettings) -> Any:
    with _sessions_lock:
        key = (os.getpid(), repr(settings))
        if key not in _sessions:
            _sessions[key] = open_session(settings)
        return _sessions[key]


def close_sessions() -> None:
    """Close this process's sessions: once their server is stopped, closing them takes long and fails."""
    with _sessions_lock:
        while _sessions:
            _sessions.popitem()[1].stop()


def _forget(settings: SparkSettings) -> None:
    with _sessions_lock:
        _sessions.pop((os.getpid(), repr(settings)), None)


def _flat(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{name}.")
        else:
            yield name, value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
