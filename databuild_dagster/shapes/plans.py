"""The plan of a build, and what follows from a supposition, as JSON has them (rules 8.6, 8.10, 15)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final, TypedDict

from databuild_dagster.bindings.registry.plain_assets import ForeignAssets
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.why.preview import AnnotatedPlan, PlannedLaunch, annotate
from databuild_dagster.features.what_if.answers import Effect, WhatIf
from databuild_dagster.features.what_if.simulation import SimulatedLaunch
from databuild_dagster.model.plan import MAX_PLANNED_REFS
from databuild_dagster.model.plan import plan as job_graph
from databuild_dagster.model.refs import Ref

#: Refs that one launch names; `n_refs` counts them all.
NAMED_REFS: Final = 5


class PlannedRefShape(TypedDict):
    """One ref of a plan, whose `after` are its inputs."""

    job: str
    ref: Ref
    action: str
    reason: str
    after: list[Ref]


class StageShape(TypedDict):
    """Refs of one job that are built at the same time; times are in seconds, null without a history of the job."""

    job: str
    n_refs: int
    #: The first of them.
    refs: list[Ref]
    launches: int
    #: From now until the longest chain before it has ended; negative if it has begun.
    begins_after: float
    seconds: float | None
    #: The launch is out already.
    joined: bool


class PlanShape(TypedDict):
    """A plan; `expected_seconds` is for all launches one after another, `seconds` for the longest chain."""

    jobs: list[PlannedRefShape]
    launches: int
    expected_seconds: float | None
    seconds: float | None
    without_history: list[str]
    stages: list[StageShape]


class ChangeShape(TypedDict):
    """What follows for one ref; a state is null while the ref is missing."""

    ref: Ref
    job: str
    effect: str
    reason: str
    before: str | None
    after: str | None


class WhatIfShape(TypedDict):
    """What follows from a supposition; times as in a plan."""

    what: str
    refs: list[Ref]
    changes: list[ChangeShape]
    counts: dict[str, int]
    launches: int
    expected_seconds: float | None
    seconds: float | None
    without_history: list[str]
    stages: list[StageShape]
    #: Refs that were simulated.
    reached: int
    wants_reopened: int
    wants_open: int
    notes: list[str]


def plan_of(engine: Engine, refs: Sequence[Ref], instance: Any, *, most_refs: int = MAX_PLANNED_REFS) -> AnnotatedPlan:
    """The plan of a build, with foreign refs as the Dagster instance has them now.

    Raises what a want for these refs is refused with, `CyclicInputs` and `PlanTooLarge`.
    """
    datasets = {spec.asset: spec for spec in engine.queries.datasets().values()}
    graph = job_graph(refs, datasets, engine.catalog, most_refs=most_refs)
    return annotate(engine, graph, ForeignAssets(instance))


def plan_shape(annotated: AnnotatedPlan) -> PlanShape:
    """Rules 15: an entry for each ref, whose `after` are its inputs."""
    stages, seconds = _waves(annotated.launches)
    return {
        "jobs": [
            {
                "job": job.job,
                "ref": ref,
                "action": annotated.verdicts[ref].action.value,
                "reason": annotated.verdicts[ref].reason,
                "after": list(annotated.graph.inputs[ref]),
            }
            for job in annotated.graph.jobs
            for ref in job.produces
        ],
        "launches": len(annotated.launches),
        "expected_seconds": _rounded(annotated.expected_seconds),
        "seconds": _rounded(seconds),
        "without_history": list(annotated.without_history),
        "stages": stages,
    }


def _waves(launches: Sequence[PlannedLaunch]) -> tuple[list[StageShape], float | None]:
    """The launches of a wave begin together, when the longest of the wave before has ended."""
    stages: list[StageShape] = []
    begins, is_known = 0.0, not launches
    for _, wave in groupby(launches, key=lambda launch: launch.wave):
        longest = 0.0
        for _, of_job in groupby(wave, key=lambda launch: (launch.location, launch.job)):
            together = list(of_job)
            refs = [ref for launch in together for ref in launch.refs]
            known = [launch.expected_seconds for launch in together if launch.expected_seconds is not None]
            seconds = max(known, default=None)
            is_known = is_known or seconds is not None
            longest = max(longest, seconds or 0.0)
            stages.append(_stage(together[0].job, refs, len(together), begins, seconds))
        begins += longest
    return stages, begins if is_known else None


def what_if_shape(found: WhatIf) -> WhatIfShape:
    """The answer to a what-if as JSON has it."""
    counts = Counter(change.effect for change in found.changes)
    return {
        "what": found.question.value,
        "refs": list(found.named),
        "changes": [
            {
                "ref": change.ref,
                "job": change.job,
                "effect": change.effect.value,
                "reason": change.reason,
                "before": None if change.before is None else change.before.value,
                "after": None if change.after is None else change.after.value,
            }
            for change in found.changes
        ],
        "counts": {effect.value: counts[effect] for effect in Effect if counts[effect]},
        "launches": found.n_launches,
        "expected_seconds": _rounded(found.seconds_of_all),
        "seconds": _rounded(found.seconds),
        "without_history": list(found.without_history),
        "stages": [_simulated(launch) for launch in found.launches],
        "reached": len(found.reached),
        "wants_reopened": found.wants_reopened,
        "wants_open": found.wants_open,
        "notes": list(found.notes),
    }


def _simulated(launch: SimulatedLaunch) -> StageShape:
    begins, is_joined = launch.begins_after, launch.is_joined
    return _stage(launch.job, launch.refs, launch.n_launches, begins, launch.seconds, is_joined=is_joined)


def _stage(
    job: str, refs: Sequence[Ref], launches: int, begins_after: float, seconds: float | None, *, is_joined: bool = False
) -> StageShape:
    return {
        "job": job,
        "n_refs": len(refs),
        "refs": list(refs[:NAMED_REFS]),
        "launches": launches,
        "begins_after": round(begins_after, 3),
        "seconds": _rounded(seconds),
        "joined": is_joined,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
