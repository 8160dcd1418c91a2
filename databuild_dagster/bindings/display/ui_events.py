"""What a step tells Dagster, so that the UI shows what is so: in progress what is being built, green what is live, red
what failed, and nothing for a neighbour's sake (SPEC 6.1).

Materializations and observations it yields; who has the last word about the others is the business of `last_words`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dagster import (
    AssetCheckKey,
    AssetCheckResult,
    AssetCheckSeverity,
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    MultiPartitionsDefinition,
    Output,
)

from databuild_dagster.bindings.adapter.asset_keys import asset_key, asset_text
from databuild_dagster.bindings.adapter.dagster_private import OBSERVED
from databuild_dagster.bindings.adapter.resource_keys import DEPLOYMENT
from databuild_dagster.bindings.adapter.run_tags import OUTCOME_TAG, PROCESS_TAG
from databuild_dagster.bindings.claims.claims import Hosting
from databuild_dagster.bindings.claims.results import Built
from databuild_dagster.bindings.declare.gates import Verdict
from databuild_dagster.bindings.display.materialization import Describer
from databuild_dagster.bindings.display.partition_status import last_words, speak
from databuild_dagster.bindings.display.reuse_events import Served, materialization_of, observation_of
from databuild_dagster.bindings.display.taint_check import selected_taint_checks
from databuild_dagster.bindings.registry.instance import engine_for, warehouse_of
from databuild_dagster.model.refs import asset_of, make_ref, partition_key_of
from databuild_dagster.warehouse.layout import Warehouse

if TYPE_CHECKING:
    from databuild_dagster.bindings.building.deployment import Deployment

#: Observations of one step; beyond that a note in the log says the rest.
MAX_OBSERVATIONS: Final = 50
#: Refs named in the metadata of a check.
MAX_NAMED: Final = 20


class Painter:
    """Speaks to Dagster for one step, of one asset or several."""

    def __init__(self, context: AssetExecutionContext) -> None:
        self._context = context
        self._instance = context.instance
        self._engine = engine_for(context.instance)
        deployment: Deployment = getattr(context.resources, DEPLOYMENT)
        warehouse = Warehouse(deployment.warehouse or warehouse_of(context.instance))
        self._describer = Describer(context, self._engine, warehouse, sample_rows=deployment.sample_rows)

    # What becomes of the refs

    def given(self, hosting: Hosting) -> None:
        """In progress: what this step is to build, and nothing else that its run was made for.

        A run of ours is planned as a whole, which shows no partition; any other run has been planned partition by
        partition when it was made, those between the ends of its range included.
        """
        build = [ref for run in hosting.job_runs for ref in run.refs]
        if PROCESS_TAG in self._context.run.tags:
            self._say(dict.fromkeys(build, self._context.run.run_id))
            return
        # Mostly it builds all it was made for, and Dagster need not be asked.
        others = set() if self._made_for() == set(build) else self._planned_by_this() - set(build) - set(hosting.join)
        # Somebody may have painted a taint after the run was planned.
        painted = self._engine.queries.taints_to_show(build)
        self._say({**last_words(self._engine, others), **dict.fromkeys(painted, self._context.run.run_id)})

    def built(self, built: Sequence[Built]) -> Iterable[AssetMaterialization]:
        """Refs that are live now."""
        if not built:
            return
        metadata = self._describer.metadata(built)
        for each in built:
            for output in each.outputs:
                ref, uuid = output.fact.ref, output.instance.uuid
                partition = self._partition(ref)
                yield AssetMaterialization(
                    asset_key=_key(ref),
                    partition=partition,
                    metadata=metadata[ref],
                    tags=self._describer.tags(ref, uuid, output.fact.inputs, partition),
                )

    def missed(self, refs: Iterable[str]) -> None:
        """Not in progress any more: they wait for inputs, which is neither green nor red."""
        self._say(last_words(self._engine, refs))

    def reused(self, uuids: Mapping[str, str], *, as_materializations: bool) -> Iterable[Any]:
        """Refs that others have built. A backfill fails unless it is told that they are materialized."""
        if not uuids:
            return
        shown = list(uuids) if as_materializations else list(uuids)[:MAX_OBSERVATIONS]
        canonical = self._engine.queries.canonical(shown)
        runs = self._engine.queries.job_runs_named(each.job_run for each in canonical.values() if each.job_run)
        told = materialization_of if as_materializations else observation_of
        for ref in shown:
            job_run = canonical[ref].job_run or ""
            run = runs.get(job_run)
            served = Served(uuids[ref], job_run, None if run is None else run.dagster_run_id)
            yield told(asset_of(ref), self._partition(ref), served)
        if len(uuids) > len(shown):
            self._context.log.info(f"{len(uuids)} partitions were live already; {len(shown)} are observed.")

    def only_failed(self, failed: Iterable[str]) -> None:
        """The run is about to fail: these partitions because of it, the others not."""
        red = dict.fromkeys(failed, self._context.run.run_id)
        self._say({**last_words(self._engine, self._planned_by_this() - set(red)), **red})

    # The run as a whole

    def checks(self, verdicts: Mapping[str, Iterable[Verdict]]) -> Iterable[AssetCheckResult]:
        """What the gates said of the refs of this run, one result for each check of each asset; and the taints."""
        found: dict[AssetCheckKey, dict[str, Verdict]] = {}
        for ref, of_ref in verdicts.items():
            for verdict in of_ref:
                found.setdefault(AssetCheckKey(_key(ref), verdict.gate), {})[ref] = verdict
        for check, by_ref in found.items():
            if check in self._context.selected_asset_check_keys:
                yield _check_result(check, by_ref)
        yield from selected_taint_checks(self._context)

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

    # How

    def _made_for(self) -> set[str]:
        """Every ref of the run's keys, from one end of its range to the other."""
        specs = [self._context.assets_def.specs_by_key[key] for key in self._context.selected_asset_keys]
        partitioned = any(spec.partitions_def is not None for spec in specs)
        keys: list[str | None] = list(self._context.partition_keys) if partitioned else [None]
        return {make_ref(asset_text(spec.key), key) for spec in specs for key in keys}

    def _planned_by_this(self) -> set[str]:
        """The refs of which this run's PLANNED event is the last word as yet."""
        run_id = self._context.run.run_id
        log = self._instance.event_log_storage
        found: set[str] = set()
        for key in self._context.selected_asset_keys:
            if self._context.assets_def.specs_by_key[key].partitions_def is None:
                continue
            attempts = log.get_latest_asset_partition_materialization_attempts_without_materializations(key)
            planned = (partition for partition, (planned_by, _) in attempts.items() if planned_by == run_id)
            found.update(make_ref(asset_text(key), partition) for partition in planned)
        return found

    def _say(self, words: Mapping[str, str]) -> None:
        step_key = self._context.op_execution_context.get_step_execution_context().step.key
        speak(self._instance, words, step_key=step_key)

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
