"""What a step tells Dagster, so that the UI shows what was built, and nothing red that did not fail.

Dagster paints a partition red when the last word about it is a PLANNED event of a run that failed. A launch
fails for one bad day; so the last word about every other day that it did not build must be another run's.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    MultiPartitionKey,
    MultiPartitionsDefinition,
    Output,
)

from databuild_dagster.bindings.dagster_private import (
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    DATA_VERSION_TAG,
    OBSERVED,
    AssetMaterializationPlannedData,
    DagsterEvent,
    get_tags_from_multi_partition_key,
)
from databuild_dagster.bindings.tags import OUTCOME_TAG
from databuild_dagster.model.refs import partition_key_of

#: Observations of one step; beyond that a note in the log says the rest.
MAX_OBSERVATIONS = 50
#: A run that does not exist: Dagster takes a PLANNED event of it as neither in progress nor failed.
NO_RUN: Final = "00000000-0000-0000-0000-000000000000"


class Painter:
    """Speaks to Dagster for one step of one asset."""

    def __init__(self, context: AssetExecutionContext, key: AssetKey) -> None:
        self._context = context
        self._key = key
        self._partitions = context.assets_def.specs_by_key[key].partitions_def

    def built(self, ref: str, uuid: str, metadata: Mapping[str, Any]) -> AssetMaterialization:
        """One ref is live. Its data version is the instance's uuid: Dagster's staleness agrees with ours."""
        return AssetMaterialization(
            asset_key=self._key,
            partition=self._partition(ref),
            metadata={"databuild/instance": uuid, **metadata},
            tags=self._tags(ref, uuid),
        )

    def reused(self, uuids: Mapping[str, str], *, as_materializations: bool) -> Iterable[Any]:
        """Refs that were live already. A backfill fails unless it is told that they are materialized."""
        if as_materializations:
            yield from (self.built(ref, uuid, {"databuild/delegated": True}) for ref, uuid in uuids.items())
            return
        for ref, uuid in list(uuids.items())[:MAX_OBSERVATIONS]:
            yield AssetObservation(
                asset_key=self._key,
                partition=self._partition(ref),
                metadata={"databuild/instance": uuid, "databuild/delegated": True},
                tags=self._tags(ref, uuid),
            )
        if len(uuids) > MAX_OBSERVATIONS:
            self._context.log.info(f"{len(uuids)} partitions were live already; {MAX_OBSERVATIONS} are observed.")

    def all_live(self) -> Output[None]:
        """Later steps and checks of the run may go on; no materialization follows from it."""
        output_name = self._context.assets_def.get_output_name_for_asset_key(self._key)
        return Output(None, output_name=output_name, metadata=OBSERVED)

    def outcome(self, outcome: str) -> None:
        """Why a run without failures did not build all it was asked for."""
        self._context.instance.add_run_tags(self._context.run.run_id, {OUTCOME_TAG: outcome})

    def only_failed(self, failed: Iterable[str]) -> None:
        """The run is about to fail: these partitions because of it, the others not.

        Whether Dagster planned them one by one or all together depends on the process that made the run; so
        look.
        """
        keys = {key for ref in failed if (key := partition_key_of(ref)) is not None}
        if not keys:
            return
        log = self._context.instance.event_log_storage
        attempts = log.get_latest_asset_partition_materialization_attempts_without_materializations(self._key)
        run_id = self._context.run.run_id
        for key in sorted(key for key, (planned_by, _) in attempts.items() if planned_by == run_id and key not in keys):
            self._plan(key, NO_RUN)
        for key in sorted(keys):
            self._plan(key, run_id)

    def _plan(self, key: str, run_id: str) -> None:
        event = DagsterEvent.build_asset_materialization_planned_event(
            self._context.run.job_name,
            self._context.op_execution_context.get_step_execution_context().step.key,
            AssetMaterializationPlannedData(self._key, partition=key, partitions_subset=None),
        )
        self._context.instance.report_dagster_event(event, run_id, logging.DEBUG)

    def _tags(self, ref: str, uuid: str) -> dict[str, str]:
        partition = self._partition(ref)
        dimensions = get_tags_from_multi_partition_key(partition) if isinstance(partition, MultiPartitionKey) else {}
        return {DATA_VERSION_TAG: uuid, DATA_VERSION_IS_USER_PROVIDED_TAG: "true", **dimensions}

    def _partition(self, ref: str) -> str | None:
        key = partition_key_of(ref)
        if key is not None and isinstance(self._partitions, MultiPartitionsDefinition):
            return self._partitions.get_partition_key_from_str(key)
        return key
