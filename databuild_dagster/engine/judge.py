"""The judge of lost launches and executors (rule 6.9).

A launch is lost when its process is known to be gone, when its Dagster run has ended with open job runs, or when its
heartbeat has lapsed. Silence is what this process has itself observed, by a steady clock that stands still while the machine
is suspended: a heartbeat that did not change from look to look. The times that other machines write are compared with nothing
but their own earlier times, so no wrong clock ends a lease. After a break between two looks the observation begins again:
the process was stopped, or the store could not be read, and then no heartbeat could change.
"""

from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import NamedTuple

from databuild_dagster.engine.holders import surely_gone
from databuild_dagster.engine.ports import DagsterRunState, DagsterRunStatus
from databuild_dagster.store.queries.job_runs import LaunchView

#: The interval of a launch's heartbeats.
HEARTBEAT_SECONDS = 10.0
#: A launch without a heartbeat for this long is lost.
LEASE_SECONDS = 30.0
#: A buffered launch without a Dagster run belongs to its orchestrator this long.
OWNERSHIP_SECONDS = 60.0
#: Signs of life that are remembered before old signs are removed.
MAX_REMEMBERED = 1_000
#: The recorded times of a process's signs of life: the last lease it took, None if that is not known, and its last heartbeat.
Marks = tuple[float | None, float]
#: Looks that are further apart are a break in the observation.
BREAK_SECONDS = LEASE_SECONDS / 2
#: Begins the holder of a launch that reports only by its Dagster run's end (rule 6.11).
PLAIN_HOLDER = "dagster run "


class Evidence(NamedTuple):
    """A witness's answer about a launch."""

    lives: bool
    #: Why it is lost, if it does not live.
    why: str = ""


#: Says of a launch, at a time of the judge's clock, that it lives or is lost, None where it does not know. The judge asks each
#: before it looks itself.
Witness = Callable[[LaunchView, float], Evidence | None]


def marks_of(launch: LaunchView, heartbeat: float | None) -> Marks:
    """The signs of life of a launch."""
    return launch.started_at or launch.buffered_at, heartbeat or 0.0


class _Sign(NamedTuple):
    """The last sign of life of a process, as this judge saw it."""

    #: The last lease that it took; None before a tick has told.
    leased: float | None
    heartbeat: float
    #: By the judge's steady clock.
    at: float
    #: Whether the judge saw the sign appear, and did not merely find it at its first look.
    is_seen: bool


class Judge:
    """Remembers what it has observed. A process has a single judge, called by every tick and by a `Lookout`; thread-safe.

    `now` is a steady clock throughout (`Engine.steady`).
    """

    def __init__(self, *, gone: Callable[[str], bool] = surely_gone, witnesses: Sequence[Witness] = ()) -> None:
        self._witnesses = witnesses
        self._gone = gone
        self._last: float | None = None
        self._signs: dict[str, _Sign] = {}
        self._lock = RLock()

    def look(self, now: float, heartbeats: Mapping[str, float] | None = None) -> None:
        """Note that the judge is awake and the store readable, and the heartbeats that it shows."""
        with self._lock:
            if self._last is None or now - self._last > BREAK_SECONDS:
                self._signs.clear()
            self._last = max(now, self._last or now)  # Another thread may have looked meanwhile.
            for who, heartbeat in (heartbeats or {}).items():
                self._silence(who, None, heartbeat, now)
            if len(self._signs) > MAX_REMEMBERED:
                oldest = now - 10 * LEASE_SECONDS
                self._signs = {name: sign for name, sign in self._signs.items() if sign.at > oldest}

    def names(self) -> list[str]:
        """The processes that it observes."""
        with self._lock:
            return list(self._signs)

    def is_unsure(self, who: str, now: float) -> bool:
        """Whether it has seen no sign of life of a process yet that it observes; after a lease it knows."""
        sign = self._signs.get(who)
        return sign is not None and not sign.is_seen and now - sign.at <= LEASE_SECONDS

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
        return self.why_gone(launch.launch_id, holder, marks_of(launch, heartbeat), now)

    def why_gone(self, who: str, holder: str, marks: Marks, now: float) -> str | None:
        """Why a process has lost its lease, None while it may live; `marks` are its signs of life."""
        if self._gone(holder):
            return "its process is gone"
        with self._lock:
            return self._why_silent(self._silence(who, *marks, now))

    def why_silent(self, launch: LaunchView, now: float) -> str | None:
        """Why a launch is lost whose process beats by itself, as far as the looks have shown; None where a tick must judge."""
        if launch.holder is None or launch.holder.startswith(PLAIN_HOLDER) or self._gone(launch.holder):
            return None
        if any(witness(launch, now) is not None for witness in self._witnesses):
            return None
        with self._lock:
            sign = self._signs.get(launch.launch_id)
            return None if sign is None else self._why_silent(now - sign.at)

    def _why_silent(self, seconds: float) -> str | None:
        return f"it has sent no heartbeat for {seconds:.0f} s" if seconds > LEASE_SECONDS else None

    def _silence(self, who: str, leased: float | None, heartbeat: float, now: float) -> float:
        """Seconds since the last sign that this judge saw. A changed heartbeat and a later lease are signs of now, and so is the
        first look at a process: its marks are of other clocks."""
        known = self._signs.get(who)
        if known is None:
            known = _Sign(leased, heartbeat, now, is_seen=False)
        elif heartbeat != known.heartbeat or (leased or 0.0) > (known.leased or leased or 0.0):
            known = _Sign(max(leased or 0.0, known.leased or 0.0), heartbeat, now, is_seen=True)
        elif known.leased is None:
            known = known._replace(leased=leased)
        self._signs[who] = known
        return now - known.at

    def never_began(self, dagster_run: DagsterRunState | None, now: float) -> str | None:
        """Why a Dagster run will never begin databuild's step: its process died before, or none reported in time.

        A worker that has reported its process may wait for its turn for long, so only its death counts.
        """
        if dagster_run is None:
            return None
        if dagster_run.worker is not None:
            return "its process is gone" if self._gone(dagster_run.worker) else None
        if dagster_run.begin_within is None:
            return None
        with self._lock:
            since = f"begin of Dagster run {dagster_run.dagster_run_id} ({dagster_run.status.value})"
            if self._silence(since, None, 0.0, now) <= dagster_run.begin_within:
                return None
        return f"no process has begun its Dagster run {dagster_run.dagster_run_id} in the time that Dagster gives it"

    def believed(
        self, who: str, dagster_run: DagsterRunState | None, marks: Marks, now: float
    ) -> DagsterRunState | None:
        """The state of a Dagster run by the heartbeat: a Dagster run that was marked as failed from outside runs while the heartbeat
        beats. Dagster's run monitoring asks the run launcher, which knows no run that a command executes itself."""
        if dagster_run is None or not dagster_run.is_disowned or dagster_run.holder is None:
            return dagster_run
        if self.why_gone(who, dagster_run.holder, marks, now) is not None:
            return dagster_run
        return dagster_run._replace(status=DagsterRunStatus.RUNNING, error=None)

    def died_with_its_process(self, dagster_run: DagsterRunState | None) -> bool:
        """Whether a Dagster run can never end, because the process that executed it is gone."""
        return (
            dagster_run is not None
            and not dagster_run.status.ended
            and dagster_run.holder is not None
            and self._gone(dagster_run.holder)
        )

    def abandoned(self, launch: LaunchView, now: float) -> bool:
        """Whether a second orchestrator may take over a launch that has no Dagster run."""
        return now - launch.buffered_at > OWNERSHIP_SECONDS or self._gone(launch.owner)
