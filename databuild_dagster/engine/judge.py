"""Who may be declared lost (SPEC 6.9).

A launch is lost when its process is known to be gone, when its Dagster run has ended with job runs still open, or when
its heartbeat has lapsed. The last is only said by a judge that itself ran undisturbed for a whole lease: after a laptop
wakes up, everybody's heartbeat looks old, the judge's own included.
"""

from __future__ import annotations

from collections.abc import Callable

from databuild_dagster.engine.holders import surely_gone
from databuild_dagster.engine.ports import DagsterRunState
from databuild_dagster.store.queries.job_runs import LaunchView

#: How often a launch says that it is alive.
HEARTBEAT_SECONDS = 10.0
#: After how long without a heartbeat it is lost.
LEASE_SECONDS = 30.0
#: How long a buffered launch belongs to the orchestrator that buffered it, without a Dagster run.
OWNERSHIP_SECONDS = 60.0
#: Of how many is remembered when there was a sign of life, before the old ones are looked through.
MAX_REMEMBERED = 1_000
#: Times at which somebody gave a sign of life, as they were written down.
Marks = tuple[float, ...]
#: Begins the holder of a launch that reports by its Dagster run's end alone (SPEC 6.11).
PLAIN_HOLDER = "dagster run "


class Judge:
    """Remembers how long it has been looking without a break. One per process, called by every tick."""

    def __init__(self, *, lease_seconds: float = LEASE_SECONDS, gone: Callable[[str], bool] = surely_gone) -> None:
        self.lease_seconds = lease_seconds
        self._gone = gone
        self._since: float | None = None
        self._last: float | None = None
        #: How much longer than half a lease a break may be that does not start it anew.
        self._unseen = 0.0
        #: What was last known of somebody's signs of life, and when, by this judge's clock, there was a sign.
        self._heard: dict[str, tuple[Marks, float]] = {}

    def look(self, now: float, *, interval_seconds: float = 0.0) -> None:
        """Note that the judge is awake; a break of more than half a lease starts it anew.

        Who looks every `interval_seconds` only has breaks as long as that, and half of it more; a machine may have been
        suspended in one of them without being noticed, so silence has to last that much longer.
        """
        longest = max(self.lease_seconds / 2, interval_seconds * 1.5)
        self._unseen = longest - self.lease_seconds / 2
        if self._last is None or not 0 <= now - self._last <= longest:
            self._since = now
            # Also these times are of a clock that may have been another one.
            self._heard.clear()
        self._last = now
        if len(self._heard) > MAX_REMEMBERED:
            oldest = now - 10 * (self.lease_seconds + self._unseen)
            self._heard = {who: known for who, known in self._heard.items() if known[1] > oldest}

    def undisturbed(self, now: float) -> bool:
        return self._since is not None and now - self._since >= self.lease_seconds

    def verdict(
        self, launch: LaunchView, heartbeat: float | None, dagster_run: DagsterRunState | None, now: float
    ) -> str | None:
        """Why a launch is lost, None while it may still live."""
        if dagster_run is not None and dagster_run.status.ended:
            return f"its Dagster run {dagster_run.dagster_run_id} ended ({dagster_run.status.value}) without reporting"
        if launch.holder is None or launch.holder.startswith(PLAIN_HOLDER):
            # Not started, or with no step of ours in it: only its Dagster run tells whose launch it is.
            holder = dagster_run.holder if dagster_run is not None else None
        else:
            holder = launch.holder
        if holder is None:
            return self.never_began(dagster_run, now)
        return self.why_gone(launch.launch_id, holder, (launch.started_at or launch.buffered_at, heartbeat or 0.0), now)

    def why_gone(self, who: str, holder: str, marks: Marks, now: float) -> str | None:
        """Why a process does not hold any more what it held; `marks` are the times at which it gave signs of life."""
        if self._gone(holder):
            return "its process is gone"
        silent = now - self._last_sign(who, marks, now)
        if self.undisturbed(now) and silent > self.lease_seconds + self._unseen:
            return f"nothing was heard of it for {silent:.0f} s"
        return None

    def _last_sign(self, who: str, marks: Marks, now: float) -> float:
        """When there was one, by this judge's clock. The marks are of other clocks, and of the log's: marks that have
        changed are a sign whatever they say, and marks that lie ahead are as old as the first look at them.
        """
        known = self._heard.get(who)
        if known is not None and known[0] == marks:
            return known[1]
        last = max(marks)
        heard = now if known is not None or last > now else last
        self._heard[who] = marks, heard
        return heard

    def never_began(self, dagster_run: DagsterRunState | None, now: float) -> str | None:
        """What Dagster has handed to a process may have died with it before our step began, and nothing else ends it.

        A worker that has said which process it is may wait for its turn for long, so only its death counts.
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
        """Whether a Dagster run has not ended, and never will, for the process that executed it is gone."""
        return (
            dagster_run is not None
            and not dagster_run.status.ended
            and dagster_run.holder is not None
            and self._gone(dagster_run.holder)
        )

    def abandoned(self, launch: LaunchView, now: float) -> bool:
        """Whether another orchestrator may take over a launch that has no Dagster run."""
        return now - launch.buffered_at > OWNERSHIP_SECONDS or self._gone(launch.owner)
