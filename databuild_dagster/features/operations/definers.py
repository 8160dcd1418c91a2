"""The job whose runs are executors of operations, and the sensor that launches them, in the definitions of a code location."""

from __future__ import annotations

from typing import Final

from databuild_dagster.bindings.authoring.definers import Definer
from databuild_dagster.features.operations.executor_runs import operation_job, operations_sensor

DEFINERS: Final = (
    Definer(
        jobs=lambda deployment: [operation_job()],
        sensors=lambda deployment: [operations_sensor(deployment, interval_seconds=deployment.interval_seconds)],
    ),
)
