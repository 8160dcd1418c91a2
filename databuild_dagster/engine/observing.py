"""What Dagster knows of refs that are not ours becomes a fact of ours, where it has changed (SPEC 6.11).

A materialization is an arrival, a failure after it a taint; from then on waiting, lineage and wants know one kind of ref.
"""

from __future__ import annotations

from collections.abc import Sequence

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.ports import Foreign
from databuild_dagster.model.commands import ArriveLots, Command, TaintPartitions
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.events import Arrival
from databuild_dagster.model.states import LEASED, InstanceState

#: Who handles these commands, in the log.
ACTOR = "observation"


def observe(engine: Engine, foreign: Foreign, refs: Sequence[str]) -> list[str]:
    """Look at refs, and record what is news; returns the refs that there was news of.

    What is known is read before Dagster is asked, and what is found is said of that instance alone: were it the other
    way about, a slow observer would taint, for good, what another one has recorded meanwhile.
    """
    known_before = engine.queries.canonical(refs)
    seen = foreign.observe(tuple(refs))
    arrivals: dict[str, Arrival] = {}
    gone: dict[str, str] = {}
    for ref, known in known_before.items():
        observation = seen[ref]
        if known.state in LEASED:
            continue
        if observation.live and observation.origin is not None and observation.origin != known.known_origin:
            arrivals[ref] = Arrival(job_run_id=engine.new_id(), ref=ref, origin=observation.origin)
        elif not observation.live and known.state is InstanceState.LIVE:
            gone[ref] = observation.reason or "Dagster has no materialization of it any more"
    if arrivals:
        before = {ref: known_before[ref].uuid for ref in arrivals}
        _unless_refused(engine, ArriveLots(arrivals=tuple(arrivals.values()), seen=before))
    for ref, known in engine.queries.canonical(list(gone)).items():
        if known == known_before[ref] and known.uuid is not None:
            _unless_refused(engine, TaintPartitions(uuids=(known.uuid,), reason=gone[ref]))
    return [*arrivals, *gone]


def _unless_refused(engine: Engine, command: Command) -> None:
    """Another process may have observed the same, or be building it by now; what is recorded counts."""
    try:
        engine.handle(command, actor=ACTOR)
    except Refused:
        return
