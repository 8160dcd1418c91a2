"""The names by which Dagster knows what is ours: tags of runs, a check, and what others' tags tell of who started a run."""

from collections.abc import Mapping, Sequence
from typing import Final

from databuild_dagster.bindings.adapter.dagster_private import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    AUTO_MATERIALIZE_TAG,
    AUTOMATION_CONDITION_TAG,
    BACKFILL_ID_TAG,
    PARTITION_NAME_TAG,
    SCHEDULE_NAME_TAG,
    SENSOR_NAME_TAG,
)

#: The name of the asset check for taints, the same for every asset of ours.
TAINT_CHECK: Final = "no_tainted_partitions"
#: The launch that a run hosts; its refs and job runs are looked up in the store by it.
LAUNCH_TAG: Final = "databuild/launch"
#: The process that made a run to execute it itself, so that its death is known before it has started anything.
PROCESS_TAG: Final = "databuild/process"
#: The process that executes a launch of ours which Dagster has started, from before its step may begin.
WORKER_TAG: Final = "databuild/worker"
#: The operation whose jobs a run executes, and which executor it is.
OPERATION_TAG: Final = "databuild/operation"
EXECUTOR_TAG: Final = "databuild/executor"
#: How a run without failures ended that built less than it was asked for.
OUTCOME_TAG: Final = "databuild/outcome"
OUTCOME_DEP_MISS: Final = "dep_miss"
OUTCOME_DENIED: Final = "denied"
#: Of an executor's run that did not fail by itself: its process is gone.
OUTCOME_LOST: Final = "lost"
#: Of an asset: the version in the keys by which others find its lots (SPEC 10.2).
VERSION_TAG: Final = "databuild/version"
#: A Dagster run that built nothing itself: others did, or had done so before.
DELEGATED_TAG: Final = "databuild/delegated"
#: Set to "true", what the run asks for is built anew (SPEC 8.7).
REBUILD_TAG: Final = "databuild/rebuild"
#: Where a Dagster run stands that asks for what others do: in the queue until they have done it, and after.
HOLD_TAG: Final = "databuild/hold"
#: It is held, or is being answered: no daemon starts it, every tick looks after it.
HELD: Final = "true"
#: It is to start like any other, for something is left to build.
RELEASED: Final = "released"
#: It has ended, and was seen to.
OVER: Final = "over"
#: Where Spark's own UI shows what the run does.
SPARK_UI_TAG: Final = "databuild/spark_ui"
#: The taint that a run stands for, which never ran.
TAINT_TAG: Final = "databuild/taint"
#: A launch of a plain asset, which does not report for itself.
PLAIN_TAG: Final = "databuild/plain"

_NOT_BY_A_PERSON = (
    BACKFILL_ID_TAG,
    SCHEDULE_NAME_TAG,
    SENSOR_NAME_TAG,
    AUTOMATION_CONDITION_TAG,
    AUTO_MATERIALIZE_TAG,
)


def is_by_person(tags: Mapping[str, str]) -> bool:
    """Whether a person started the run; a backfill, schedule, sensor or automation says so."""
    return not any(tag in tags for tag in _NOT_BY_A_PERSON)


def partition_tags(partition_keys: Sequence[str | None]) -> dict[str, str]:
    """The tags of a run over partition keys in their order: one key, or a range that spans them.

    A partitioned run always has them: without, Dagster dies before our code once an upstream has been
    materialized.
    """
    keys = [key for key in partition_keys if key is not None]
    if not keys:
        return {}
    if len(keys) == 1:
        return {PARTITION_NAME_TAG: keys[0]}
    return {ASSET_PARTITION_RANGE_START_TAG: keys[0], ASSET_PARTITION_RANGE_END_TAG: keys[-1]}
