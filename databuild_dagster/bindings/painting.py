"""What a step tells Dagster, so that the UI shows what was built, and nothing red that did not fail.

Dagster paints a partition red when the last word about it is a PLANNED event of a run that failed. A launch
fails for one bad day; so the last word about every other day that it did not build must be another run's.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from dagster import (
    AssetCheckKey,
    AssetCheckResult,
    AssetCheckSeverity,
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
from databuild_dagster.bindings.gates import Verdict
from databuild_dagster.bindings.keys import asset_key
from databuild_dagster.bindings.tags import OUTCOME_TAG
from databuild_dagster.model.refs import asset_of, partition_key_of

#: Observations of one step; beyond that a note in the log says the rest.
MAX_OBSERVATIONS = 50
#: Refs named in the metadata of a check.
MAX_NAMED = 20
#: A run that does not exist: Dagster takes a PLANNED event of it as neither in progress nor failed.
NO_RUN: Final = "00000000-0000-0000-0000-000000000000"


class Painter:
    """Speaks to Dagster for one step, of one asset or several."""

    def __init__(self, context: AssetExecutionContext) -> None:
        self._context = context

    def built(self, ref: str, uuid: str, metadata: Mapping[str, Any]) -> AssetMaterialization:
        """One ref is live. Its data version is the instance's uuid: Dagster's staleness agrees with ours."""
        return AssetMaterialization(
            asset_key=_key(ref),
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
                asset_key=_key(ref),
                partition=self._partition(ref),
                metadata={"databuild/instance": uuid, "databuild/delegated": True},
                tags=self._tags(ref, uuid),
            )
        if len(uuids) > MAX_OBSERVATIONS:
            self._context.log.info(f"{len(uuids)} partitions were live already; {MAX_OBSERVATIONS} are observed.")

    def checks(self, verdicts: Mapping[str, Iterable[Verdict]]) -> Iterable[AssetCheckResult]:
        """What the gates said of the refs of this run, one result for each check of each asset."""
        found: dict[AssetCheckKey, dict[str, Verdict]] = {}
        for ref, of_ref in verdicts.items():
            for verdict in of_ref:
                found.setdefault(AssetCheckKey(_key(ref), verdict.gate), {})[ref] = verdict
        for check, by_ref in found.items():
            if check in self._context.selected_asset_check_keys:
                yield _check_result(check, by_ref)

    def all_live(self, key: AssetKey) -> Output[None]:
        """Later steps and checks of the run may go on; no materialization follows from it."""
        output_name = self._context.assets_def.get_output_name_for_asset_key(key)
        return Output(None, output_name=output_name, metadata=OBSERVED)

    def outcome(self, outcome: str) -> None:
        """Why a run without failures did not build all it was asked for."""
        self.tag(OUTCOME_TAG, outcome)

    def tag(self, name: str, value: str) -> None:
        """Something about the whole run, where Dagster's list of runs shows it."""
        self._context.instance.add_run_tags(self._context.run.run_id, {name: value})

    def only_failed(self, failed: Iterable[str]) -> None:
        """The run is about to fail: these partitions because of it, the others not.

        Whether Dagster planned them one by one or all together depends on the process that made the run; so
        look.
        """
        keys: dict[AssetKey, set[str]] = {key: set() for key in self._context.selected_asset_keys}
        for ref in failed:
            if (partition_key := partition_key_of(ref)) is not None:
                keys[_key(ref)].add(partition_key)
        run_id = self._context.run.run_id
        log = self._context.instance.event_log_storage
        for key, red in keys.items():
            if self._context.assets_def.specs_by_key[key].partitions_def is None:
                continue
            attempts = log.get_latest_asset_partition_materialization_attempts_without_materializations(key)
            planned = {partition for partition, (planned_by, _) in attempts.items() if planned_by == run_id}
            for partition_key in sorted(planned - red):
                self._plan(key, partition_key, NO_RUN)
            for partition_key in sorted(red):
                self._plan(key, partition_key, run_id)

    def _plan(self, key: AssetKey, partition_key: str, run_id: str) -> None:
        event = DagsterEvent.build_asset_materialization_planned_event(
            self._context.run.job_name,
            self._context.op_execution_context.get_step_execution_context().step.key,
            AssetMaterializationPlannedData(key, partition=partition_key, partitions_subset=None),
        )
        self._context.instance.report_dagster_event(event, run_id, logging.DEBUG)

    def _tags(self, ref: str, uuid: str) -> dict[str, str]:
        partition = self._partition(ref)
        dimensions = get_tags_from_multi_partition_key(partition) if isinstance(partition, MultiPartitionKey) else {}
        return {DATA_VERSION_TAG: uuid, DATA_VERSION_IS_USER_PROVIDED_TAG: "true", **dimensions}

    def _partition(self, ref: str) -> str | None:
        key = partition_key_of(ref)
        partitions = self._context.assets_def.specs_by_key[_key(ref)].partitions_def
        if key is not None and isinstance(partitions, MultiPartitionsDefinition):
            return partitions.get_partition_key_from_str(key)
        return key


def _key(ref: str) -> AssetKey:
    return asset_key(asset_of(ref))


def _check_result(check: AssetCheckKey, verdicts: Mapping[str, Verdict]) -> AssetCheckResult:
    bad = {ref: verdict for ref, verdict in verdicts.items() if not verdict.passed}
    named = list(bad)[:MAX_NAMED] + ([f"{len(bad) - MAX_NAMED} more"] if len(bad) > MAX_NAMED else [])
    first = next(iter(bad.values()), None)
    metadata: dict[str, Any] = {"databuild/refs": len(verdicts), "databuild/not_passed": named}
    if len(verdicts) == 1:
        metadata |= next(iter(verdicts.values())).metadata
    return AssetCheckResult(
        passed=not bad,
        asset_key=check.asset_key,
        check_name=check.name,
        severity=AssetCheckSeverity.WARN
        if bad and all(v.is_warning for v in bad.values())
        else AssetCheckSeverity.ERROR,
        description=None if first is None else f"{len(bad)} of {len(verdicts)} did not pass. First: {first.why}",
        metadata=metadata,
    )
