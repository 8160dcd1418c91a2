"""The only place that knows PySpark: sessions, and instances as frames. Knows no Dagster.

Importing this package does not import PySpark: that costs half a second, which a command that only asks the
store should not pay. The functions that need it import it."""

from databuild_dagster.spark.errors import (
    BadPartitionKeyColumn,
    BadSetting,
    BadSparkUrl,
    FixedSetting,
    JavaMissing,
    KeyColumnTaken,
    NoSchema,
    NotAFrame,
    RemoteUnreachable,
    SchemaChanged,
    SchemasDiffer,
    ServerFailed,
    SessionModesMixed,
    SparkUnreachable,
    StrayPartitionKeys,
    TooManyServers,
    UnsupportedColumn,
)
from databuild_dagster.spark.failures import explain_failure, is_lost, is_of_the_machine, is_transient
from databuild_dagster.spark.frames import frame_type, no_rows, read_instances, read_pandas, united
from databuild_dagster.spark.java import Java, find_java
from databuild_dagster.spark.keyed import read_keyed, read_keyed_pandas, refuse_taken, with_key
from databuild_dagster.spark.orphans import interrupt_orphans, session_address
from databuild_dagster.spark.progress import OnProgress, watch_progress
from databuild_dagster.spark.schemas import Columns, check_schema
from databuild_dagster.spark.server import (
    ServerStatus,
    check_reachable,
    server_status,
    server_statuses,
    stop_server,
)
from databuild_dagster.spark.session import (
    SparkMode,
    SparkSettings,
    abandon,
    interrupt,
    open_session,
    spark_ui_url,
    tag_operations,
)
from databuild_dagster.spark.staging import (
    PARTITION_KEY,
    Staged,
    files_wanted,
    in_threads,
    is_large,
    publish,
    read_staged,
    stage_batch,
    stage_instance,
    staging,
    write_instance,
)
from databuild_dagster.spark.startable import check_startable
from databuild_dagster.spark.temporary import temporary, temporary_home

__all__ = [
    "PARTITION_KEY",
    "BadPartitionKeyColumn",
    "BadSetting",
    "BadSparkUrl",
    "Columns",
    "FixedSetting",
    "Java",
    "JavaMissing",
    "KeyColumnTaken",
    "NoSchema",
    "NotAFrame",
    "OnProgress",
    "RemoteUnreachable",
    "SchemaChanged",
    "SchemasDiffer",
    "ServerFailed",
    "ServerStatus",
    "SessionModesMixed",
    "SparkMode",
    "SparkSettings",
    "SparkUnreachable",
    "Staged",
    "StrayPartitionKeys",
    "TooManyServers",
    "UnsupportedColumn",
    "abandon",
    "check_reachable",
    "check_schema",
    "check_startable",
    "explain_failure",
    "files_wanted",
    "find_java",
    "frame_type",
    "in_threads",
    "interrupt",
    "interrupt_orphans",
    "is_large",
    "is_lost",
    "is_of_the_machine",
    "is_transient",
    "no_rows",
    "open_session",
    "publish",
    "read_instances",
    "read_keyed",
    "read_keyed_pandas",
    "read_pandas",
    "read_staged",
    "refuse_taken",
    "server_status",
    "server_statuses",
    "session_address",
    "spark_ui_url",
    "stage_batch",
    "stage_instance",
    "staging",
    "stop_server",
    "tag_operations",
    "temporary",
    "temporary_home",
    "united",
    "watch_progress",
    "with_key",
    "write_instance",
]
