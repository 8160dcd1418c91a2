"""Want a partition, and everything it needs is built once, on Spark, as Dagster runs.

The public names are imported when they are first used: `import databuild_dagster` starts neither Dagster nor
Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from databuild_dagster.bindings.authoring.component import DatabuildComponent
    from databuild_dagster.bindings.authoring.decorator import databuild_asset
    from databuild_dagster.bindings.authoring.definitions import build_definitions
    from databuild_dagster.bindings.authoring.multi_decorator import databuild_multi_asset
    from databuild_dagster.bindings.authoring.translator import DatabuildTranslator
    from databuild_dagster.bindings.building.operation_context import OperationContext
    from databuild_dagster.bindings.building.operations import operation_manager
    from databuild_dagster.bindings.building.provided import BuildIndexArg, CompactArg, ValidateArg
    from databuild_dagster.bindings.declare.boundaries import databuild_boundary
    from databuild_dagster.bindings.declare.build_context import BuildContext
    from databuild_dagster.bindings.declare.lot_parts import ByFile, ByKey
    from databuild_dagster.bindings.declare.outcomes import EMPTY, DepMiss, Transient
    from databuild_dagster.bindings.declare.parameters import InvalidAsset
    from databuild_dagster.bindings.display.alerts import CommandAlert, WebhookAlert
    from databuild_dagster.bindings.display.sla_check import build_sla_checks
    from databuild_dagster.bindings.orchestration.coordinator import DatabuildRunCoordinator
    from databuild_dagster.bindings.orchestration.wanting import want_schedule, want_sensor
    from databuild_dagster.bindings.reading.available_lots import available_lots
    from databuild_dagster.bindings.reading.lookups import (
        check_build_coordination,
        get_active_builds_for_partition,
        get_build_request_for_available_partition,
        get_canonical_partition,
        get_canonical_partition_uuid,
        get_latest_partition_status,
        get_partition_by_uuid,
        get_wants_for_partition,
    )
    from databuild_dagster.bindings.reading.read import read, table
    from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark, Wants
    from databuild_dagster.engine.operations.job import JobContext, RetryJob
    from databuild_dagster.engine.operations.manager import (
        Completion,
        DistributedOperation,
        DistributedOperationManager,
    )
    from databuild_dagster.model.refs import PartitionRef, derive_partition_uuid

__all__ = [
    "EMPTY",
    "BuildContext",
    "BuildIndexArg",
    "ByFile",
    "ByKey",
    "CommandAlert",
    "CompactArg",
    "Completion",
    "DatabuildComponent",
    "DatabuildRunCoordinator",
    "DatabuildSpark",
    "DatabuildTranslator",
    "DepMiss",
    "DistributedOperation",
    "DistributedOperationManager",
    "InvalidAsset",
    "JobContext",
    "OperationContext",
    "PartitionRef",
    "RetryJob",
    "Transient",
    "ValidateArg",
    "Wants",
    "WebhookAlert",
    "available_lots",
    "build_definitions",
    "build_sla_checks",
    "check_build_coordination",
    "databuild_asset",
    "databuild_boundary",
    "databuild_multi_asset",
    "derive_partition_uuid",
    "get_active_builds_for_partition",
    "get_build_request_for_available_partition",
    "get_canonical_partition",
    "get_canonical_partition_uuid",
    "get_latest_partition_status",
    "get_partition_by_uuid",
    "get_wants_for_partition",
    "operation_manager",
    "read",
    "table",
    "want_schedule",
    "want_sensor",
]

_HOME = {
    "BuildContext": "bindings.declare.build_context",
    "BuildIndexArg": "bindings.building.provided",
    "ByFile": "bindings.declare.lot_parts",
    "ByKey": "bindings.declare.lot_parts",
    "CommandAlert": "bindings.display.alerts",
    "CompactArg": "bindings.building.provided",
    "Completion": "engine.operations.manager",
    "DatabuildComponent": "bindings.authoring.component",
    "DatabuildRunCoordinator": "bindings.orchestration.coordinator",
    "DatabuildSpark": "bindings.reading.spark_resource",
    "DatabuildTranslator": "bindings.authoring.translator",
    "DepMiss": "bindings.declare.outcomes",
    "DistributedOperation": "engine.operations.manager",
    "DistributedOperationManager": "engine.operations.manager",
    "EMPTY": "bindings.declare.outcomes",
    "InvalidAsset": "bindings.declare.parameters",
    "JobContext": "engine.operations.job",
    "OperationContext": "bindings.building.operation_context",
    "PartitionRef": "model.refs",
    "RetryJob": "engine.operations.job",
    "Transient": "bindings.declare.outcomes",
    "ValidateArg": "bindings.building.provided",
    "Wants": "bindings.reading.spark_resource",
    "WebhookAlert": "bindings.display.alerts",
    "available_lots": "bindings.reading.available_lots",
    "build_definitions": "bindings.authoring.definitions",
    "build_sla_checks": "bindings.display.sla_check",
    "check_build_coordination": "bindings.reading.lookups",
    "databuild_asset": "bindings.authoring.decorator",
    "databuild_boundary": "bindings.declare.boundaries",
    "databuild_multi_asset": "bindings.authoring.multi_decorator",
    "derive_partition_uuid": "model.refs",
    "get_active_builds_for_partition": "bindings.reading.lookups",
    "get_build_request_for_available_partition": "bindings.reading.lookups",
    "get_canonical_partition": "bindings.reading.lookups",
    "get_canonical_partition_uuid": "bindings.reading.lookups",
    "get_latest_partition_status": "bindings.reading.lookups",
    "get_partition_by_uuid": "bindings.reading.lookups",
    "get_wants_for_partition": "bindings.reading.lookups",
    "operation_manager": "bindings.building.operations",
    "read": "bindings.reading.read",
    "table": "bindings.reading.read",
    "want_schedule": "bindings.orchestration.wanting",
    "want_sensor": "bindings.orchestration.wanting",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
