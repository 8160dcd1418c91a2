"""Schedules and sensors that create wants instead of starting runs; the orchestrator launches the runs."""

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import dagster as dg

from databuild_dagster.bindings.adapter.dagster_private import IMPLICIT_ASSET_JOB_NAME, is_dry_run
from databuild_dagster.bindings.adapter.keys import WANTS
from databuild_dagster.bindings.reading.wants import Refs, Wants
from databuild_dagster.model.commands import DEFAULT_TTL_SECONDS
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.redaction import errors_without_secrets
from databuild_dagster.model.refs import parse_ref


def want_schedule(
    *,
    name: str,
    cron_schedule: str | Sequence[str],
    refs: Callable[[dg.ScheduleEvaluationContext], Refs],
    comment: str = "",
    priority: int = 0,
    ttl_seconds: float | None = DEFAULT_TTL_SECONDS,
    sla_seconds: float | None = None,
    data_timestamp: Callable[[dg.ScheduleEvaluationContext], datetime | None] | None = None,
    execution_timezone: str | None = None,
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED,
    description: str | None = None,
) -> dg.ScheduleDefinition:
    """A schedule that wants `refs(context)` instead of starting runs; a repeated evaluation creates the wants once.

    A ref may be a range, `sales@2024-01-01..2024-01-31` (rule 2.5).

    The SLA counts from `data_timestamp(context)`, the time of the data, or else from the evaluation. Raises
    `InvalidRequest` for a time to live or an SLA that is not a positive number of seconds.
    """
    options = {"priority": priority, "ttl_seconds": ttl_seconds, "sla_seconds": sla_seconds}
    evaluate = _evaluation("schedule", name, refs, data_timestamp, comment, **options)
    return dg.ScheduleDefinition(
        name=name,
        cron_schedule=cron_schedule,
        # Dagster requires a target even without run requests; every location with assets has this job.
        job_name=IMPLICIT_ASSET_JOB_NAME,
        execution_fn=lambda context: evaluate(
            context, f"schedule:{name}:{context.scheduled_execution_time.isoformat()}"
        ),
        required_resource_keys={WANTS},
        execution_timezone=execution_timezone,
        default_status=default_status,
        description=description,
    )


def want_sensor(
    *,
    name: str,
    refs: Callable[[dg.SensorEvaluationContext], Refs],
    minimum_interval_seconds: int | None = None,
    comment: str = "",
    priority: int = 0,
    ttl_seconds: float | None = DEFAULT_TTL_SECONDS,
    sla_seconds: float | None = None,
    data_timestamp: Callable[[dg.SensorEvaluationContext], datetime | None] | None = None,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
    description: str | None = None,
) -> dg.SensorDefinition:
    """A sensor that wants `refs(context)`; the context's cursor tells old refs from new refs.

    The SLA counts as for a schedule. Raises `InvalidRequest` as `want_schedule` does.
    """
    options = {"priority": priority, "ttl_seconds": ttl_seconds, "sla_seconds": sla_seconds}
    evaluate = _evaluation("sensor", name, refs, data_timestamp, comment, **options)
    return dg.SensorDefinition(
        name=name,
        evaluation_fn=lambda context: evaluate(context),
        required_resource_keys={WANTS},
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        description=description,
    )


def _evaluation(
    source: str,
    name: str,
    refs: Callable[[Any], Refs],
    data_timestamp: Callable[[Any], datetime | None] | None,
    comment: str,
    **options: Any,
) -> Callable[..., dg.SkipReason]:
    """The evaluation of a schedule or sensor. Bad seconds are refused here, when the code is loaded."""
    for option in ("ttl_seconds", "sla_seconds"):
        value = options[option]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 < value < math.inf):
            what = f"{option} of {source} {name!r}"
            raise InvalidRequest(what=what, value=value, why="it must be a positive number of seconds")

    @errors_without_secrets()
    def evaluate(context: Any, command_id: str | None = None) -> dg.SkipReason:
        wanted = [parse_ref(ref) for ref in refs(context)]
        if not wanted:
            return dg.SkipReason("Nothing to want this time.")
        named = wanted[0] if len(wanted) == 1 else f"{len(wanted)} refs, {wanted[0]} to {wanted[-1]}"
        if is_dry_run(context):
            return dg.SkipReason(f"Only a test: it would want {named}.")
        wants: Wants = getattr(context.resources, WANTS)
        request = wants.create(
            wanted,
            comment=comment or f"{source} {name}",
            data_timestamp=None if data_timestamp is None else data_timestamp(context),
            source=source,
            source_id=name,
            command_id=command_id,
            **options,
        )
        return dg.SkipReason(f"Wanted {named} (request {request}); the orchestrator builds what is missing.")

    return evaluate
