"""The events of a step for Dagster: partitions are in progress, live or failed, and none because of a neighbor (rule
6.1).

The step yields materializations and observations; `runs_to_show` decides the PLANNED events of all other refs.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import dagster as dg

from databuild_dagster.bindings.adapter.dagster_private import OBSERVED, DagsterEvent, EngineEventData
from databuild_dagster.bindings.adapter.event_batches import log_asset_events
from databuild_dagster.bindings.adapter.keys import asset_key, asset_text
from databuild_dagster.bindings.adapter.run_tags import OUTCOME_TAG, OUTCOME_WAITING, PROCESS_TAG
from databuild_dagster.bindings.claims.claims import Hosting
from databuild_dagster.bindings.claims.results import Built, BuiltOutput
from databuild_dagster.bindings.claims.run_messages import NotLive
from databuild_dagster.bindings.declare.gates import Verdict
from databuild_dagster.bindings.display.checks import listed, selected_taint_checks
from databuild_dagster.bindings.display.materialization import Describer, Served, event_of
from databuild_dagster.bindings.display.partition_status import plan_runs, runs_to_show
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.refs import Ref, asset_of, make_ref, partition_key_of
from databuild_dagster.warehouse.layout import Warehouse

#: Observations of a step; a line in the log counts the rest.
MAX_OBSERVATIONS: Final = 50
#: Refs named in the metadata of a check.
MAX_NAMED: Final = 20


class Painter:
    """Writes to Dagster for a step, of a single asset or several."""

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        warehouse: Warehouse,
        datasets: Mapping[str, DatasetSpec],
        *,
        sample_rows: int,
    ) -> None:
        self._context = context
        self._instance = context.instance
        self._engine = engine_for(context.instance)
        self._describer = Describer(context, self._engine, warehouse, datasets, sample_rows=sample_rows)

    # Refs

    def given(self, hosting: Hosting) -> None:
        """Show the refs that this step builds as in progress, and no further ref of its run.

        A run of ours is planned as a whole, which shows no partition. Any other run was planned partition by partition
        when it was created, with every partition of its range.
        """
        build = [ref for run in hosting.job_runs for ref in run.refs]
        if self._context.run.tags.get(PROCESS_TAG) is not None:
            self._plan(dict.fromkeys(build, self._context.run.run_id))
            return
        # Usually the step builds the run's whole range, and Dagster need not be asked.
        others = set() if self._made_for() == set(build) else self._planned_by_this() - set(build) - set(hosting.join)
        # A tick may have painted a taint after the run was planned.
        painted = self._engine.queries.instances.taints_to_show(build)
        self._plan({**runs_to_show(self._engine, others), **dict.fromkeys(painted, self._context.run.run_id)})

    def built(self, built: Sequence[Built]) -> Iterable[DagsterEvent]:
        """Materializations of refs that are live now."""
        if not built:
            return
        metadata = self._describer.metadata(built)
        by_asset: dict[str, list[BuiltOutput]] = {}
        facts = [(output.manifest.instance_uuid, output.fact.inputs) for success in built for output in success.outputs]
        first = self._engine.queries.instances.first_with_rows(
            uuid for own, inputs in facts for uuid in (own, *inputs.values())
        )
        for output in (output for success in built for output in success.outputs):
            by_asset.setdefault(asset_of(output.fact.ref), []).append(output)
        # The tags of an output name the newest events of the outputs before it.
        for outputs in by_asset.values():
            yield from log_asset_events(
                self._context, [self._materialization(output, metadata, first) for output in outputs]
            )

    def _materialization(
        self, output: BuiltOutput, metadata: Mapping[Ref, Mapping[str, Any]], first: Mapping[str, str]
    ) -> dg.AssetMaterialization:
        ref = output.fact.ref
        partition = self._partition(ref)
        tags = self._describer.tags(ref, output.manifest.instance_uuid, output.fact.inputs, partition, first)
        return dg.AssetMaterialization(asset_key=_key(ref), partition=partition, metadata=metadata[ref], tags=tags)

    def missed(self, refs: Iterable[Ref]) -> None:
        """Show refs as not in progress: they wait for inputs, and are neither green nor red."""
        self._plan(runs_to_show(self._engine, refs))

    def reused(self, uuids: Mapping[Ref, str], *, as_materializations: bool) -> Iterable[Any]:
        """Events for refs that other runs built. A backfill fails unless they are materializations."""
        if not uuids:
            return
        shown = list(uuids) if as_materializations else list(uuids)[:MAX_OBSERVATIONS]
        canonical = self._engine.queries.canonical.of(shown)
        runs = self._engine.queries.job_runs.named(
            instance.job_run for instance in canonical.values() if instance.job_run
        )
        event = dg.AssetMaterialization if as_materializations else dg.AssetObservation
        events = []
        for ref in shown:
            job_run = canonical[ref].job_run or ""
            run = runs.get(job_run)
            served = Served(uuids[ref], job_run, None if run is None else run.dagster_run_id)
            events.append(event(**event_of(self._engine, ref, self._partition(ref), served)))
        yield from log_asset_events(self._context, events)
        if len(uuids) > len(shown):
            self._context.log.info(
                f"{len(uuids)} partitions were live already; {len(shown)} of them have an observation."
            )

    def waiting(self, described: Mapping[Ref, NotLive]) -> Iterable[DagsterEvent]:
        """An observation for each ref that waits at the end of the run, with its causes and their wants (rule 8.8)."""
        observations = [
            dg.AssetObservation(
                asset_key=_key(ref),
                partition=self._partition(ref),
                description=found.sentence,
                metadata={
                    OUTCOME_TAG: OUTCOME_WAITING,
                    "databuild/waits_for": list(found.waits_for),
                    "databuild/wants": list(found.wants),
                },
            )
            for ref, found in list(described.items())[:MAX_OBSERVATIONS]
        ]
        return log_asset_events(self._context, observations)

    def only_failed(self, failed: Iterable[Ref]) -> None:
        """Before the run fails: show only the `failed` refs as failed by it."""
        red = dict.fromkeys(failed, self._context.run.run_id)
        self._plan({**runs_to_show(self._engine, self._planned_by_this() - set(red)), **red})

    # The run as a whole

    def checks(self, verdicts: Mapping[Ref, Iterable[Verdict]]) -> Iterable[dg.AssetCheckResult]:
        """The results of the gates, for each check of each asset, and of the selected taint checks."""
        found: dict[dg.AssetCheckKey, dict[Ref, Verdict]] = {}
        for ref, of_ref in verdicts.items():
            for verdict in of_ref:
                found.setdefault(dg.AssetCheckKey(_key(ref), verdict.gate), {})[ref] = verdict
        for check, by_ref in found.items():
            if check in self._context.selected_asset_check_keys:
                yield _check_result(check, by_ref)
        yield from selected_taint_checks(self._context)

    def all_live(self, key: dg.AssetKey) -> dg.Output[None]:
        """The output that lets later steps and checks of the run begin; it is no materialization."""
        output_name = self._context.assets_def.get_output_name_for_asset_key(key)
        return dg.Output(None, output_name=output_name, metadata=OBSERVED)

    def tag(self, name: str, value: str) -> None:
        """Tag the whole run, where Dagster's list of runs shows it."""
        self._context.instance.add_run_tags(self._context.run.run_id, {name: value})

    def link(self, sentence: str, **urls: str) -> None:
        """A line with links in the log of the run: Dagster shows the URL of a tag as text."""
        links = {name: dg.MetadataValue.url(url) for name, url in urls.items()}
        self._instance.report_engine_event(sentence, self._context.run, EngineEventData(links))

    # Helpers

    def _made_for(self) -> set[Ref]:
        """Every ref of the run's partition range."""
        specs = [self._context.assets_def.specs_by_key[key] for key in self._context.selected_asset_keys]
        partitioned = any(spec.partitions_def is not None for spec in specs)
        keys: list[str | None] = list(self._context.partition_keys) if partitioned else [None]
        return {make_ref(asset_text(spec.key), key) for spec in specs for key in keys}

    def _planned_by_this(self) -> set[Ref]:
        """The refs whose last event is this run's PLANNED event."""
        run_id = self._context.run.run_id
        log = self._instance.event_log_storage
        found: set[Ref] = set()
        for key in self._context.selected_asset_keys:
            if self._context.assets_def.specs_by_key[key].partitions_def is None:
                continue
            attempts = log.get_latest_asset_partition_materialization_attempts_without_materializations(key)
            planned = (partition for partition, (planned_by, _) in attempts.items() if planned_by == run_id)
            found.update(make_ref(asset_text(key), partition) for partition in planned)
        return found

    def _plan(self, shown: Mapping[Ref, str]) -> None:
        step_key = self._context.op_execution_context.get_step_execution_context().step.key
        plan_runs(self._instance, shown, step_key=step_key)

    def _partition(self, ref: Ref) -> str | None:
        key = partition_key_of(ref)
        partitions = self._context.assets_def.specs_by_key[_key(ref)].partitions_def
        if key is not None and isinstance(partitions, dg.MultiPartitionsDefinition):
            return partitions.get_partition_key_from_str(key)
        return key


def _key(ref: Ref) -> dg.AssetKey:
    return asset_key(asset_of(ref))


def _check_result(check: dg.AssetCheckKey, verdicts: Mapping[Ref, Verdict]) -> dg.AssetCheckResult:
    bad = {ref: verdict for ref, verdict in verdicts.items() if not verdict.passed}
    named = listed(len(bad), list(bad)[:MAX_NAMED])
    first = next(iter(bad.values()), None)
    metadata: dict[str, Any] = {"databuild/refs": len(verdicts), "databuild/not_passed": named}
    if len(verdicts) == 1:
        metadata |= next(iter(verdicts.values())).metadata
    return dg.AssetCheckResult(
        passed=not bad,
        asset_key=check.asset_key,
        check_name=check.name,
        severity=dg.AssetCheckSeverity.WARN
        if bad and all(v.is_warning for v in bad.values())
        else dg.AssetCheckSeverity.ERROR,
        description=None if first is None else f"{len(bad)} of {len(verdicts)} did not pass. First: {first.why}",
        metadata=metadata,
    )
