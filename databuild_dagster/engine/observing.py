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
    """Look at refs, and record what is news; returns the refs that there was news of."""
    seen = foreign.observe(tuple(refs))
    arrivals: dict[str, Arrival] = {}
    gone: dict[str, str] = {}
    for ref, known in engine.queries.canonical(refs).items():
        observation = seen[ref]
        if known.state in LEASED:
            continue
        if observation.live and observation.origin is not None and observation.origin != known.known_origin:
            arrivals[ref] = Arrival(job_run_id=engine.new_id(), ref=ref, origin=observation.origin)
        elif not observation.live and known.state is InstanceState.LIVE:
            gone[ref] = observation.reason or "Dagster has no materialization of it any more"
    if arrivals:
        _unless_refused(engine, ArriveLots(arrivals=tuple(arrivals.values())))
    for ref, reason in gone.items():
        _unless_refused(engine, TaintPartitions(refs=(ref,), reason=reason))
    return [*arrivals, *gone]


def _unless_refused(engine: Engine, command: Command) -> None:
    """Another process may have observed the same, or be building it by now; what is recorded counts."""
    try:
        engine.handle(command, actor=ACTOR)
    except Refused:
        return
