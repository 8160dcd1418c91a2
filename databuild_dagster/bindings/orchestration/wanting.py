"""Schedules and sensors that want refs instead of starting runs; the orchestrator does what follows."""

import math
from collections.abc import Callable, Sequence
from datetime import datetime

from dagster import (
    DefaultScheduleStatus,
    DefaultSensorStatus,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
)

from databuild_dagster.bindings.adapter.dagster_private import IMPLICIT_ASSET_JOB_NAME, is_dry_run
from databuild_dagster.bindings.adapter.resource_keys import WANTS
from databuild_dagster.bindings.reading.spark_resource import Refs, Wants
from databuild_dagster.model.commands import DEFAULT_TTL_SECONDS
from databuild_dagster.model.errors import InvalidRequest


def want_schedule(
    *,
    name: str,
    cron_schedule: str | Sequence[str],
    refs: Callable[[ScheduleEvaluationContext], Refs],
    comment: str = "",
    priority: int = 0,
    ttl_seconds: float | None = DEFAULT_TTL_SECONDS,
    sla_seconds: float | None = None,
    data_timestamp: Callable[[ScheduleEvaluationContext], datetime | None] | None = None,
    execution_timezone: str | None = None,
    default_status: DefaultScheduleStatus = DefaultScheduleStatus.STOPPED,
    description: str | None = None,
) -> ScheduleDefinition:
    """A schedule that wants `refs(context)` instead of starting runs; evaluated twice, it wants once.

    The SLA counts from `data_timestamp(context)`, of when the data is, or else from the evaluation. Raises
    `InvalidRequest` for a time to live or an SLA that is none.
    """
    _check_seconds(f"schedule {name!r}", ttl_seconds=ttl_seconds, sla_seconds=sla_seconds)

    def evaluate(context: ScheduleEvaluationContext) -> SkipReason:
        wanted = [str(ref) for ref in refs(context)]
        if not wanted:
            return SkipReason("Nothing to want this time.")
        if is_dry_run(context):
            return SkipReason(f"Only a test: it would want {_named(wanted)}.")
        wants: Wants = getattr(context.resources, WANTS)
        request = wants.create(
            wanted,
            comment=comment or f"schedule {name}",
            priority=priority,
            ttl_seconds=ttl_seconds,
            sla_seconds=sla_seconds,
            data_timestamp=None if data_timestamp is None else data_timestamp(context),
            source="schedule",
            source_id=name,
            command_id=f"schedule:{name}:{context.scheduled_execution_time.isoformat()}",
        )
        return _told(wanted, request)

    return ScheduleDefinition(
        name=name,
        cron_schedule=cron_schedule,
        # Dagster wants a target even where no run is requested; this job exists in every location with
        # assets.
        job_name=IMPLICIT_ASSET_JOB_NAME,
        execution_fn=evaluate,
        required_resource_keys={WANTS},
        execution_timezone=execution_timezone,
        default_status=default_status,
        description=description,
    )


def want_sensor(
    *,
    name: str,
    refs: Callable[[SensorEvaluationContext], Refs],
    minimum_interval_seconds: int | None = None,
    comment: str = "",
    priority: int = 0,
    ttl_seconds: float | None = DEFAULT_TTL_SECONDS,
    sla_seconds: float | None = None,
    data_timestamp: Callable[[SensorEvaluationContext], datetime | None] | None = None,
    default_status: DefaultSensorStatus = DefaultSensorStatus.STOPPED,
    description: str | None = None,
) -> SensorDefinition:
    """A sensor that wants `refs(context)`; the context's cursor says what is new since the last time.

    The SLA counts as for a schedule. Raises `InvalidRequest` for a time to live or an SLA that is none.
    """
    _check_seconds(f"sensor {name!r}", ttl_seconds=ttl_seconds, sla_seconds=sla_seconds)

    def evaluate(context: SensorEvaluationContext) -> SkipReason:
        wanted = [str(ref) for ref in refs(context)]
        if not wanted:
            return SkipReason("Nothing to want this time.")
        if is_dry_run(context):
            return SkipReason(f"Only a test: it would want {_named(wanted)}.")
        wants: Wants = getattr(context.resources, WANTS)
        request = wants.create(
            wanted,
            comment=comment or f"sensor {name}",
            priority=priority,
            ttl_seconds=ttl_seconds,
            sla_seconds=sla_seconds,
            data_timestamp=None if data_timestamp is None else data_timestamp(context),
            source="sensor",
            source_id=name,
        )
        return _told(wanted, request)

    return SensorDefinition(
        name=name,
        evaluation_fn=evaluate,
        required_resource_keys={WANTS},
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        description=description,
    )


def _check_seconds(what: str, **seconds: float | None) -> None:
    """Where the author has written it, and not first at six in the morning."""
    for name, value in seconds.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 < value < math.inf):
            raise InvalidRequest(what=f"{name} of {what}", value=value, why="it must be a positive number of seconds")


def _told(wanted: Sequence[str], request: str) -> SkipReason:
    return SkipReason(f"Wanted {_named(wanted)} (request {request}); the orchestrator builds what is missing.")


def _named(wanted: Sequence[str]) -> str:
    return wanted[0] if len(wanted) == 1 else f"{len(wanted)} refs, {wanted[0]} to {wanted[-1]}"
