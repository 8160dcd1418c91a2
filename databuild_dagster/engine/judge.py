"""Who may be declared lost (SPEC 6.9).

A launch is lost when its process is known to be gone, when its Dagster run has ended with job runs still open, or when
its heartbeat has lapsed. The last is only said by a judge that itself ran undisturbed for a whole lease: after a laptop
wakes up, everybody's heartbeat looks old, the judge's own included.
"""

from __future__ import annotations

from collections.abc import Callable

from databuild_dagster.engine.holders import surely_gone
from databuild_dagster.engine.ports import DagsterRunState
from databuild_dagster.store.queries import LaunchView

#: How often a launch says that it is alive.
HEARTBEAT_SECONDS = 10.0
#: After how long without a heartbeat it is lost.
LEASE_SECONDS = 30.0
#: How long a buffered launch belongs to the orchestrator that buffered it, without a Dagster run.
OWNERSHIP_SECONDS = 60.0
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

    def look(self, now: float, *, interval_seconds: float = 0.0) -> None:
        """Note that the judge is awake; a break of more than half a lease starts it anew.

        Who looks every `interval_seconds` only has breaks as long as that, and half of it more; a machine may have been
        suspended in one of them without being noticed, so silence has to last that much longer.
        """
        longest = max(self.lease_seconds / 2, interval_seconds * 1.5)
        self._unseen = longest - self.lease_seconds / 2
        if self._last is None or not 0 <= now - self._last <= longest:
            self._since = now
        self._last = now

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
        return self.why_gone(holder, max(heartbeat or 0.0, launch.started_at or launch.buffered_at), now)

    def why_gone(self, holder: str, heard: float, now: float) -> str | None:
        """Why a process does not hold any more what it held; `heard` is when something was heard of it last."""
        if self._gone(holder):
            return "its process is gone"
        if self.undisturbed(now) and now - heard > self.lease_seconds + self._unseen:
            return f"nothing was heard of it for {now - heard:.0f} s"
        return None

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
