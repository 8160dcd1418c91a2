"""The one door for change, the orchestrator's tick, and leases. Knows the store; not Dagster, not Spark."""

from databuild_dagster.engine.engine import Engine, Outcome
from databuild_dagster.engine.holders import surely_gone, this_process
from databuild_dagster.engine.ids import new_id
from databuild_dagster.engine.judge import HEARTBEAT_SECONDS, LEASE_SECONDS, Judge
from databuild_dagster.engine.observing import observe
from databuild_dagster.engine.ports import (
    DagsterRunState,
    DagsterRunStatus,
    Foreign,
    Launcher,
    LaunchOrder,
    Observation,
)
from databuild_dagster.engine.standstill import launches_not_begun
from databuild_dagster.engine.tick import TickLimits, TickReport, tick
from databuild_dagster.engine.who import this_user
from databuild_dagster.engine.who_asked import who_asked

__all__ = [
    "HEARTBEAT_SECONDS",
    "LEASE_SECONDS",
    "DagsterRunState",
    "DagsterRunStatus",
    "Engine",
    "Foreign",
    "Judge",
    "LaunchOrder",
    "Launcher",
    "Observation",
    "Outcome",
    "TickLimits",
    "TickReport",
    "launches_not_begun",
    "new_id",
    "observe",
    "surely_gone",
    "this_process",
    "this_user",
    "tick",
    "who_asked",
]
