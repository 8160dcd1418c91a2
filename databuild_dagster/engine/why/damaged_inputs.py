"""The refs that are retried because an input is lost or damaged, with the command that repairs it (rule 6.16)."""

from __future__ import annotations

from collections.abc import Sequence

from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries


def damaged_inputs(engine: Engine, serving: Sequence[Ref]) -> list[str]:
    """A sentence for each of the refs, and of what they wait for, that only a repair makes live.

    None if another ref is to be retried, or if the damaged input was built again.
    """
    queries = engine.queries
    needed = [need.ref for need in queries.waited_for(serving, engine.now())]
    found = queries.canonical(list(dict.fromkeys((*serving, *needed))))
    retried = [ref for ref in found.values() if ref.state is InstanceState.UP_FOR_RETRY]
    if not all(_waits_for_repair(queries, ref) for ref in retried):
        return []
    return [f"{ref.ref}: {ref.reason}" for ref in retried]


def _waits_for_repair(queries: Queries, ref: Canonical) -> bool:
    run = None if ref.job_run is None else queries.job_run(ref.job_run)
    if run is None or run.state is not JobRunState.DEP_MISSED or not ref.reason or ref.uuid is None:
        return False
    missed = queries.canonical(queries.missed([ref.uuid]).get(ref.uuid, ()))
    return all((one.live_at or 0.0) <= (run.ended_at or 0.0) for one in missed.values())
