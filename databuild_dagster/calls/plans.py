"""The plan of a build as JSON has it (rules 8.6, 15)."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.ports import Observation
from databuild_dagster.engine.why.code import OtherCode
from databuild_dagster.engine.why.preview import Action, AnnotatedPlan, PlannedLaunch, annotate
from databuild_dagster.feature import rows
from databuild_dagster.model.plan import MAX_PLANNED_REFS
from databuild_dagster.model.plan import plan as job_graph
from databuild_dagster.model.refs import Ref

#: Refs that a launch names; `n_refs` counts them all.
NAMED_REFS: Final = 5


class PlannedRef(msgspec.Struct, frozen=True):
    """A ref of a plan, whose `after` are its inputs."""

    job: str
    ref: Ref
    action: Action
    reason: str
    after: Sequence[Ref]


class Stage(msgspec.Struct, frozen=True):
    """Refs of the same job that are built at the same time; times are in seconds, null without a history of the job."""

    job: str
    n_refs: int
    #: The first refs.
    refs: Sequence[Ref]
    launches: int
    #: From now until the longest chain before it has ended; negative if it has begun.
    begins_after: float
    seconds: float | None
    #: The launch is out already.
    joined: bool


class Plan(msgspec.Struct, frozen=True):
    """A plan; `expected_seconds` is the sum over all launches, `seconds` the length of the longest chain."""

    jobs: list[PlannedRef]
    launches: int
    expected_seconds: float | None
    seconds: float | None
    without_history: Sequence[str]
    stages: list[Stage]
    #: Assets with live partitions of other code, or with unknown code.
    other_code: Sequence[OtherCode]


def plan_of(
    engine: Engine, refs: Sequence[Ref], instance: Any, *, most_refs: int = MAX_PLANNED_REFS, is_provided: bool = False
) -> AnnotatedPlan:
    """The plan of a build, with foreign refs as the Dagster instance has them now.

    With `is_provided`, instances without a build are found first, as a build does it; borrowed ones are recorded.

    Raises what a want for the refs is refused with, `CyclicInputs` and `PlanTooLarge`.
    """
    datasets = {spec.asset: spec for spec in engine.queries.datasets.all().values()}
    # First: a plan that is too large looks for nothing.
    graph = job_graph(refs, datasets, engine.catalog, most_refs=most_refs)
    why_built: dict[Ref, str] = {}
    reused: dict[Ref, str] = {}
    for provide in rows(lambda feature: feature.provides) if is_provided else ():
        provided = provide(engine, refs, is_plan=True, specs=datasets.values())
        why_built |= provided.why_built
        reused |= provided.reused
    annotated = annotate(engine, graph, _LateForeign(instance), reused)
    verdicts = {
        ref: verdict._replace(reason=why_built.get(ref, verdict.reason)) if verdict.action is Action.BUILD else verdict
        for ref, verdict in annotated.verdicts.items()
    }
    return replace(annotated, verdicts=verdicts)


class _LateForeign(NamedTuple):
    """Foreign assets, for which alone a plan imports Dagster."""

    instance: Any

    def observe(self, refs: tuple[Ref, ...]) -> dict[Ref, Observation]:
        from databuild_dagster.bindings.registry.plain_assets import ForeignAssets

        return ForeignAssets(self.instance).observe(refs)


def plan_shape(annotated: AnnotatedPlan) -> Plan:
    """Rules 15: an entry for each ref, whose `after` are its inputs."""
    stages, seconds = _waves(annotated.launches)
    jobs = [
        PlannedRef(job.job, ref, *annotated.verdicts[ref], annotated.graph.inputs[ref])
        for job in annotated.graph.jobs
        for ref in job.produces
    ]
    expected = rounded(annotated.expected_seconds)
    return Plan(
        jobs,
        len(annotated.launches),
        expected,
        rounded(seconds),
        annotated.without_history,
        stages,
        annotated.other_code,
    )


def _waves(launches: Sequence[PlannedLaunch]) -> tuple[list[Stage], float | None]:
    """The launches of a wave begin together, when the longest of the wave before has ended."""
    stages: list[Stage] = []
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
            stages.append(stage_shape(together[0].job, refs, len(together), begins, seconds))
        begins += longest
    return stages, begins if is_known else None


def stage_shape(
    job: str, refs: Sequence[Ref], launches: int, begins_after: float, seconds: float | None, *, is_joined: bool = False
) -> Stage:
    """Launches of the same job that begin together."""
    begins = round(begins_after, 3)
    return Stage(job, len(refs), refs[:NAMED_REFS], launches, begins, rounded(seconds), is_joined)


def rounded(seconds: float | None) -> float | None:
    """A time in JSON, to the millisecond."""
    return None if seconds is None else round(seconds, 3)
