"""The tags of Dagster runs: databuild's tags, and Dagster's tags that show how a run was started."""

from collections.abc import Mapping, Sequence
from typing import Final

from dagster import DagsterInstance, PartitionKeyRange, PartitionsDefinition, partition_loading_context

from databuild_dagster.bindings.adapter.dagster_private import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    AUTO_MATERIALIZE_TAG,
    AUTOMATION_CONDITION_TAG,
    BACKFILL_ID_TAG,
    HIDDEN_TAG_PREFIX,
    PARTITION_NAME_TAG,
    SCHEDULE_NAME_TAG,
    SENSOR_NAME_TAG,
)

#: The name of the asset check for taints, the same for every asset of ours.
TAINT_CHECK: Final = "no_tainted_partitions"
#: Dagster's pages show no tag with this prefix; runs are found by such tags as by any tag (decision 0051).
_HIDDEN: Final = f"{HIDDEN_TAG_PREFIX}databuild_"
#: The launch that a run hosts. The store has its refs and job runs.
LAUNCH_TAG: Final = f"{_HIDDEN}launch"
#: The process that created a run to execute it itself. Its death is detected before the run has started.
PROCESS_TAG: Final = f"{_HIDDEN}process"
#: The process that executes a launch of ours that Dagster has started, set before its step begins.
WORKER_TAG: Final = f"{_HIDDEN}worker"
#: A launch of a plain asset, which does not report its results to the store.
PLAIN_TAG: Final = f"{_HIDDEN}plain"
#: The operation whose jobs a run executes, and the id of its executor.
OPERATION_TAG: Final = "databuild/operation"
EXECUTOR_TAG: Final = f"{_HIDDEN}executor"
#: The partitions of a run over several, for people: Dagster's list of runs folds away the tags that have them. A longer name
#: would push the last of them off the list.
PARTITIONS_TAG: Final = "partitions"
#: Why a run built less than it was asked for.
OUTCOME_TAG: Final = "databuild/outcome"
#: A launch whose job runs missed inputs.
OUTCOME_DEP_MISS: Final = "dep_miss"
#: Any other run: a ref was refused, so the run failed; or refs wait, and their wants build them (rule 8.8).
OUTCOME_DENIED: Final = "denied"
OUTCOME_WAITING: Final = "waiting"
#: The process of an executor's run is gone.
OUTCOME_LOST: Final = "lost"
#: On an asset: the version in the keys by which other tools find its lots (rule 10.2).
VERSION_TAG: Final = "databuild/version"
#: A Dagster run that built nothing itself: other runs build its refs, or have built them.
DELEGATED_TAG: Final = "databuild/delegated"
#: Set to "true", the run rebuilds what it asks for (rule 8.7).
REBUILD_TAG: Final = "databuild/rebuild"
#: The state of a Dagster run that is held in the queue while other runs build its refs.
HOLD_TAG: Final = "databuild/hold"
#: It is held: no daemon starts it, and every tick checks it.
HELD: Final = "true"
#: It starts like any other run, because something is left to build.
RELEASED: Final = "released"
#: It has ended, and its results are reported.
OVER: Final = "over"
#: The taint that a run represents. Such a run is never executed.
TAINT_TAG: Final = "databuild/taint"
#: The job run whose cancellation, by which its outputs failed, a run represents. Such a run is never executed.
STOPPED_TAG: Final = "databuild/stopped"

_NOT_BY_A_PERSON = (BACKFILL_ID_TAG, SCHEDULE_NAME_TAG, SENSOR_NAME_TAG, AUTOMATION_CONDITION_TAG, AUTO_MATERIALIZE_TAG)


def is_by_person(tags: Mapping[str, str]) -> bool:
    """Whether a person started the run: no backfill, schedule, sensor or automation has tagged it."""
    return not any(tag in tags for tag in _NOT_BY_A_PERSON)


def partition_tags(partition_keys: Sequence[str | None]) -> dict[str, str]:
    """The tags of a run over partition keys in their order: a single key, or a range that spans them.

    A partitioned run always has them: Dagster crashes without them as soon as an upstream has been materialized.
    """
    keys = [key for key in partition_keys if key is not None]
    if not keys:
        return {}
    if len(keys) == 1:
        return {PARTITION_NAME_TAG: keys[0]}
    ends = {ASSET_PARTITION_RANGE_START_TAG: keys[0], ASSET_PARTITION_RANGE_END_TAG: keys[-1]}
    return {**ends, PARTITIONS_TAG: range_in_words(keys)}


def range_in_words(partition_keys: Sequence[str]) -> str:
    """The first and the last of several partition keys, and their number."""
    return f"{partition_keys[0]}..{partition_keys[-1]} ({len(partition_keys)})"


def partition_keys_of(
    tags: Mapping[str, str], partitions: PartitionsDefinition, instance: DagsterInstance
) -> list[str]:
    """The partition keys of a run with such tags; empty if it has none. Raises Dagster's errors for wrong ends."""
    if PARTITION_NAME_TAG in tags:
        return [tags[PARTITION_NAME_TAG]]
    if not {ASSET_PARTITION_RANGE_START_TAG, ASSET_PARTITION_RANGE_END_TAG} <= tags.keys():
        return []
    ends = PartitionKeyRange(tags[ASSET_PARTITION_RANGE_START_TAG], tags[ASSET_PARTITION_RANGE_END_TAG])
    with partition_loading_context(dynamic_partitions_store=instance):
        return [str(key) for key in partitions.get_partition_keys_in_range(ends)]
