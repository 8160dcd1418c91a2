"""The judge of lost launches and executors (rule 6.9).

A launch is lost when its process is known to be gone, when its Dagster run has ended with open job runs, or when its
heartbeat has lapsed. The last needs a judge that itself ran undisturbed for a whole lease: after a laptop wakes up, every
heartbeat looks old.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from databuild_dagster.engine.holders import surely_gone
from databuild_dagster.engine.ports import DagsterRunState
from databuild_dagster.store.queries.job_runs import LaunchView

#: The interval of a launch's heartbeats.
HEARTBEAT_SECONDS = 10.0
#: A launch without a heartbeat for this long is lost.
LEASE_SECONDS = 30.0
#: A buffered launch without a Dagster run belongs to its orchestrator this long.
OWNERSHIP_SECONDS = 60.0
#: Signs of life that are remembered before old ones are removed.
MAX_REMEMBERED = 1_000
#: The recorded times of a process's signs of life: when it took a lease, of which it may have several, and its last heartbeat.
Marks = tuple[float, float]
#: Begins the holder of a launch that reports only by its Dagster run's end (rule 6.11).
PLAIN_HOLDER = "dagster run "


class Evidence(NamedTuple):
    """A witness's answer about a launch."""

    lives: bool
    #: Why it is lost, for one that does not live.
    why: str = ""


#: Says of a launch at this time that it lives or is lost, None where it does not know. The judge asks each before it looks itself.
Witness = Callable[[LaunchView, float], Evidence | None]


class Judge:
    """Remembers how long it has looked without a break. One per process, called by every tick."""

    def __init__(
        self,
        *,
        lease_seconds: float = LEASE_SECONDS,
        gone: Callable[[str], bool] = surely_gone,
        witnesses: Sequence[Witness] = (),
    ) -> None:
        self.lease_seconds = lease_seconds
        self._witnesses = witnesses
        self._gone = gone
        self._since: float | None = None
        self._last: float | None = None
        #: Seconds beyond half a lease that a break may take without resetting the judge.
        self._unseen = 0.0
        #: By process: its last known marks, and the time of its last sign by this judge's clock.
        self._signs: dict[str, tuple[Marks, float]] = {}

    def look(self, now: float, *, interval_seconds: float = 0.0) -> None:
        """Note that the judge is awake; a break of more than half a lease resets it.

        With `interval_seconds`, a break may take one and a half intervals. The machine may be suspended in such a break
        without being noticed, so silence must last that much longer.
        """
        longest = max(self.lease_seconds / 2, interval_seconds * 1.5)
        self._unseen = longest - self.lease_seconds / 2
        if self._last is None or not 0 <= now - self._last <= longest:
            self._since = now
            # The clock may have been set.
            self._signs.clear()
        self._last = now
        if len(self._signs) > MAX_REMEMBERED:
            oldest = now - 10 * (self.lease_seconds + self._unseen)
            self._signs = {name: sign for name, sign in self._signs.items() if sign[1] > oldest}

    def undisturbed(self, now: float) -> bool:
        return self._since is not None and now - self._since >= self.lease_seconds

    def verdict(
        self, launch: LaunchView, heartbeat: float | None, dagster_run: DagsterRunState | None, now: float
    ) -> str | None:
        """Why a launch is lost, None while it may still live."""
        for witness in self._witnesses:
            if (evidence := witness(launch, now)) is not None:
                return None if evidence.lives else evidence.why
        if dagster_run is not None and dagster_run.status.ended:
            error = f": {dagster_run.error}" if dagster_run.error else ""
            return f"its Dagster run {dagster_run.dagster_run_id} ended ({dagster_run.status.value}) without reporting{error}"
        if launch.holder is None or launch.holder.startswith(PLAIN_HOLDER):
            # Not started, or without databuild's step: only its Dagster run names the process.
            holder = dagster_run.holder if dagster_run is not None else None
        else:
            holder = launch.holder
        if holder is None:
            return self.never_began(dagster_run, now)
        return self.why_gone(launch.launch_id, holder, (launch.started_at or launch.buffered_at, heartbeat or 0.0), now)

    def why_gone(self, who: str, holder: str, marks: Marks, now: float) -> str | None:
        """Why a process has lost its lease, None while it may live; `marks` are its signs of life."""
        if self._gone(holder):
            return "its process is gone"
        silent = now - self._last_sign(who, marks, now)
        if self.undisturbed(now) and silent > self.lease_seconds + self._unseen:
            return f"it has sent no heartbeat for {silent:.0f} s"
        return None

    def _last_sign(self, who: str, marks: Marks, now: float) -> float:
        """The time of the last sign by this judge's clock. The marks are of other clocks: another heartbeat or a later lease is
        a sign of now, and marks in the future count from the first look at them."""
        (leased, heartbeat), known = marks, self._signs.get(who)
        if known is None:
            at = min(max(marks), now)
        else:
            (last_leased, last_heartbeat), at = known
            if leased <= last_leased and heartbeat == last_heartbeat:
                return at
            leased, at = max(leased, last_leased), now
        self._signs[who] = (leased, heartbeat), at
        return at

    def never_began(self, dagster_run: DagsterRunState | None, now: float) -> str | None:
        """Why a Dagster run will never begin databuild's step: its process died before, or none reported in time.

        A worker that has reported its process may wait for its turn for long, so only its death counts.
        """
        if dagster_run is None:
            return None
        if dagster_run.worker is not None:
            return "its process is gone" if self._gone(dagster_run.worker) else None
        if dagster_run.begin_by is not None and self.undisturbed(now) and now > dagster_run.begin_by:
            return (
                f"no process has begun its Dagster run {dagster_run.dagster_run_id} in the time that Dagster gives it"
            )
        return None

    def died_with_its_process(self, dagster_run: DagsterRunState | None) -> bool:
        """Whether a Dagster run can never end, because the process that executed it is gone."""
        return (
            dagster_run is not None
            and not dagster_run.status.ended
            and dagster_run.holder is not None
            and self._gone(dagster_run.holder)
        )

    def abandoned(self, launch: LaunchView, now: float) -> bool:
        """Whether another orchestrator may take over a launch that has no Dagster run."""
        return now - launch.buffered_at > OWNERSHIP_SECONDS or self._gone(launch.owner)
