"""Changes that Dagster has of foreign refs become events (rule 6.11).

A materialization is an arrival, a failure after it a taint; so waiting, lineage and wants handle a single kind of ref.
"""

from collections.abc import Mapping, Sequence

from databuild_dagster.engine.engine import Engine, Outcome
from databuild_dagster.engine.ports import Foreign
from databuild_dagster.model.commands import ArriveLots, Command, TaintPartitions
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.events import Arrival, LotArrived
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import LEASED, InstanceState

#: The actor of the commands of `observe` in the log.
ACTOR = "observation"


def observe(engine: Engine, foreign: Foreign, refs: Sequence[Ref]) -> list[Ref]:
    """Look at refs in Dagster, and record changes; returns the refs with a recorded change.

    A refused change does not count, because a plan would wait for its effect without end. The store is read before Dagster,
    and a taint names the instance that was read: otherwise a slow observer would taint what a second observer recorded meanwhile.
    """
    known_before = engine.queries.canonical.of(refs)
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
    for ref, known in engine.queries.canonical.of(list(gone)).items():
        if known == known_before[ref] and known.uuid is not None:
            outcome = _unless_refused(engine, TaintPartitions(uuids=(known.uuid,), reason=gone[ref]))
            recorded += [ref] if outcome is not None and outcome.events else []
    return recorded


def _arrive(engine: Engine, arrivals: Mapping[Ref, Arrival], before: Mapping[Ref, str | None]) -> list[Ref]:
    """Record all together; if the command is refused, as for a deleted partition, in halves, so that valid arrivals are recorded."""
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
    """Handle a command; None if a second process has recorded the same, or builds the ref by now."""
    try:
        return engine.handle(command, actor=ACTOR)
    except Refused:
        return None
