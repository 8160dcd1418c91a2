"""Dep misses: which inputs are missing, can they be built, and does a cycle of waiting refs close (rules 6.3-6.7)."""

from __future__ import annotations

from collections.abc import Iterable

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import MAX_MISSES, Deciding
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState

#: Refs that the search for a cycle visits at most.
MAX_CYCLE_SEARCH = 1_000_000


def miss_deps(command: c.MissDeps, deciding: Deciding) -> list[e.Fact]:
    """Raises `StaleJobRun`; `InvalidRequest` for an output of another job run, and for an empty list of missing refs."""
    job_runs = deciding.running_job_runs(miss.job_run_id for miss in command.misses)
    outputs = deciding.outputs(job_runs.values())
    refs = {job_run_id: tuple(ref.ref for ref, _ in outputs[job_run.id]) for job_run_id, job_run in job_runs.items()}
    return miss_facts(command.misses, refs, deciding)


def miss_facts(misses: Iterable[c.RunMiss], outputs: dict[str, tuple[Ref, ...]], deciding: Deciding) -> list[e.Fact]:
    """The event for misses of job runs whose outputs are given; derivative wants follow by the standing rule."""
    #: Ref to the refs that it waits for, by misses of this command, which are not in the state yet.
    waiting: dict[Ref, tuple[Ref, ...]] = {}
    facts = []
    for miss in misses:
        impacts = []
        for ref, missing in miss.impacted.items():
            if ref not in outputs[miss.job_run_id]:
                raise InvalidRequest(what="dep miss", value=ref, why=f"it is no output of job run {miss.job_run_id}")
            if not missing:
                raise InvalidRequest(what="dep miss", value=ref, why="it names no missing ref")
            impact = _impact(ref, tuple(dict.fromkeys(missing)), waiting, deciding)
            impacts.append(impact)
            if impact.verdict == "wait":
                waiting[ref] = impact.missing
        if not impacts:
            raise InvalidRequest(what="dep miss", value=miss.job_run_id, why="it names no impacted output")
        facts.append(e.RunMissFact(job_run_id=miss.job_run_id, impacted=tuple(impacts)))
    return [e.JobRunDepMissed(misses=tuple(facts), retry_at=deciding.backoff(1))]


def _impact(
    ref: Ref, missing: tuple[Ref, ...], waiting: dict[Ref, tuple[Ref, ...]], deciding: Deciding
) -> e.ImpactFact:
    for text in missing:
        if why := deciding.why_not_wantable(text):
            reason = f"it needs {text!r}, which nothing can build: {why}"
            return e.ImpactFact(ref=ref, missing=missing, verdict="unbuildable", reason=reason)
    row = deciding.view.refs([ref]).get(ref)
    if row is not None and row.misses >= MAX_MISSES:
        reason = f"it missed inputs {row.misses + 1} times in a row, the last time {missing[0]}"
        return e.ImpactFact(ref=ref, missing=missing, verdict="too_many_misses", reason=reason)
    if cycle := _cycle(ref, missing, waiting, deciding):
        reason = "a cycle of dep misses: " + " → ".join([*cycle, cycle[0]])
        return e.ImpactFact(ref=ref, missing=missing, verdict="cycle", reason=reason, cycle=cycle)
    return e.ImpactFact(ref=ref, missing=missing)


def _cycle(
    ref: Ref, missing: tuple[Ref, ...], waiting: dict[Ref, tuple[Ref, ...]], deciding: Deciding
) -> tuple[Ref, ...]:
    """The refs of the cycle that waiting for the missing refs would close, this one first; else empty. In bulk, by levels."""
    came_from = dict.fromkeys(missing, ref)
    level = list(missing)
    while level and len(came_from) <= MAX_CYCLE_SEARCH:
        if ref in came_from:
            return _spelled_out(ref, came_from)
        following = []
        for text, waits_for in _waits_for(level, waiting, deciding).items():
            for needed in waits_for:
                if needed not in came_from:
                    came_from[needed] = text
                    following.append(needed)
        level = following
    return ()


def _spelled_out(ref: Ref, came_from: dict[Ref, Ref]) -> tuple[Ref, ...]:
    back = [came_from[ref]] if came_from[ref] != ref else []
    while back and came_from[back[-1]] != ref:
        back.append(came_from[back[-1]])
    return (ref, *reversed(back))


def _waits_for(texts: list[Ref], waiting: dict[Ref, tuple[Ref, ...]], deciding: Deciding) -> dict[Ref, tuple[Ref, ...]]:
    view = deciding.view
    found = {text: waiting[text] for text in texts if text in waiting}
    rows = [row for row in view.refs(texts).values() if row.state is InstanceState.UPSTREAM_BUILDING]
    ref_of = {row.canonical_id: row.ref for row in rows if row.canonical_id is not None}
    pairs = view.missing_of(ref_of)
    needed = view.refs_by_id(ref_id for _, ref_id in pairs)
    for instance_id, ref_id in pairs:
        if needed[ref_id].state is not InstanceState.LIVE:
            found[ref_of[instance_id]] = (*found.get(ref_of[instance_id], ()), needed[ref_id].ref)
    return found
