"""What is due becomes launches, dep misses and observations, as commands that the tick carries out (SPEC 6.2, 6.3, 11.2).

Looks at the store only; no user code is imported. Each command is decided again in its own transaction.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.learned import held_back
from databuild_dagster.engine.observing import observe
from databuild_dagster.engine.ports import LaunchOrder
from databuild_dagster.engine.tick_pass import Pass
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.events import BufferedRun
from databuild_dagster.model.plan import launch_sets, outputs_by_key
from databuild_dagster.model.refs import asset_of, partition_key_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.planning import DueRef

#: What is recorded of a launch, and what Dagster is asked for.
Launch = tuple[c.BufferLaunch, LaunchOrder]


@dataclass
class Plan:
    """What one level of planning found to do."""

    #: Refs that are not ours and that there was news of; what is due has to be looked at again.
    observed: list[str] = field(default_factory=list)
    missed: list[c.BufferMissed] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)

    @property
    def nothing(self) -> bool:
        return not (self.observed or self.missed or self.launches)


def plan_due(
    this: Pass,
    datasets: Mapping[int, DatasetSpec],
    *,
    now: float,
    room: int,
    out: Counter[str],
    is_last: bool = False,
) -> Plan:
    """One level: of the refs that are due, those with missing inputs miss; when none does, or on the last level, the
    others are launched, `room` launches at most.

    What is missed becomes due by that, and may belong into the same launches, or be more urgent than they are. Those
    that learned of an input which is being built wait for it; nothing is recorded of them.

    `out` counts the launches of each job that have not ended.
    """
    engine = this.engine
    plan = Plan()
    due = engine.queries.due_refs(datasets, now, this.limits.due_refs)
    if not due:
        return plan
    if foreign_refs := [ref.ref for ref in due if datasets[ref.dataset_id].kind.is_foreign]:
        plan.observed += observe(engine, this.foreign, foreign_refs)
    inputs = {ref.ref: engine.catalog.inputs(datasets[ref.dataset_id], partition_key_of(ref.ref)) for ref in due}
    states = _states_of_inputs(this, inputs, plan)
    if plan.observed:
        return plan
    buildable = [ref for ref in due if datasets[ref.dataset_id].kind.is_built]
    missing = {
        ref.ref: found
        for ref in buildable
        if (found := tuple(i for i in inputs[ref.ref] if states[i] is not InstanceState.LIVE))
    }
    by_job: dict[str, list[DueRef]] = defaultdict(list)
    for ref in buildable:
        by_job[datasets[ref.dataset_id].job].append(ref)
    for refs in by_job.values():
        if missed := {ref.ref: missing[ref.ref] for ref in refs if ref.ref in missing}:
            plan.missed.append(_missed(this, datasets[refs[0].dataset_id], missed))
    if room <= 0 or (plan.missed and not is_last):
        return plan
    held = held_back(engine, datasets, buildable, missing, now)
    for refs in by_job.values():
        if ready := [ref for ref in refs if ref.ref not in missing and ref.ref not in held]:
            plan.launches += _launches(this, datasets, ready)
    concurrency = {spec.job: spec.concurrency for spec in datasets.values()}
    plan.launches = _most_urgent(plan.launches, due, room, concurrency, out)
    return plan


def _most_urgent(
    launches: list[Launch], due: list[DueRef], room: int, concurrency: Mapping[str, int | None], out: Counter[str]
) -> list[Launch]:
    """A launch is as urgent as its most urgent ref; what exceeds the room, or its job's concurrency, waits (SPEC 11.1)."""
    place = {ref.ref: at for at, ref in enumerate(due)}
    launches.sort(key=lambda launch: min(place[ref] for run in launch[0].runs for ref in run.refs))
    running = Counter(out)
    chosen: list[Launch] = []
    for launch in launches:
        allowed = concurrency[launch[0].job]
        if len(chosen) < room and (allowed is None or running[launch[0].job] < allowed):
            running[launch[0].job] += 1
            chosen.append(launch)
    return chosen


def _states_of_inputs(this: Pass, inputs: dict[str, tuple[str, ...]], plan: Plan) -> dict[str, InstanceState | None]:
    engine = this.engine
    wanted = list(dict.fromkeys(chain.from_iterable(inputs.values())))
    not_ours = set()
    for asset in dict.fromkeys(map(asset_of, wanted)):
        spec = engine.queries.dataset(asset)
        if spec is not None and spec.kind.is_foreign:
            not_ours.add(asset)
    if not_ours:
        plan.observed += observe(engine, this.foreign, [ref for ref in wanted if asset_of(ref) in not_ours])
    return engine.queries.states(wanted)


def _missed(this: Pass, spec: DatasetSpec, missing: dict[str, tuple[str, ...]]) -> c.BufferMissed:
    """One job run per partition key, holding only the outputs that miss something."""
    runs = _runs(this.engine, outputs_by_key(missing))
    return c.BufferMissed(
        launch_id=this.engine.new_id(),
        job=spec.job,
        location=this.location,
        owner=this.owner,
        runs=runs,
        misses=tuple(c.RunMiss(run.job_run_id, {ref: missing[ref] for ref in run.refs}) for run in runs),
        code_version=spec.code_version,
    )


def _runs(engine: Engine, by_key: Mapping[str | None, tuple[str, ...]]) -> tuple[BufferedRun, ...]:
    return tuple(BufferedRun(engine.new_id(), refs, key) for key, refs in by_key.items())


def _launches(this: Pass, datasets: Mapping[int, DatasetSpec], ready: list[DueRef]) -> list[Launch]:
    spec = datasets[ready[0].dataset_id]
    due = {ref.ref: ref for ref in ready}
    launches = []
    for by_key in launch_sets(this.engine.catalog, spec, due):
        chosen = [due[ref] for refs in by_key.values() for ref in refs]
        command = c.BufferLaunch(
            launch_id=this.engine.new_id(),
            job=spec.job,
            location=this.location,
            owner=this.owner,
            runs=_runs(this.engine, by_key),
            code_version=spec.code_version,
        )
        order = LaunchOrder(
            launch_id=command.launch_id,
            job=spec.job,
            location=this.location,
            kind=spec.kind,
            assets=tuple(dict.fromkeys(datasets[ref.dataset_id].asset for ref in chosen)),
            partition_keys=tuple(by_key),
            priority=max(ref.priority for ref in chosen),
        )
        launches.append((command, order))
    return launches
