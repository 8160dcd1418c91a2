"""The only place that knows PySpark: sessions, and instances as frames. Knows no Dagster.

Importing this package does not import PySpark: that costs half a second, which a command that only asks the
store should not pay. The functions that need it import it."""

from databuild_dagster.spark.errors import (
    JavaMissing,
    NoSchema,
    NotAFrame,
    SchemasDiffer,
    ServerFailed,
    SessionModesMixed,
    SparkUnreachable,
    TooManyServers,
    UnsupportedColumn,
)
from databuild_dagster.spark.failures import explain_failure, is_transient
from databuild_dagster.spark.frames import files_wanted, read_instances, read_pandas, write_instance
from databuild_dagster.spark.java import Java, find_java
from databuild_dagster.spark.server import (
    ServerStatus,
    check_reachable,
    server_status,
    server_statuses,
    stop_server,
)
from databuild_dagster.spark.session import SparkMode, SparkSettings, interrupt, open_session, tag_operations

__all__ = [
    "Java",
    "JavaMissing",
    "NoSchema",
    "NotAFrame",
    "SchemasDiffer",
    "ServerFailed",
    "ServerStatus",
    "SessionModesMixed",
    "SparkMode",
    "SparkSettings",
    "SparkUnreachable",
    "TooManyServers",
    "UnsupportedColumn",
    "check_reachable",
    "explain_failure",
    "files_wanted",
    "find_java",
    "interrupt",
    "is_transient",
    "open_session",
    "read_instances",
    "read_pandas",
    "server_status",
    "server_statuses",
    "stop_server",
    "tag_operations",
    "write_instance",
]
