"""Reads the refs that a submitted or held Dagster run asks for, without importing user code.

Dagster's execution plan has the run's steps, its tags have the partitions, and the store has the assets' locations. A run
is a request only if other runs could answer all of it: every step builds assets of ours, and live instances are enough.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagster import DagsterInstance, DagsterRun

from databuild_dagster.bindings.adapter import dagster_private, run_tags
from databuild_dagster.bindings.adapter.keys import DEPLOYMENT, asset_text
from databuild_dagster.bindings.claims.claims import Asking, asking, claim_of
from databuild_dagster.bindings.registry.registration import partitions_from
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.coordination import Answer, answer_of, while_paused
from databuild_dagster.model.datasets import DatasetKind, DatasetSpec
from databuild_dagster.model.errors import InvalidRef
from databuild_dagster.model.refs import Ref, asset_of, make_ref
from databuild_dagster.store.queries.planning import Standing


@dataclass(frozen=True, slots=True)
class Request:
    """The refs that a Dagster run asks for, all of databuild assets."""

    run: DagsterRun
    asking: Asking
    #: By asset, in the order of the steps.
    datasets: Mapping[str, DatasetSpec]
    #: Asset to the step that would build it.
    steps: Mapping[str, str]
    #: Assets whose taint check the run executes too.
    taint_checks: tuple[str, ...]
    refs: tuple[Ref, ...]

    def by_job(self) -> Iterator[tuple[DatasetSpec, list[Ref]]]:
        """Each job, as any of its datasets, with the refs asked of it."""
        refs: dict[str, list[Ref]] = {}
        for ref in self.refs:
            refs.setdefault(self.datasets[asset_of(ref)].job, []).append(ref)
        yield from ((self.datasets[asset_of(of_job[0])], of_job) for of_job in refs.values())


def request_of(instance: DagsterInstance, engine: Engine, run: DagsterRun) -> Request | None:
    """None for a run that has to execute: it has other assets, or checks, or it rebuilds.

    Raises Dagster's errors for a range whose ends are no partitions.
    """
    asker = asking(instance, run, rebuild=_rebuilds(run.run_config))
    if asker.rebuild_before is not None or (plan := _plan(instance, run)) is None:
        return None
    steps, taint_checks = plan
    datasets = {asset: engine.queries.datasets.get(asset) for asset in steps}
    ours = {asset: spec for asset, spec in datasets.items() if spec is not None and spec.kind is DatasetKind.OURS}
    if len(ours) < len(datasets):
        return None
    keys = {asset: _partition_keys(instance, run, spec) for asset, spec in ours.items()}
    if not keys or not all(keys.values()):
        return None
    refs = tuple(make_ref(asset, key) for asset, of_asset in keys.items() for key in of_asset)
    return Request(run, asker, ours, steps, tuple(taint_checks), refs)


def answers(standings: Mapping[Ref, Standing], request: Request) -> dict[Ref, Answer]:
    """The answer that each ref would get (rules 8.1, 6.13)."""
    opens = request.asking.by_person
    found = {}
    for ref in request.refs:
        state = standings[ref].state
        answer = answer_of(state, backs_off=standings[ref].backs_off and not opens)
        # A person's request builds failed refs again.
        answer = Answer.BUILD if opens and answer is Answer.REFUSE else answer
        found[ref] = while_paused(answer, state) if standings[ref].is_paused else answer
    return found


def claim(engine: Engine, request: Request) -> bool:
    """Record that other runs answer the request; False when something has to be built.

    Records stay when a later job returns False: a step of the run repeats the request, and it is recorded once.
    """
    run_id = request.run.run_id
    for dataset, refs in request.by_job():
        outcome = engine.handle(
            claim_of(engine, dataset, refs, request.asking, may_build=False),
            command_id=f"{run_id} asks for {dataset.job}",
            actor=f"dagster run {run_id}",
        )
        if outcome.claim is not None and outcome.claim.build:
            return False
    return True


def _rebuilds(run_config: Mapping[str, Any]) -> bool:
    """Whether the Launchpad config asks for a rebuild; the step validates the value."""
    of_deployment = (run_config.get("resources") or {}).get(DEPLOYMENT) or {}
    return bool((of_deployment.get("config") or {}).get("rebuild"))


def _plan(instance: DagsterInstance, run: DagsterRun) -> tuple[dict[str, str], list[str]] | None:
    """Asset to step key, and the assets whose taints are checked; None if a step builds no asset that a ref can name."""
    if run.execution_plan_snapshot_id is None:
        return None
    plan = instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id)
    steps: dict[str, str] = {}
    taint_checks: list[str] = []
    for step in plan.steps:
        if step.key not in plan.step_keys_to_execute:
            continue
        outputs = [output.properties for output in step.outputs if output.properties is not None]
        keys = [output.asset_key for output in outputs if output.asset_key is not None]
        if not keys:
            return None
        checks = [output.asset_check_key for output in outputs if output.asset_check_key is not None]
        try:
            steps.update((asset_text(key), step.key) for key in keys)
            taint_checks += [asset_text(check.asset_key) for check in checks if check.name == run_tags.TAINT_CHECK]
        except InvalidRef:
            return None
    return steps, taint_checks


def _partition_keys(instance: DagsterInstance, run: DagsterRun, dataset: DatasetSpec) -> Sequence[str | None]:
    """The partition keys that the step would get; empty if the run's tags have none."""
    if (partitions := partitions_from(dataset.partitions)) is None:
        return [None]
    if any(tag.startswith(dagster_private.MULTIDIMENSIONAL_PARTITION_PREFIX) for tag in run.tags):
        return [str(dagster_private.get_multipartition_key_from_tags(run.tags))]
    return run_tags.partition_keys_of(run.tags, partitions, instance)
