# ruff: noqa: F401
"""Names of Dagster's storages and workspaces that it does not promise; see `dagster_private`."""

from typing import Any

import dagster

from databuild_dagster.bindings.adapter.errors import DagsterDiffers

try:
    from dagster._cli.workspace.cli_target import workspace_opts_to_load_target
    from dagster._core.remote_origin import GrpcServerCodeLocationOrigin
    from dagster._core.run_coordinator.queued_run_coordinator import RunQueueConfig
    from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
    from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
    from dagster._core.storage.event_log.sqlite import sqlite_event_log
    from dagster._core.storage.runs import InMemoryRunStorage, SqliteRunStorage
    from dagster._core.storage.runs.sqlite import sqlite_run_storage
    from dagster._grpc.utils import get_loadable_targets
    from dagster_shared.cli import WorkspaceOpts
except ImportError as error:
    raise DagsterDiffers(version=dagster.__version__, why=str(error).partition(" (")[0]) from error


def modules_that_make_sqlite_engines() -> tuple[Any, ...]:
    """Dagster's modules that call their `create_engine` for every read and write of an SQLite file."""
    return sqlite_event_log, sqlite_run_storage
