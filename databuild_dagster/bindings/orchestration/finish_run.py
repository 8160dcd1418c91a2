"""Ends a Dagster run whose partitions other runs have built, without a step.

The run ends as its steps would have ended it: every live partition is observed with its data version, or materialized
again where Dagster does not show it otherwise; refusals are in the log, and fail the run.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dagster import (
    AssetMaterialization,
    AssetObservation,
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    MetadataValue,
)

from databuild_dagster.bindings.adapter.dagster_private import (
    BACKFILL_ID_TAG,
    AssetObservationData,
    EngineEventData,
    StepMaterializationData,
)
from databuild_dagster.bindings.adapter.run_tags import (
    DELEGATED_TAG,
    OUTCOME_DENIED,
    OUTCOME_TAG,
    PARTITIONS_TAG,
    range_in_words,
)
from databuild_dagster.bindings.claims import run_messages
from databuild_dagster.bindings.claims.queued_request import Request
from databuild_dagster.bindings.display.materialization import Served, event_of, shown_keys
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.bindings.registry.registration import dagster_partition
from databuild_dagster.model.refs import Ref, asset_of, make_ref, partition_key_of
from databuild_dagster.model.wording import few_of

#: Observations of one run, and refusals in its log; beyond that one line counts the rest.
MAX_SHOWN = 50


def end_as_answered(
    instance: DagsterInstance,
    request: Request,
    served: Mapping[Ref, Served],
    denied: Mapping[Ref, str],
    joined: Collection[Ref] = (),
) -> None:
    """End the run like a step that built nothing: every ref is live by others, or was denied, which fails the run.

    `denied` are sentences, by ref; `joined` are the refs that were being built when the run asked. A repetition is
    harmless and repairs a crash halfway.
    """
    run = request.run
    tags = ({DELEGATED_TAG: "true"} if served else {}) | ({OUTCOME_TAG: OUTCOME_DENIED} if denied else {})
    keys = [key for key in dict.fromkeys(map(partition_key_of, request.refs)) if key is not None]
    if len(keys) > 1:
        tags[PARTITIONS_TAG] = range_in_words(keys)
    instance.add_run_tags(run.run_id, tags)
    for refs, sentence in _kinds(served, joined):
        log_to_run(instance, run, sentence, metadata=_links([served[ref] for ref in refs]))
    for _, refs in request.by_job():
        if skipped := run_messages.skipped_of(refs, [ref for ref in refs if ref in served and ref not in joined]):
            log_to_run(instance, run, run_messages.skipped(skipped))
    for event in _asset_events(instance, request, served):
        instance.report_dagster_event(event, run.run_id)
    for sentence in list(denied.values())[:MAX_SHOWN]:
        log_to_run(instance, run, sentence, logging.ERROR)
    if len(denied) > MAX_SHOWN:
        log_to_run(instance, run, f"{len(denied) - MAX_SHOWN} more were denied.", logging.ERROR)
    current = instance.get_run_by_id(run.run_id)
    if current is None or current.is_finished or current.status is DagsterRunStatus.STARTING:
        # Deleted, canceled or started just now.
        return
    # Both at once: Dagster takes an open run without a process for a lost one.
    if current.status is not DagsterRunStatus.STARTED:
        _report(instance, run, DagsterEventType.RUN_START, "Other runs built its partitions; it needs no process.")
    if denied:
        instance.report_run_failed(run, run_messages.denied(denied))
    else:
        _report(instance, run, DagsterEventType.RUN_SUCCESS, "Every partition is live.")


def log_to_run(
    instance: DagsterInstance,
    run: DagsterRun,
    message: str,
    level: int = logging.INFO,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """One line in the log of a run that has no process."""
    _report(instance, run, DagsterEventType.ENGINE_EVENT, message, level, EngineEventData(metadata or {}))


def _report(
    instance: DagsterInstance,
    run: DagsterRun,
    kind: DagsterEventType,
    message: str,
    level: int = logging.INFO,
    data: EngineEventData | None = None,
) -> None:
    event = DagsterEvent(kind.value, run.job_name, message=message, event_specific_data=data)
    instance.report_dagster_event(event, run.run_id, level)


def _kinds(served: Iterable[Ref], joined: Collection[Ref]) -> Iterator[tuple[list[Ref], str]]:
    """The refs that were live at the request, and those built since, each with a sentence."""
    reused = [ref for ref in served if ref not in joined]
    followed = [ref for ref in served if ref in joined]
    if reused:
        yield reused, run_messages.reused(reused)
    if followed:
        yield followed, f"{few_of(followed)}: live, built elsewhere while this run waited."


def _links(served: Sequence[Served]) -> dict[str, Any]:
    """The builds that answer: their instances, and links to their Dagster runs."""
    runs = dict.fromkeys(one.dagster_run_id for one in served if one.dagster_run_id is not None)
    names = [f"served by {number}" for number in range(1, len(runs) + 1)] if len(runs) > 1 else ["served by"]
    links = {name: MetadataValue.dagster_run(run) for name, run in zip(names, list(runs)[:MAX_SHOWN], strict=False)}
    return {"instances": [one.uuid for one in served[:MAX_SHOWN]], **links}


def _asset_events(instance: DagsterInstance, request: Request, served: Mapping[Ref, Served]) -> Iterator[DagsterEvent]:
    """Materializations for a backfill, which fails without them, and for refs new to Dagster; else observations."""
    by_asset: dict[str, dict[str | None, Served]] = {}
    for ref, one in served.items():
        by_asset.setdefault(asset_of(ref), {})[partition_key_of(ref)] = one
    engine, left = engine_for(instance), MAX_SHOWN
    for asset, by_key in by_asset.items():
        partitions = request.datasets[asset].partitions
        known = set() if BACKFILL_ID_TAG in request.run.tags else shown_keys(instance, asset, by_key)
        for partition_key, one in by_key.items():
            partition = dagster_partition(partitions, partition_key)
            data: StepMaterializationData | AssetObservationData
            if partition_key not in known:
                kind, message = DagsterEventType.ASSET_MATERIALIZATION, "Materialized before, by another Dagster run."
                data = StepMaterializationData(
                    AssetMaterialization(**event_of(engine, make_ref(asset, partition_key), partition, one))
                )
            elif left:
                left -= 1
                kind, message = DagsterEventType.ASSET_OBSERVATION, "Live already."
                data = AssetObservationData(
                    AssetObservation(**event_of(engine, make_ref(asset, partition_key), partition, one))
                )
            else:
                continue
            job_name, step_key = request.run.job_name, request.steps[asset]
            yield DagsterEvent(kind.value, job_name, step_key=step_key, message=message, event_specific_data=data)
