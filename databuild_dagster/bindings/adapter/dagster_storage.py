# ruff: noqa: F401
"""Names of Dagster's storages and workspaces that it does not promise; see `dagster_private`."""

from typing import Any, Final

import dagster
from dagster import DagsterInstance, DagsterRun
from sqlalchemy import func, select

from databuild_dagster.bindings.adapter.dagster_private import DagsterDiffers

try:
    from dagster._cli.workspace.cli_target import workspace_opts_to_load_target
    from dagster._core.launcher import CheckRunHealthResult, WorkerStatus
    from dagster._core.remote_origin import GrpcServerCodeLocationOrigin
    from dagster._core.run_coordinator.queued_run_coordinator import RunQueueConfig
    from dagster._core.storage.event_log.base import EventLogStorage
    from dagster._core.storage.event_log.schema import DynamicPartitionsTable, SqlEventLogStorageTable
    from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
    from dagster._core.storage.event_log.sqlite import sqlite_event_log
    from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
    from dagster._core.storage.runs import InMemoryRunStorage, SqliteRunStorage, SqlRunStorage
    from dagster._core.storage.runs.schema import RunsTable
    from dagster._core.storage.runs.sqlite import sqlite_run_storage
    from dagster._grpc.utils import get_loadable_targets
    from dagster._serdes import serialize_value
    from dagster_shared.cli import WorkspaceOpts
except ImportError as error:
    raise DagsterDiffers(version=dagster.__version__, why=str(error).partition(" (")[0]) from error

#: In place of the id of a backfill.
_NO_BACKFILL: Final = "databuild"


def leave_out_of_run_list(instance: DagsterInstance, run_id: str) -> None:
    """Make Dagster's list of runs show a run only under "Show runs within backfills"; it counts to no tab of the list.

    The list leaves out the runs that have a backfill in this column. The tag of a backfill is left out: the page of the run
    would link to a backfill that does not exist. In a storage that is not migrated, the list shows the run.
    """
    storage = instance.run_storage
    if isinstance(storage, SqlRunStorage) and storage.has_backfill_id_column():
        with storage.connect() as connection:
            connection.execute(RunsTable.update().where(RunsTable.c.run_id == run_id).values(backfill_id=_NO_BACKFILL))


def n_dynamic_partitions(instance: DagsterInstance, name: str) -> int:
    """The number of keys of dynamic partitions, by SQL if the storage has it."""
    storage = instance.event_log_storage
    if not isinstance(storage, SqlEventLogStorage) or not storage.has_table(DynamicPartitionsTable.name):
        return len(instance.get_dynamic_partitions(name))
    query = select(func.count()).where(DynamicPartitionsTable.c.partitions_def_name == name)
    with storage.index_connection() as connection:
        return int(connection.execute(query).scalar_one())


def target_assets_alone(instance: DagsterInstance, run: DagsterRun) -> None:
    """Let a run select its assets without naming their checks, which it executes all the same if it names all of them."""
    storage = instance.run_storage
    if isinstance(storage, SqlRunStorage):
        body = serialize_value(run._replace(asset_check_selection=None))
        with storage.connect() as connection:
            connection.execute(RunsTable.update().where(RunsTable.c.run_id == run.run_id).values(run_body=body))


def modules_that_make_sqlite_engines() -> tuple[Any, ...]:
    """Dagster's modules that call their `create_engine` for every read and write of an SQLite file."""
    return sqlite_event_log, sqlite_run_storage
