"""Dagster runs that have ended while they waited for a build: a killed process cannot give its delegations up itself.

The waiting runs are followed along the log (rule 8.3). So a tick asks one question while no run waits; a process reads the
whole ledger once, in its first tick.
"""

from __future__ import annotations

from collections.abc import Iterable

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.follower import Cursor, LogFollower
from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.ports import DagsterRunState, Launcher
from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.coordination import Answer

#: Dagster runs checked in one tick; the next tick checks the others.
MAX_DAGSTER_RUNS = 500


class _Watch(Cursor, frozen=True, kw_only=True):
    """The waiting Dagster runs, as far as the log has been followed."""

    #: Dagster runs in an order; the last checked ones come last.
    waiting: dict[str, None]


def give_up_for_ended(
    engine: Engine, launcher: Launcher, judge: Judge, actor: str, *, head: int | None = None
) -> list[str]:
    """Give up the delegations of Dagster runs that have ended; returns these runs. `head` is as for `LogFollower`."""
    waiting = _waiting(engine, head)
    if not waiting:
        return []
    known = list(waiting)
    still = engine.queries.still_waiting(known)
    # The builds of the others have ended, or they have given up themselves.
    _forget(waiting, [run_id for run_id in known if run_id not in still])
    asked = [run_id for run_id in known if run_id in still][:MAX_DAGSTER_RUNS]
    dagster_runs = launcher.dagster_runs({run_id: run_id for run_id in asked}) if asked else {}
    ended: list[str] = []
    for run_id in asked:
        why = _why_ended(dagster_runs.get(run_id), judge)
        refs = tuple(ref for ref, is_followed_up in still[run_id].items() if not is_followed_up)
        if why is not None and refs:
            engine.handle(c.GiveUpDelegations(requester=run_id, reason=why, refs=refs), actor=actor)
            ended.append(run_id)
        _forget(waiting, [run_id])
        if why is None or len(refs) < len(still[run_id]):
            waiting[run_id] = None
    return ended


def _forget(waiting: dict[str, None], run_ids: Iterable[str]) -> None:
    """Remove one by one, because another thread's tick may add to them meanwhile."""
    for run_id in run_ids:
        waiting.pop(run_id, None)


def _why_ended(dagster_run: DagsterRunState | None, judge: Judge) -> str | None:
    if dagster_run is None:
        return "its Dagster run is not there any more"
    if dagster_run.status.ended:
        return f"its Dagster run ended: {dagster_run.status.value}"
    return "the process of its Dagster run is gone" if judge.died_with_its_process(dagster_run) else None


def _waiting(engine: Engine, head: int | None) -> dict[str, None]:
    follower = LogFollower(engine, "ended waiters", _Watch, head=head)
    watch = follower.load() or _Watch(follower.head, waiting=dict.fromkeys(engine.queries.scan_waiting_dagster_runs()))
    for event in follower.events(watch, ("PartitionDelegated",)):
        assert isinstance(event.fact, e.PartitionDelegated)
        # Requesters that begin to wait; `still_waiting` leaves out those of wants.
        if any(delegation.kind == Answer.JOIN.value for delegation in event.fact.delegations):
            watch.waiting.setdefault(event.fact.requester, None)
    follower.keep(_Watch(follower.last_seq(watch), waiting=watch.waiting))
    return watch.waiting
