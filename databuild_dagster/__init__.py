"""Want a partition, and everything it needs is built once, on Spark, as Dagster runs.

The public names are imported when they are first used: `import databuild_dagster` starts neither Dagster nor
Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from databuild_dagster.bindings.alerts import CommandAlert, WebhookAlert
    from databuild_dagster.bindings.availability import available_lots
    from databuild_dagster.bindings.boundaries import databuild_boundary
    from databuild_dagster.bindings.component import DatabuildComponent
    from databuild_dagster.bindings.context import BuildContext
    from databuild_dagster.bindings.coordinator import DatabuildRunCoordinator
    from databuild_dagster.bindings.decorator import databuild_asset
    from databuild_dagster.bindings.definitions import build_definitions
    from databuild_dagster.bindings.lookups import (
        check_build_coordination,
        get_active_builds_for_partition,
        get_build_request_for_available_partition,
        get_canonical_partition,
        get_canonical_partition_uuid,
        get_latest_partition_status,
        get_partition_by_uuid,
        get_wants_for_partition,
    )
    from databuild_dagster.bindings.multi_decorator import databuild_multi_asset
    from databuild_dagster.bindings.operating import operation_manager
    from databuild_dagster.bindings.operation_context import OperationContext
    from databuild_dagster.bindings.outcomes import EMPTY, DepMiss, Transient
    from databuild_dagster.bindings.parameters import InvalidAsset
    from databuild_dagster.bindings.parts import ByFile, ByKey
    from databuild_dagster.bindings.provided import BuildIndexArg, CompactArg, ValidateArg
    from databuild_dagster.bindings.reading import read, table
    from databuild_dagster.bindings.resources import DatabuildSpark, Wants
    from databuild_dagster.bindings.sla_check import build_sla_checks
    from databuild_dagster.bindings.translator import DatabuildTranslator
    from databuild_dagster.bindings.wanting import want_schedule, want_sensor
    from databuild_dagster.engine.executing import JobContext, RetryJob
    from databuild_dagster.engine.operations import Completion, DistributedOperation, DistributedOperationManager
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
    "BuildContext": "bindings.context",
    "BuildIndexArg": "bindings.provided",
    "ByFile": "bindings.parts",
    "ByKey": "bindings.parts",
    "CommandAlert": "bindings.alerts",
    "CompactArg": "bindings.provided",
    "Completion": "engine.operations",
    "DatabuildComponent": "bindings.component",
    "DatabuildRunCoordinator": "bindings.coordinator",
    "DatabuildSpark": "bindings.resources",
    "DatabuildTranslator": "bindings.translator",
    "DepMiss": "bindings.outcomes",
    "DistributedOperation": "engine.operations",
    "DistributedOperationManager": "engine.operations",
    "EMPTY": "bindings.outcomes",
    "InvalidAsset": "bindings.parameters",
    "JobContext": "engine.executing",
    "OperationContext": "bindings.operation_context",
    "PartitionRef": "model.refs",
    "RetryJob": "engine.executing",
    "Transient": "bindings.outcomes",
    "ValidateArg": "bindings.provided",
    "Wants": "bindings.resources",
    "WebhookAlert": "bindings.alerts",
    "available_lots": "bindings.availability",
    "build_definitions": "bindings.definitions",
    "build_sla_checks": "bindings.sla_check",
    "check_build_coordination": "bindings.lookups",
    "databuild_asset": "bindings.decorator",
    "databuild_boundary": "bindings.boundaries",
    "databuild_multi_asset": "bindings.multi_decorator",
    "derive_partition_uuid": "model.refs",
    "get_active_builds_for_partition": "bindings.lookups",
    "get_build_request_for_available_partition": "bindings.lookups",
    "get_canonical_partition": "bindings.lookups",
    "get_canonical_partition_uuid": "bindings.lookups",
    "get_latest_partition_status": "bindings.lookups",
    "get_partition_by_uuid": "bindings.lookups",
    "get_wants_for_partition": "bindings.lookups",
    "operation_manager": "bindings.operating",
    "read": "bindings.reading",
    "table": "bindings.reading",
    "want_schedule": "bindings.wanting",
    "want_sensor": "bindings.wanting",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
