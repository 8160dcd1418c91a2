# ruff: noqa: F401
"""Every name of Dagster that it does not promise and that the package uses. Other modules import them from here.

The names of its storages and workspaces are in `dagster_storage`: their import takes a second, and planning needs none.

The tests of the callers use each name, so that they fail after an upgrade that changes a name.
"""

import re
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Final

import dagster as dg

from databuild_dagster.model.errors import DatabuildError


class DagsterDiffers(DatabuildError, ImportError):
    """Dagster {version} lacks a name that this version of databuild_dagster uses: {why}."""

    hint = "Install a Dagster that it knows: pip install 'dagster>=1.12,<1.14'."


try:
    from dagster._core.definitions.assets.definition.assets_definition import stringify_asset_key_to_input_name
    from dagster._core.definitions.assets.graph.asset_graph import AssetGraph, AssetNode
    from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
    from dagster._core.definitions.data_version import (
        CODE_VERSION_TAG,
        DATA_VERSION_IS_USER_PROVIDED_TAG,
        DATA_VERSION_TAG,
        NULL_EVENT_POINTER,
        extract_data_version_from_entry,
        get_input_data_version_tag,
        get_input_event_pointer_tag,
    )
    from dagster._core.definitions.declarative_automation.automation_condition import BuiltinAutomationCondition
    from dagster._core.definitions.executor_definition import execute_in_process_executor
    from dagster._core.definitions.job_base import InMemoryJob
    from dagster._core.definitions.partitions.snap import PartitionsSnap
    from dagster._core.definitions.partitions.utils import (
        get_multipartition_key_from_tags,
        get_tags_from_multi_partition_key,
        infer_partition_mapping,
    )
    from dagster._core.definitions.reconstruct import repository_def_from_target_def
    from dagster._core.definitions.sensor_definition import SensorType
    from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION
    from dagster._core.errors import (
        DagsterExecutionInterruptedError,
        DagsterRunAlreadyExists,
        raise_execution_interrupts,
    )
    from dagster._core.events import (
        AssetMaterializationPlannedData,
        AssetObservationData,
        DagsterEvent,
        DagsterEventBatchMetadata,
        EngineEventData,
        StepMaterializationData,
        generate_event_batch_id,
    )
    from dagster._core.execution import compute_logs
    from dagster._core.execution.api import create_execution_plan, execute_run_iterator
    from dagster._core.execution.plan.active import ActiveExecution
    from dagster._core.instance import DynamicPartitionsStore
    from dagster._core.instance.utils import RUNLESS_JOB_NAME, RUNLESS_RUN_ID
    from dagster._core.storage.asset_value_loader import AssetValueLoader
    from dagster._core.storage.compute_log_manager import CapturedLogContext
    from dagster._core.storage.tags import (
        ASSET_PARTITION_RANGE_END_TAG,
        ASSET_PARTITION_RANGE_START_TAG,
        AUTO_MATERIALIZE_TAG,
        AUTOMATION_CONDITION_TAG,
        BACKFILL_ID_TAG,
        HIDDEN_TAG_PREFIX,
        MAX_RETRIES_TAG,
        MULTIDIMENSIONAL_PARTITION_PREFIX,
        PARTITION_NAME_TAG,
        PRIORITY_TAG,
        RESUME_RETRY_TAG,
        RETRY_NUMBER_TAG,
        RUN_KEY_TAG,
        SCHEDULE_NAME_TAG,
        SENSOR_NAME_TAG,
    )
    from dagster._serdes import deserialize_value, serialize_value
    from dagster._time import dst_safe_strftime
    from dagster._utils.schedules import reverse_cron_string_iterator
    from dagster._utils.warnings import disable_dagster_warnings
    from dagster.components.core.component_tree import ComponentTree
    from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
except ImportError as error:
    raise DagsterDiffers(version=dg.__version__, why=str(error).partition(" (")[0]) from error

#: An output with this metadata counts as yielded, so that later steps run, and materializes nothing.
OBSERVED: Final[dict[str, Any]] = {SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True}

#: This environment variable makes Dagster plan a run's partitions in one event. With one event per partition, a failing
#: run turns each of them red.
ONE_PLANNED_EVENT_PER_RUN: Final = "DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS"

#: How the name of the home begins that Dagster's commands make without DAGSTER_HOME, and remove at their end.
TEMPORARY_HOME_PREFIX: Final = ".tmp_dagster_home_"


def put_result(context: dg.AssetExecutionContext, output_name: str, value: Any) -> None:
    """Let the result of `materialize()` have a value for an output that was yielded without a value."""
    step = context.op_execution_context.get_step_execution_context()
    captured = step.output_capture or {}
    for handle in captured:
        if handle.step_key == step.step.key and handle.output_name == output_name:
            captured[handle] = value


def keep_temporary_folder(instance: dg.DagsterInstance) -> None:
    """Keep the folder of an ephemeral instance until this process ends: a frame of Spark reads there after the run."""
    folder = getattr(instance._local_artifact_storage, "_temp_dir", None)
    if folder is not None and folder not in _kept_folders:
        # Python removes it when it ends.
        _kept_folders.append(folder)
        folder.cleanup = lambda: None


_kept_folders: list[Any] = []


#: Ends the process $1, which prints a step's output, when this process has ended and with it the writer of the shell's input.
#: `kill -0` would take a process that nobody waits for as alive, and a `sleep` would outlive the shell that is ended first.
_WATCH = 'read -r line; kill "$1"'


def shield_log_tails() -> None:
    """Start the processes that print a step's output in their own sessions from now on. A second call changes nothing.

    Ctrl-C signals every process of the terminal's session. The printing processes would print tracebacks and lose the last line.
    The shell watches each of them in place of Dagster's script for Python, which takes 18 ms to start, twice in each step.
    """
    compute_logs.subprocess = SimpleNamespace(Popen=_in_its_own_session)  # type: ignore[assignment,attr-defined]


def _in_its_own_session(command: list[str], **named: Any) -> subprocess.Popen[bytes]:
    if command[0] == sys.executable:
        command = ["sh", "-c", _WATCH, "watch", command[-1]]
        named = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, start_new_session=True, **named)


def interrupt_waits_for_pools() -> None:
    """Let Ctrl-C end the wait of a step for a slot of its pool from now on. A second call changes nothing.

    Dagster holds an interrupt back until the code of a step runs, and none does while its executor waits.
    """
    ActiveExecution.sleep_til_ready = _sleep_til_ready  # type: ignore[method-assign,assignment]


def _sleep_til_ready(execution: Any) -> None:
    with raise_execution_interrupts():
        # Dagster's own interval is 0 for a step that waits for a slot.
        time.sleep(max(execution.sleep_interval(), 0.1))


def send_no_telemetry(instance: dg.DagsterInstance) -> None:
    """Let this process send no usage statistics to Dagster; the setting in dagster.yaml does not matter.

    In a home without settings Dagster would print a notice in the middle of the output, and each run would fail where the
    folder for them, below ~, cannot be made.
    """
    # `get_settings` answers from it; there is no setter.
    instance._settings = {**(instance._settings or {}), "telemetry": {"enabled": False}}


#: A time, which Dagster puts in place of the tick's id when the UI evaluates a sensor.
_MADE_UP = re.compile(r"\d{8}_\d{6}")


def is_dry_run(context: dg.SensorEvaluationContext | dg.ScheduleEvaluationContext) -> bool:
    """True for the UI's test button; false for the daemon's ticks, whose log is named after the tick.

    The UI starts nothing, so nothing may be recorded: a buffered launch would hold its leases and never start.
    """
    return _MADE_UP.fullmatch((context.log_key or [""])[-1]) is not None


def windows_from(partitions: dg.TimeWindowPartitionsDefinition, moment: float) -> Iterator[dg.TimeWindow]:
    """The windows that begin at a moment or after it, without excluded windows and without an end."""
    return iter(partitions._iterate_time_windows(moment))


def window_start_before(partitions: dg.TimeWindowPartitionsDefinition, moment: float) -> datetime:
    """The start of the window around a moment, also of an excluded window."""
    return next(reverse_cron_string_iterator(moment, partitions.cron_schedule, partitions.timezone))


def key_of_window(partitions: dg.TimeWindowPartitionsDefinition, start: datetime) -> str:
    """The partition key of the window that begins there."""
    return dst_safe_strftime(start, partitions.timezone, partitions.fmt, partitions.cron_schedule)


def existing_dynamic_partitions(store: Any, name: str, keys: Collection[str]) -> AbstractSet[str]:
    """The keys among some that are dynamic partitions. Dagster 1.12 can only list all."""
    if not hasattr(store, "get_existing_dynamic_partitions"):
        return set(store.get_dynamic_partitions(name)).intersection(keys)
    found: AbstractSet[str] = store.get_existing_dynamic_partitions(name, list(keys))
    return found


def quiet_beta_warnings() -> AbstractContextManager[Any]:
    """Suppress Dagster's warnings about its beta parameters, which it gives even when it passes them itself."""
    return disable_dagster_warnings()
