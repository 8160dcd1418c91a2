"""The settings of a session: a mode, an address, and the user's Spark settings over databuild's defaults.

There are two kinds of settings. Each session sets the settings that a session can change (most of `spark.sql.*`). Fixed
settings are set when a server starts; their fingerprint says which server a session may use. This package does not start a
remote Spark, so there only the first kind is set, and a user's fixed setting is an error.

The url `sc://…` is a Spark Connect server, whose client has no JVM; every other url is a master, the cluster of a session
in a JVM of this process.
"""

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from databuild_dagster.model import redaction
from databuild_dagster.spark.errors import BadSetting, BadSparkUrl, FixedSetting
from databuild_dagster.spark.installed import sail_version

#: Parameters of a Connect url that are no secrets; any other is sent as a header.
_OPEN_PARAMETERS: Final = frozenset({"user_id", "user_agent", "session_id", "use_ssl", "grpc_max_message_size"})

#: Minutes without use after which a local server ends.
IDLE_MINUTES: Final = 30.0

#: Spark Connect's port where the url names none.
CONNECT_PORT: Final = 15002

_HOST_AND_PORT = re.compile(r"^(?P<host>\[[0-9A-Fa-f:.]+\]|[^:/\s\[\]]+)(?::(?P<port>\d{1,5}))?$")
LOOPBACK = "127.0.0.1"
_HERE = frozenset({LOOPBACK, "localhost", "::1"})


class SparkMode(StrEnum):
    """The kind of a session."""

    #: A client of a local Spark server that all processes of a home use.
    SHARED = "shared"
    #: The same with Sail in place of Spark's own server: it needs no Java, and starts in a second.
    SAIL = "sail"
    #: A JVM inside the process, which ends with it.
    CLASSIC = "classic"
    #: A Spark that this package does not start: a Connect server, or a cluster with a JVM inside the process as driver.
    REMOTE = "remote"


@dataclass(frozen=True, slots=True)
class RemoteSpark:
    """A Spark that this package does not start."""

    url: str
    is_connect: bool
    #: Spark listens at any of these addresses; empty if only Spark itself can find them (`yarn`).
    endpoints: tuple[tuple[str, int], ...] = ()
    #: The parameters of a Connect url: token, user_id, use_ssl, and the like.
    parameters: tuple[tuple[str, str], ...] = ()

    @property
    def shown(self) -> str:
        """The url for messages, without the token."""
        return self.url.partition("/;")[0] if self.is_connect else self.url

    @property
    def is_plain_connect(self) -> bool:
        """Whether it is a Connect server that is surely asked without TLS, which a token may bring."""
        given = dict(self.parameters)
        return self.is_connect and given.get("use_ssl", "false").lower() == "false" and "token" not in given

    def __repr__(self) -> str:
        return f"RemoteSpark({redaction.without_secrets(self.shown)!r})"


@dataclass(frozen=True)
class SparkSettings:
    """How to open a session. `config` overrides the defaults; `home` is the DAGSTER_HOME of the server.

    `url` is for `remote` alone. `run_config` are the settings of a Dagster run, which override all other settings.
    """

    mode: SparkMode | str = SparkMode.SHARED
    app_name: str = "databuild"
    config: Mapping[str, str] = field(default_factory=dict)
    home: str | Path | None = None
    master: str = "local[*]"
    url: str | None = None
    run_config: Mapping[str, str] = field(default_factory=dict)
    #: A local server that no process uses ends after this time; 0: never. The settings of its start count.
    idle_minutes: float = IDLE_MINUTES

    def __post_init__(self) -> None:
        redaction.keep_secrets_of({**self.config, **self.run_config})

    def __repr__(self) -> str:
        return redaction.repr_without_secrets(self)

    def check(self) -> None:
        """Check the settings without Spark. Raises `BadSparkUrl`, `BadSetting`, `FixedSetting`."""
        if self.url is not None and SparkMode(self.mode) is not SparkMode.REMOTE:
            raise BadSparkUrl(url=self.url, why=f"mode={str(self.mode)!r} has no url")
        remote = self.remote
        for key in (*self.config, *self.run_config):
            if not key.startswith("spark."):
                raise BadSetting(what=repr(key), why="the names of Spark's settings begin with 'spark.'")
        for key in self.run_config:
            if not is_set_by_session(key):
                raise FixedSetting(setting=key, what="one Dagster run")
        if self.is_sail or (remote is not None and remote.is_connect):
            for key in self.config:
                if not is_set_by_session(key):
                    raise FixedSetting(setting=key, what=f"a session of {remote.shown if remote else 'Sail'}")

    @property
    def is_sail(self) -> bool:
        """Whether the local server is Sail."""
        return SparkMode(self.mode) is SparkMode.SAIL

    @property
    def remote(self) -> RemoteSpark | None:
        """The parsed url, None in the other modes. Raises `BadSparkUrl`."""
        return parse_url(self.url) if SparkMode(self.mode) is SparkMode.REMOTE else None

    @property
    def is_on_this_machine(self) -> bool:
        """Whether driver and executors run here, so that no other machine connects to them."""
        remote = self.remote
        if remote is None or remote.url.startswith("local"):
            return True
        return bool(remote.endpoints) and all(host in _HERE for host, _ in remote.endpoints)

    @property
    def state_dir(self) -> Path:
        """The folder of the server's files: below the home, or without a home a temporary folder of this user."""
        if self.home is not None:
            return Path(self.home).absolute() / "spark"
        return Path(tempfile.gettempdir()) / f"databuild-spark-{os.getuid()}"

    def all_config(self) -> dict[str, str]:
        """The defaults, overridden by the user's settings."""
        ours = {**DEFAULTS, **ON_THIS_MACHINE} if self.is_on_this_machine else DEFAULTS
        if self.mode == SparkMode.REMOTE:
            # The operators of a cluster decide its fixed settings, but not what its driver draws among the lines of a command.
            kept = ("spark.ui.showConsoleProgress", *ON_THIS_MACHINE)
            ours = {key: value for key, value in ours.items() if is_set_by_session(key) or key in kept}
        return {**ours, **{key: str(value) for key, value in self.config.items()}}

    def session_config(self) -> dict[str, str]:
        """The settings that each session sets for itself."""
        by_session = {key: value for key, value in self.all_config().items() if is_set_by_session(key)}
        return {**by_session, **{key: str(value) for key, value in self.run_config.items()}}

    def fingerprint(self) -> str:
        """A text that two settings share exactly if the same server can serve both; UDFs run in the server's Python.

        Sail has no settings that are fixed when it starts. Raises `SailMissing`.
        """
        import pyspark

        if self.is_sail:
            facts: list[object] = [SparkMode.SAIL, sail_version(), pyspark.__version__, interpreter(sys.executable)]
        else:
            fixed = sorted(setting for setting in self.all_config().items() if not is_set_by_session(setting[0]))
            facts = [pyspark.__version__, self.master, interpreter(worker_python()), fixed]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


#: Settings that differ from Spark's own, with the reason.
DEFAULTS: Mapping[str, str] = {
    # One machine: 200 shuffle partitions are 200 tiny tasks. Adaptive execution merges the remaining ones.
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.enabled": "true",
    # Days are UTC days, in any time zone of the machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Above it Spark starts a job to list the given files (1,000 files: 2.6 s instead of 0.2 s).
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # The old default, INT96, has no statistics and no other writer left.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "snappy",
    # No reader looks into staging folders, so a second round of renames protects nothing.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.driver.memory": "2g",
    # On a free port; it shows jobs and cannot stop them.
    "spark.ui.enabled": "true",
    "spark.ui.killEnabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    # The server forgets a session after an hour of silence; an evening's `dagster dev` is longer.
    "spark.connect.session.manager.defaultSessionTimeout": "24h",
}

#: Settings where no other machine connects.
ON_THIS_MACHINE: Mapping[str, str] = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
}

#: Settings of `spark.sql.*` that are fixed at the start (the common ones of Spark's StaticSQLConf).
_FIXED_SQL = (
    "spark.sql.warehouse.dir",
    "spark.sql.catalogImplementation",
    "spark.sql.extensions",
    "spark.sql.globalTempDatabase",
    "spark.sql.queryExecutionListeners",
    "spark.sql.streaming.streamingQueryListeners",
    "spark.sql.codegen.cache.maxEntries",
    "spark.sql.filesourceTableRelationCacheSize",
    "spark.sql.broadcastExchange.maxThreadThreshold",
    "spark.sql.subquery.maxThreadThreshold",
    "spark.sql.ui.",
    "spark.sql.streaming.ui.",
    "spark.sql.hive.metastore.",
    "spark.sql.event.truncate.length",
    "spark.sql.sources.disabledJdbcConnProviderList",
)


def is_set_by_session(key: str) -> bool:
    """Whether each session may change a setting, which else is fixed when Spark starts."""
    return key.startswith("spark.sql.") and not key.startswith(_FIXED_SQL)


def name_driver(address: str, environment: MutableMapping[str, str]) -> None:
    """Name a cluster's driver by its address, unless the user names it: workers need not know the name of a container."""
    if ":" not in address and "SPARK_LOCAL_IP" not in environment:
        environment.setdefault("SPARK_LOCAL_HOSTNAME", address)


def worker_python() -> str:
    """The Python that runs UDFs: the Python of this process, unless PYSPARK_PYTHON is set."""
    return os.environ.get("PYSPARK_PYTHON") or sys.executable


def interpreter(python: str) -> tuple[str, str]:
    """The virtual environment, "" if there is none, and the program: the same for `python`, `python3` and links to them."""
    found = shutil.which(python) or python
    folder = Path(found).absolute().parent
    environment = next((place for place in (folder.parent, folder) if (place / "pyvenv.cfg").exists()), None)
    return os.path.realpath(environment) if environment else "", os.path.realpath(found)


def parse_url(url: str | None) -> RemoteSpark:
    """Parse a url. Raises `BadSparkUrl`, whose message holds no token."""
    if not url or not url.strip():
        raise BadSparkUrl(url=url or "", why="mode='remote' needs a url")
    url = url.strip()
    scheme, separator, rest = url.partition("://")
    if url == "yarn" or re.fullmatch(r"local(\[[^\]]*\]|-cluster\[[^\]]*\])?", url):
        return RemoteSpark(url, is_connect=False)
    if not separator:
        raise BadSparkUrl(url=url.partition(";")[0], why="it has no scheme such as sc:// or spark://")
    match scheme:
        case "sc":
            return _connect(url, rest)
        case "spark":
            hosts = tuple(_endpoint(host, None, url) for host in rest.rstrip("/").split(","))
            return RemoteSpark(url, is_connect=False, endpoints=hosts)
        case "k8s":
            scheme, separator, api = rest.rpartition("://")
            place = api.partition("/")[0]
            return RemoteSpark(
                url, is_connect=False, endpoints=(_endpoint(place, 80 if scheme == "http" else 443, url),)
            )
        case _:
            raise BadSparkUrl(url=url.partition(";")[0], why=f"{scheme}:// is not a scheme of Spark's")


def _connect(url: str, rest: str) -> RemoteSpark:
    place, _, parameters = rest.partition("/")
    shown = f"sc://{place}"
    if parameters and not parameters.startswith(";"):
        raise BadSparkUrl(url=shown, why="after the port only /;key=value;key=value may follow")
    pairs = [parameter.partition("=") for parameter in parameters.split(";") if parameter]
    if not all(key and separator for key, separator, _ in pairs):
        raise BadSparkUrl(url=shown, why="its parameters are not of the form key=value")
    redaction.keep_secret(*(value for key, _, value in pairs if key not in _OPEN_PARAMETERS))
    return RemoteSpark(
        url,
        is_connect=True,
        endpoints=(_endpoint(place, CONNECT_PORT, shown),),
        parameters=tuple((key, value) for key, _, value in pairs),
    )


def _endpoint(place: str, default_port: int | None, url: str) -> tuple[str, int]:
    _, at, host = place.rpartition("@")
    # Before an @ there may be a password.
    place = f"{redaction.HIDDEN}@{host}" if at else host
    match = _HOST_AND_PORT.match(place)
    if match is None:
        raise BadSparkUrl(url=url, why=f"{place!r} is not host:port")
    port = int(match["port"]) if match["port"] else default_port
    if port is None or not 0 < port < 65536:
        raise BadSparkUrl(url=url, why=f"{place!r} has no port" if port is None else f"{port} is not a port")
    return match["host"].strip("[]"), port
