"""What Dagster knows of refs that are not ours becomes a fact of ours, where it has changed (SPEC 6.11).

A materialization is an arrival, a failure after it a taint; from then on waiting, lineage and wants know one kind of ref.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from databuild_dagster.engine.engine import Engine, Outcome
from databuild_dagster.engine.ports import Foreign
from databuild_dagster.model.commands import ArriveLots, Command, TaintPartitions
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.events import Arrival, LotArrived
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import LEASED, InstanceState

#: Who handles these commands, in the log.
ACTOR = "observation"


def observe(engine: Engine, foreign: Foreign, refs: Sequence[Ref]) -> list[Ref]:
    """Look at refs, and record what is news; returns the refs whose news was recorded.

    News that was refused is none: a plan that waited for it to change something would wait for ever.
    What is known is read before Dagster is asked, and what is found is said of that instance alone: were it the other
    way about, a slow observer would taint, for good, what another one has recorded meanwhile.
    """
    known_before = engine.queries.canonical(refs)
    seen = foreign.observe(tuple(refs))
    arrivals: dict[Ref, Arrival] = {}
    gone: dict[Ref, str] = {}
    for ref, known in known_before.items():
        observation = seen[ref]
        if known.state in LEASED:
            continue
        if observation.live and observation.origin is not None and observation.origin != known.known_origin:
            arrivals[ref] = Arrival(job_run_id=engine.new_id(), ref=ref, origin=observation.origin)
        elif not observation.live and known.state is InstanceState.LIVE:
            gone[ref] = observation.reason or "Dagster has no materialization of it any more"
    recorded = _arrive(engine, arrivals, {ref: known_before[ref].uuid for ref in arrivals})
    for ref, known in engine.queries.canonical(list(gone)).items():
        if known == known_before[ref] and known.uuid is not None:
            outcome = _unless_refused(engine, TaintPartitions(uuids=(known.uuid,), reason=gone[ref]))
            recorded += [ref] if outcome is not None and outcome.events else []
    return recorded


def _arrive(engine: Engine, arrivals: Mapping[Ref, Arrival], before: Mapping[Ref, str | None]) -> list[Ref]:
    """All together; where that is refused, as for a partition that was deleted, in halves, so that it stops no other."""
    recorded: list[Ref] = []
    batches = [list(arrivals)] if arrivals else []
    for refs in batches:
        command = ArriveLots(arrivals=tuple(arrivals[ref] for ref in refs), seen={ref: before[ref] for ref in refs})
        outcome = _unless_refused(engine, command)
        if outcome is not None:
            facts = [event.fact for event in outcome.events]
            recorded += [arrival.ref for fact in facts if isinstance(fact, LotArrived) for arrival in fact.arrivals]
        elif len(refs) > 1:
            half = len(refs) // 2
            batches += [refs[:half], refs[half:]]
    return recorded


def _unless_refused(engine: Engine, command: Command) -> Outcome | None:
    """Another process may have observed the same, or be building it by now; what is recorded counts."""
    try:
        return engine.handle(command, actor=ACTOR)
    except Refused:
        return None
