"""The public names. Type checkers and editors read this file, and `__init__.py` imports from it at the first use."""

from databuild_dagster.bindings.authoring.component import DatabuildComponent as DatabuildComponent
from databuild_dagster.bindings.authoring.decorator import databuild_asset as databuild_asset
from databuild_dagster.bindings.authoring.decorator import databuild_multi_asset as databuild_multi_asset
from databuild_dagster.bindings.authoring.definitions import build_definitions as build_definitions
from databuild_dagster.bindings.authoring.shared_location import SharedLocation as SharedLocation
from databuild_dagster.bindings.authoring.translator import DatabuildTranslator as DatabuildTranslator
from databuild_dagster.bindings.claims.run_messages import NotBuilt as NotBuilt
from databuild_dagster.bindings.declare.build_context import BuildContext as BuildContext
from databuild_dagster.bindings.declare.outcomes import EMPTY as EMPTY
from databuild_dagster.bindings.declare.outcomes import DepMiss as DepMiss
from databuild_dagster.bindings.declare.outcomes import Transient as Transient
from databuild_dagster.bindings.declare.parameters import InvalidAsset as InvalidAsset
from databuild_dagster.bindings.local.building import BuildFailed as BuildFailed
from databuild_dagster.bindings.local.building import BuildResult as BuildResult
from databuild_dagster.bindings.local.building import BuildTimedOut as BuildTimedOut
from databuild_dagster.bindings.local.result import Answer as Answer
from databuild_dagster.bindings.local.second_builds import NotDeterministic as NotDeterministic
from databuild_dagster.bindings.orchestration.coordinator import DatabuildRunCoordinator as DatabuildRunCoordinator
from databuild_dagster.bindings.orchestration.wanting import want_schedule as want_schedule
from databuild_dagster.bindings.orchestration.wanting import want_sensor as want_sensor
from databuild_dagster.bindings.reading.lookups import available_lots as available_lots
from databuild_dagster.bindings.reading.lookups import check_build_coordination as check_build_coordination
from databuild_dagster.bindings.reading.lookups import (
    get_active_builds_for_partition as get_active_builds_for_partition,
)
from databuild_dagster.bindings.reading.lookups import (
    get_build_request_for_available_partition as get_build_request_for_available_partition,
)
from databuild_dagster.bindings.reading.lookups import get_builds_for_partition as get_builds_for_partition
from databuild_dagster.bindings.reading.lookups import get_canonical_partition as get_canonical_partition
from databuild_dagster.bindings.reading.lookups import get_canonical_partition_uuid as get_canonical_partition_uuid
from databuild_dagster.bindings.reading.lookups import get_latest_partition_status as get_latest_partition_status
from databuild_dagster.bindings.reading.lookups import get_partition_by_uuid as get_partition_by_uuid
from databuild_dagster.bindings.reading.lookups import get_wants_for_partition as get_wants_for_partition
from databuild_dagster.bindings.reading.read import read as read
from databuild_dagster.bindings.reading.read import table as table
from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark as DatabuildSpark
from databuild_dagster.bindings.reading.wants import Wants as Wants
from databuild_dagster.bindings.reading.wants import open_wants as open_wants
from databuild_dagster.calls.answers import explain as explain
from databuild_dagster.calls.answers import plan as plan
from databuild_dagster.calls.answers import taint as taint
from databuild_dagster.calls.answers import want as want
from databuild_dagster.calls.build import BuildInterrupted as BuildInterrupted
from databuild_dagster.calls.build import build as build
from databuild_dagster.calls.status import Status as Status
from databuild_dagster.calls.status import status as status
from databuild_dagster.features.lots.arrivals.boundaries import databuild_boundary as databuild_boundary
from databuild_dagster.features.lots.parts.lot_parts import ByFile as ByFile
from databuild_dagster.features.lots.parts.lot_parts import ByKey as ByKey
from databuild_dagster.features.notices.alerts import CommandAlert as CommandAlert
from databuild_dagster.features.notices.alerts import WebhookAlert as WebhookAlert
from databuild_dagster.features.notices.sla_check import build_sla_checks as build_sla_checks
from databuild_dagster.features.operations.job import JobContext as JobContext
from databuild_dagster.features.operations.job import RetryJob as RetryJob
from databuild_dagster.features.operations.manager import DistributedOperation as DistributedOperation
from databuild_dagster.features.operations.manager import DistributedOperationManager as DistributedOperationManager
from databuild_dagster.features.operations.operation_context import OperationContext as OperationContext
from databuild_dagster.features.operations.operations import operation_manager as operation_manager
from databuild_dagster.features.operations.provided import BuildIndexArg as BuildIndexArg
from databuild_dagster.features.operations.provided import CompactArg as CompactArg
from databuild_dagster.features.operations.provided import ValidateArg as ValidateArg
from databuild_dagster.features.operations.seen import Completion as Completion
from databuild_dagster.features.tables.publish import Delta as Delta
from databuild_dagster.features.tables.publish import Iceberg as Iceberg
from databuild_dagster.features.tables.table_publishing import build_table_checks as build_table_checks
from databuild_dagster.model.refs import PartitionRef as PartitionRef
from databuild_dagster.model.refs import derive_partition_uuid as derive_partition_uuid
