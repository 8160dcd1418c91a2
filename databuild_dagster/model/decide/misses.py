"""Dep misses: which inputs are missing, can they be built, and does a cycle of waiting refs close (rules 6.3-6.7)."""

from collections.abc import Callable, Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import chain

import msgspec

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import MAX_MISSES, Deciding, why_no_input
from databuild_dagster.model.errors import InvalidRequest, Refused, UnknownAsset, UnknownPartition
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import mid_sentence

#: Refs that the search for a cycle visits at most.
MAX_CYCLE_SEARCH = 1_000_000

#: A ref to the refs that it needs.
Graph = Mapping[Ref, Iterable[Ref]]


def miss_deps(command: c.MissDeps, deciding: Deciding) -> list[e.Fact]:
    """Raises `StaleJobRun`; `InvalidRequest` for an output of a different job run, and for an empty list of missing refs."""
    job_runs = deciding.running_job_runs(miss.job_run_id for miss in command.misses)
    outputs = deciding.outputs(job_runs.values())
    versions = {
        job_run_id: {ref.ref: instance.code_version for ref, instance in outputs[job_run.id]}
        for job_run_id, job_run in job_runs.items()
    }
    return miss_facts(command.misses, versions, deciding)


def miss_facts(
    misses: Collection[c.RunMiss], outputs: Mapping[str, Mapping[Ref, str | None]], deciding: Deciding
) -> list[e.Fact]:
    """The event for misses of job runs, whose outputs are given with the version of the code that missed the inputs.

    Derivative wants follow by the standing rule.
    """
    rows = deciding.view.refs(ref for miss in misses for refs in miss.impacted.values() for ref in refs)
    # A row that is missing stops the command (rule 3.5).
    deciding.view.instances_by_id(row.canonical_id for row in rows.values() if row.canonical_id is not None)
    judged = {miss.job_run_id: _judged(miss, outputs[miss.job_run_id], deciding) for miss in misses}
    damaged = [ref for miss in misses if miss.damage for ref in miss.impacted]
    n_damaged = max((row.misses for row in deciding.view.refs(damaged).values()), default=0)
    waits = {i.ref: i.missing for impacts in judged.values() for i in impacts if i.verdict == "wait"}
    cycles = _cycles(waits, deciding)
    facts = [
        e.RunMissFact(
            job_run_id=job_run_id,
            impacted=tuple(
                msgspec.structs.replace(impact, verdict="cycle", reason=cycles.pop(impact.ref), learned=impact.missing)
                if impact.ref in cycles
                else impact
                for impact in impacts
            ),
        )
        for job_run_id, impacts in judged.items()
    ]
    return [e.JobRunDepMissed(misses=tuple(facts), retry_at=deciding.backoff(1 + n_damaged), cycles=cycles)]


def _judged(miss: c.RunMiss, outputs: Mapping[Ref, str | None], deciding: Deciding) -> list[e.ImpactFact]:
    """The impacted outputs of a job run, before cycles are looked for. Raises `InvalidRequest`."""
    if not miss.impacted:
        raise InvalidRequest(what="dep miss", value=miss.job_run_id, why="it names no impacted output")
    for ref, missing in miss.impacted.items():
        if ref not in outputs:
            raise InvalidRequest(what="dep miss", value=ref, why=f"it is no output of job run {miss.job_run_id}")
        if not missing:
            raise InvalidRequest(what="dep miss", value=ref, why="it names no missing ref")
    rows = deciding.view.refs(miss.impacted)
    return [_impact(ref, miss, rows[ref].misses if ref in rows else 0, outputs[ref], deciding) for ref in miss.impacted]


def _impact(ref: Ref, miss: c.RunMiss, misses: int, code_version: str | None, deciding: Deciding) -> e.ImpactFact:
    missing = tuple(dict.fromkeys(miss.impacted[ref]))

    def may_come(missed: Ref) -> bool:
        """Its partition was wanted before, or the code that misses it is not the code that is registered."""
        registered = deciding.dataset_of(asset_of(ref))
        is_of_other_code = registered is None or registered.code_version != code_version
        return is_of_other_code or bool(deciding.view.refs([missed]))

    found = {text: _why_never(text, ref, deciding, may_come) for text in missing}
    unbuildable = {text: why for text, why in found.items() if why is not None}
    learned = tuple(text for text in missing if text not in unbuildable)
    for text, why in unbuildable.items():
        reason = f"it needs {text!r}, which nothing can build: {mid_sentence(why)}"
        return e.ImpactFact(ref=ref, missing=missing, verdict="unbuildable", reason=reason, learned=learned)
    if misses >= MAX_MISSES:
        times = f"it missed inputs {misses + 1} times in a row, the last time"
        reason = f"{times}: {miss.damage}" if miss.damage else f"{times} {missing[0]}"
        return e.ImpactFact(ref=ref, missing=missing, verdict="too_many_misses", reason=reason, learned=learned)
    return e.ImpactFact(ref=ref, missing=missing, reason=miss.damage)


def _why_never(ref: Ref, needed_by: Ref, deciding: Deciding, may_come: Callable[[Ref], bool]) -> str | None:
    """Why nothing can ever build a missing ref, and what to do. None if something can, or if a deploy may have removed it for a while."""
    try:
        deciding.check_wantable(ref)
    except UnknownAsset as unknown:
        return None if deciding.view.datasets([asset_of(ref)]) else why_no_input(ref, needed_by, unknown)
    except UnknownPartition as unknown:
        return None if may_come(ref) else why_no_input(ref, needed_by, unknown)
    except Refused as refused:
        return refused.message
    return None


def _cycles(waits: dict[Ref, tuple[Ref, ...]], deciding: Deciding) -> dict[Ref, str]:
    """The refs on the cycles that this waiting closes, each with its cycle spelled out. Loads the graph in bulk, by levels.

    Refs that wait already need the same refs as before, so each cycle goes through a ref of `waits`.
    """
    graph: dict[Ref, tuple[Ref, ...]] = dict(waits)
    level = list(dict.fromkeys(needed for missing in waits.values() for needed in missing if needed not in graph))
    while level and len(graph) <= MAX_CYCLE_SEARCH:
        found = _waits_for(level, deciding)
        graph.update(found)
        level = list(dict.fromkeys(needed for missing in found.values() for needed in missing if needed not in graph))
    # Mostly no ref needs one of them, and the search would take a tenth of a dep miss.
    if waits.keys().isdisjoint(chain.from_iterable(graph.values())):
        return {}
    cycles = shortest_cycles(graph)
    return {ref: "a cycle of dep misses: " + " → ".join([*cycle, cycle[0]]) for ref, cycle in cycles.items()}


def _waits_for(texts: list[Ref], deciding: Deciding) -> dict[Ref, tuple[Ref, ...]]:
    """Each ref, with the refs that it still misses if it waits; a ref that does not wait needs nothing."""
    view = deciding.view
    rows = [row for row in view.refs(texts).values() if row.state is InstanceState.UPSTREAM_BUILDING]
    found: dict[Ref, tuple[Ref, ...]] = dict.fromkeys(texts, ())
    ref_of = {row.canonical_id: row.ref for row in rows if row.canonical_id is not None}
    pairs = view.missing_of(ref_of) if ref_of else []
    needed = view.refs_by_id(ref_id for _, ref_id in pairs)
    for instance_id, ref_id in pairs:
        if needed[ref_id].state is not InstanceState.LIVE:
            found[ref_of[instance_id]] = (*found[ref_of[instance_id]], needed[ref_id].ref)
    return found


def shortest_cycles(needs: Graph) -> dict[Ref, tuple[Ref, ...]]:
    """Each ref that lies on a cycle, with the smallest of its shortest cycles, which begins with its smallest ref (rule 6.7).

    Cycles are compared as tuples of text, so the order of the graph does not matter.
    """
    backward = _tangled(needs)
    # The refs that also need a cycle: what is left lies on cycles, or between two of them.
    forward = _tangled(backward)
    backward = _reversed(forward)
    cycles = {ref: _smallest_cycle(ref, forward, backward) for ref in sorted(forward)}
    return {ref: cycle for ref, cycle in cycles.items() if cycle}


def _tangled(needs: Graph) -> dict[Ref, set[Ref]]:
    """The refs that no order puts behind all that they need, reversed: each with the refs that need it."""
    sorter = TopologicalSorter(needs)
    try:
        sorter.prepare()
    except CycleError:
        in_order: set[Ref] = set()
        while ready := sorter.get_ready():
            in_order.update(ready)
            sorter.done(*ready)
        return _reversed({ref: set(needed) - in_order for ref, needed in needs.items() if ref not in in_order})
    return {}


def _reversed(graph: Graph) -> dict[Ref, set[Ref]]:
    found: dict[Ref, set[Ref]] = {}
    for ref, others in graph.items():
        for other in others:
            found.setdefault(other, set()).add(ref)
    return found


def _smallest_cycle(ref: Ref, forward: Graph, backward: Graph) -> tuple[Ref, ...]:
    """Empty if the ref lies on no cycle."""
    to_ref = _distances(ref, backward)
    following = {needed for needed in forward.get(ref, ()) if needed in to_ref}
    if not following:
        return ()
    length = 1 + min(to_ref[needed] for needed in following)
    from_ref = _distances(ref, forward)
    # Every ref whose ways from and to this one add up to the length lies on a shortest cycle, and its smallest ref begins it.
    first = min({ref, *(other for other, steps in to_ref.items() if from_ref.get(other, length) + steps == length)})
    if first == ref:
        second = min(needed for needed in following if to_ref[needed] == length - 1)
        return (ref, *_smallest_way(second, ref, forward, to_ref))
    to_first = _distances(first, backward)
    return (*_smallest_way(first, ref, forward, to_ref), *_smallest_way(ref, first, forward, to_first))


def _distances(start: Ref, graph: Graph) -> dict[Ref, int]:
    """The refs that a way leads to, and its least number of steps."""
    distances, level, steps = {start: 0}, {start}, 0
    while level:
        steps += 1
        level = {other for ref in level for other in graph.get(ref, ())} - distances.keys()
        distances.update(dict.fromkeys(level, steps))
    return distances


def _smallest_way(start: Ref, end: Ref, forward: Graph, to_end: Mapping[Ref, int]) -> list[Ref]:
    """Of the shortest ways the smallest, without its end."""
    way, ref = [], start
    while ref != end:
        way.append(ref)
        ref = min(needed for needed in forward[ref] if to_end.get(needed) == to_end[ref] - 1)
    return way
