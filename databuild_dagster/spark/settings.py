"""What a session is opened with: a mode, a place, and Spark's own settings over ours.

Settings part in two. What a session can change (most of `spark.sql.*`) each session gets for itself, on
whatever server. The rest is fixed when a server starts; its fingerprint says which server a session may use.
A remote Spark is started by others: there ours only say what a session can, and a user's that are fixed are
an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from databuild_dagster.spark.errors import BadSetting, BadSparkUrl, FixedSetting
from databuild_dagster.spark.remote import RemoteSpark, parse_url

LOOPBACK = "127.0.0.1"
_HERE = frozenset({LOOPBACK, "localhost", "::1"})


class SparkMode(StrEnum):
    """How a process comes to its session."""

    #: A local Spark server that all processes of one home use.
    SHARED = "shared"
    #: A JVM of the process's own, which ends with it.
    CLASSIC = "classic"
    #: A Spark that others run: a Spark Connect server, or a cluster with a JVM of the process's own as driver.
    REMOTE = "remote"


@dataclass(frozen=True)
class SparkSettings:
    """How to open a session. `config` wins over our defaults; `home` is DAGSTER_HOME, whose server it is.

    `url` is for `remote` alone. `run_config` is what one Dagster run sets for a session of its own, over all else.
    """

    mode: SparkMode | str = SparkMode.SHARED
    app_name: str = "databuild"
    config: Mapping[str, str] = field(default_factory=dict)
    home: str | Path | None = None
    master: str = "local[*]"
    url: str | None = None
    run_config: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raise `BadSparkUrl`, `BadSetting` or `FixedSetting` for what can be known wrong before Spark is asked."""
        if self.url is not None and SparkMode(self.mode) is not SparkMode.REMOTE:
            raise BadSparkUrl(url=self.url, why=f"mode={str(self.mode)!r} has no url")
        remote = self.remote
        for key in (*self.config, *self.run_config):
            if not key.startswith("spark."):
                raise BadSetting(what=repr(key), why="the names of Spark's settings begin with 'spark.'")
        for key in self.run_config:
            if not _set_by_session(key):
                raise FixedSetting(setting=key, what="one Dagster run")
        if remote is not None and remote.is_connect:
            for key in self.config:
                if not _set_by_session(key):
                    raise FixedSetting(setting=key, what=f"a session of {remote.shown}")

    @property
    def remote(self) -> RemoteSpark | None:
        """What the url names, None in the other modes. Raises `BadSparkUrl`."""
        return parse_url(self.url) if SparkMode(self.mode) is SparkMode.REMOTE else None

    @property
    def is_on_this_machine(self) -> bool:
        """Whether driver and executors run here, so that nothing outside has any business with them."""
        remote = self.remote
        if remote is None or remote.url.startswith("local"):
            return True
        return bool(remote.endpoints) and all(host in _HERE for host, _ in remote.endpoints)

    @property
    def state_dir(self) -> Path:
        """Where the server's files lie: below the home, or without one in a place of this user."""
        if self.home is not None:
            return Path(self.home).absolute() / "spark"
        return Path(tempfile.gettempdir()) / f"databuild-spark-{os.getuid()}"

    def all_config(self) -> dict[str, str]:
        """Our defaults under the user's settings."""
        ours = {**DEFAULTS, **ON_THIS_MACHINE} if self.is_on_this_machine else DEFAULTS
        if self.mode == SparkMode.REMOTE:
            # How a cluster is set up is for those to say who run it.
            ours = {key: value for key, value in ours.items() if _set_by_session(key) or key in ON_THIS_MACHINE}
        return {**ours, **{key: str(value) for key, value in self.config.items()}}

    def session_config(self) -> dict[str, str]:
        """What each session sets for itself."""
        by_session = {key: value for key, value in self.all_config().items() if _set_by_session(key)}
        return {**by_session, **{key: str(value) for key, value in self.run_config.items()}}

    def server_config(self) -> dict[str, str]:
        """What is fixed when a server starts."""
        return {key: value for key, value in self.all_config().items() if not _set_by_session(key)}

    def fingerprint(self) -> str:
        """The same for two settings exactly if one server can serve both; UDFs run in the server's Python."""
        import pyspark

        facts = [pyspark.__version__, self.master, worker_python(), sorted(self.server_config().items())]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


#: Why each is not as Spark has it.
DEFAULTS: Mapping[str, str] = {
    # One machine: 200 shuffle partitions are 200 tiny tasks. Adaptive execution joins what is left.
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.enabled": "true",
    # Days are UTC days, wherever the machine stands.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Above it Spark starts a job to look at the files it was told of (1,000 files: 2.6 s, and not 0.2 s).
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # The old default, INT96, has no statistics and no other writer left.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "snappy",
    # Staging folders are ours alone and are read by nobody, so a second round of renames protects nothing.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.driver.memory": "2g",
    # On a port that is free; it shows what runs and lets nobody stop it.
    "spark.ui.enabled": "true",
    "spark.ui.killEnabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    # The server forgets a session after an hour of silence; an evening's `dagster dev` is longer.
    "spark.connect.session.manager.defaultSessionTimeout": "24h",
}

#: Where nothing outside this machine has any business.
ON_THIS_MACHINE: Mapping[str, str] = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
}

#: Settings that are `spark.sql.*` and yet fixed at the start (Spark's StaticSQLConf, where people use it).
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


def _set_by_session(key: str) -> bool:
    return key.startswith("spark.sql.") and not key.startswith(_FIXED_SQL)


def worker_python() -> str:
    """The Python that runs UDFs: ours, unless the user has said otherwise."""
    return os.environ.get("PYSPARK_PYTHON") or sys.executable
