"""Dagster runs that have ended while they waited for what others build: who was killed cannot say that it waits no more.

Who waits is followed along the log (SPEC 8.3). So a tick asks where the log ends and, while nobody waits, nothing else,
however long the ledger is; a process looks through the ledger once, in its first tick.
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

#: Dagster runs asked about in one tick; the next one goes on with the others.
MAX_DAGSTER_RUNS = 500


class _Watch(Cursor, frozen=True, kw_only=True):
    """Who waits, as far as the log has been followed."""

    #: Dagster runs in an order; those who were asked about last stand last.
    waiting: dict[str, None]


def give_up_for_ended(
    engine: Engine, launcher: Launcher, judge: Judge, actor: str, *, head: int | None = None
) -> list[str]:
    """The Dagster runs that have ended and still waited; recorded is that they do so no more. `head`: as for `LogFollower`."""
    waiting = _waiting(engine, head)
    if not waiting:
        return []
    known = list(waiting)
    still = engine.queries.still_waiting(known)
    # What the others waited for is live by now, or has failed, or they have said themselves that they wait no more.
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
    """One by one, for another thread's tick may add to them meanwhile."""
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
        # Requesters who have begun to wait; those of wants among them, which `still_waiting` leaves out.
        if any(delegation.kind == Answer.JOIN.value for delegation in event.fact.delegations):
            watch.waiting.setdefault(event.fact.requester, None)
    follower.keep(_Watch(follower.last_seq(watch), waiting=watch.waiting))
    return watch.waiting
