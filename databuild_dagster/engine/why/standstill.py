"""Whether what somebody waits for stands still, and which launches it needs that have not begun.

Whoever waits in a run slot asks it, for such a launch may be waiting for that very slot (SPEC 8.3; decision 0023). By what
the refs are, and what those are that they wait for:

| one of them is                           | then                                                           |
|------------------------------------------|----------------------------------------------------------------|
| Building, its job run Running            | nothing stands still: that slot will be free, and used again    |
| Live, Failed or UpstreamFailed           | nothing stands still: whoever waits is about to hear of it      |
| Building, its job run Queued             | its launch has not begun                                       |
| UpstreamBuilding                         | what it waits for is looked at                                 |
| missing, Tainted or UpForRetry, and due  | it is to be launched; where nothing else is, by the launches before |
| backing off                              | nothing is to begin yet                                        |
"""

from __future__ import annotations

from collections.abc import Iterable

from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.states import SCHEDULABLE, InstanceState, JobRunState

_S = InstanceState


def launches_not_begun(engine: Engine, refs: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Of the refs that somebody waits for: the launches that have not begun, each with the refs that need it.

    Nothing as long as anything that they wait for, transitively, is being built.
    """
    now = engine.now()
    asked = list(refs)
    needs = (need.ref for need in engine.queries.waited_for(asked, now))
    found = engine.queries.canonical(list(dict.fromkeys((*asked, *needs)))).values()
    building = {each.ref: each.job_run for each in found if each.state is _S.BUILDING and each.job_run is not None}
    job_runs = engine.queries.job_runs_named(building.values())
    if any(job_runs[job_run].state is not JobRunState.QUEUED for job_run in building.values()):
        return {}
    if not all(each.state in SCHEDULABLE or each.state in (_S.BUILDING, _S.UPSTREAM_BUILDING) for each in found):
        return {}
    waiting: dict[str, list[str]] = {}
    for ref, job_run in building.items():
        waiting.setdefault(job_runs[job_run].launch_id, []).append(ref)
    if not waiting:
        due = [each.ref for each in found if each.state in SCHEDULABLE and (each.retry_at or 0.0) <= now]
        waiting = dict.fromkeys(_before(engine, due), due)
    return {launch_id: tuple(each) for launch_id, each in waiting.items()}


def _before(engine: Engine, due: Iterable[str]) -> list[str]:
    """So many launches are out at once; while those have not begun, no other is made (`TickLimits`)."""
    specs = (engine.queries.dataset(asset) for asset in {asset_of(ref) for ref in due})
    locations = {spec.location for spec in specs if spec is not None}
    if not locations:
        return []
    launches = engine.queries.open_launches()
    return [each.launch_id for each in launches if each.location in locations and each.dagster_run_id is None]
