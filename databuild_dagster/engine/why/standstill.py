"""The launches that a waiting request needs and that have not begun.

A Dagster run that waits in a run slot asks, because such a launch may need that slot (rule 8.3; decision 0023). The refs
that it waits for, and those that these wait for, decide:

- A running job run gives its slot back, and a ref that rests or is blocked (`model.need`) ends the wait: no launch counts.
- A queued job run is a launch that has not begun.
- Without one, the due refs are launched after the open launches.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.need import DATA_OF_STATE, Action, Facts, Maker, need_of, wanted_as
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.store.queries.canonical import Canonical

_S = InstanceState


def launches_not_begun(engine: Engine, refs: Iterable[Ref]) -> dict[str, tuple[Ref, ...]]:
    """The launches that have not begun, each with the awaited refs that need it; none while an awaited ref is being built."""
    now = engine.now()
    asked = list(refs)
    needs = (need.ref for need in engine.queries.waited_for(asked, now))
    found = engine.queries.canonical(list(dict.fromkeys((*asked, *needs)))).values()
    building = {known.ref: known.job_run for known in found if known.state is _S.BUILDING and known.job_run is not None}
    job_runs = engine.queries.job_runs_named(building.values())
    if any(job_runs[job_run].state is not JobRunState.QUEUED for job_run in building.values()):
        return {}
    paused = engine.queries.paused([known.ref for known in found], now)
    actions = {known.ref: _action(known, now, is_paused=known.ref in paused) for known in found}
    if not set(actions.values()) <= {Action.BUILD, Action.WAIT}:
        return {}
    waiting: dict[str, list[Ref]] = {}
    for ref, job_run in building.items():
        waiting.setdefault(job_runs[job_run].launch_id, []).append(ref)
    if not waiting:
        due = [ref for ref, action in actions.items() if action is Action.BUILD]
        waiting = dict.fromkeys(_before(engine, due), due)
    return {launch_id: tuple(refs) for launch_id, refs in waiting.items()}


def _action(known: Canonical, now: float, *, is_paused: bool) -> Action:
    """The next tick's action for a ref with a want."""
    maker = Maker.PAUSED if is_paused else Maker.JOB
    return need_of(Facts(DATA_OF_STATE[known.state], maker, wanted_as(1, inf, known.retry_at, now))).action


def _before(engine: Engine, due: Iterable[Ref]) -> list[str]:
    """The open launches that have not begun: within `TickLimits`, they come before others."""
    specs = (engine.queries.dataset(asset) for asset in {asset_of(ref) for ref in due})
    locations = {spec.location for spec in specs if spec is not None}
    if not locations:
        return []
    launches = engine.queries.open_launches()
    return [launch.launch_id for launch in launches if launch.location in locations and launch.dagster_run_id is None]
