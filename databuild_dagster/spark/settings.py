"""What a session is opened with: a mode, a place, and Spark's own settings over ours.

Settings part in two. What a session can change (most of `spark.sql.*`) each session gets for itself, on
whatever server. The rest is fixed when a server starts; its fingerprint says which server a session may use.
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

LOOPBACK = "127.0.0.1"


class SparkMode(StrEnum):
    """How a process comes to its session."""

    #: A local Spark server that all processes of one home use.
    SHARED = "shared"
    #: A JVM of the process's own, which ends with it.
    CLASSIC = "classic"


@dataclass(frozen=True)
class SparkSettings:
    """How to open a session. `config` wins over our defaults; `home` is DAGSTER_HOME, whose server it is."""

    mode: SparkMode | str = SparkMode.SHARED
    app_name: str = "databuild"
    config: Mapping[str, str] = field(default_factory=dict)
    home: str | Path | None = None
    master: str = "local[*]"

    @property
    def state_dir(self) -> Path:
        """Where the server's files lie: below the home, or without one in a place of this user."""
        if self.home is not None:
            return Path(self.home).absolute() / "spark"
        return Path(tempfile.gettempdir()) / f"databuild-spark-{os.getuid()}"

    def all_config(self) -> dict[str, str]:
        """Our defaults under the user's settings."""
        return {**DEFAULTS, **{key: str(value) for key, value in self.config.items()}}

    def session_config(self) -> dict[str, str]:
        """What each session sets for itself."""
        return {key: value for key, value in self.all_config().items() if _set_by_session(key)}

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
    # Nothing outside this machine has any business here.
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    # The server forgets a session after an hour of silence; an evening's `dagster dev` is longer.
    "spark.connect.session.manager.defaultSessionTimeout": "24h",
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
