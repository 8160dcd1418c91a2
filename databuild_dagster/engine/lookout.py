"""Looks between the ticks of a process, so that a judge observes silence without a break (rule 6.9).

A sensor's ticks may be a minute apart, by its interval or because Dagster evaluates other slow sensors first. Their gap
says nothing about what happened in it: the process may have been stopped, or the database away.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from threading import Thread
from typing import Final, NamedTuple

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.judge import Judge
from databuild_dagster.model.commands import LoseLaunches
from databuild_dagster.model.logs import log_failure, logger
from databuild_dagster.store.errors import StoreUnusable

#: The actor in the log.
ACTOR: Final = "lookout"
#: Seconds between two looks: a break is three times as long.
LOOK_SECONDS: Final = 5.0
#: If the last tick was longer ago, by its interval or because of slow sensors, a lookout declares silent launches lost itself: with
#: a beat every 10 s and a lease of 30 s, a dead host is noticed 45 s after its last beat at any interval.
MAX_SECONDS_SINCE_TICK: Final = 5.0
#: A lookout ends when no tick has kept it for so long.
MAX_UNKEPT_SECONDS: Final = 600.0

_log = logger(__name__)


def look_at(engine: Engine, judge: Judge, names: Iterable[str]) -> tuple[Mapping[str, float], float]:
    """Let a judge look at processes; their last heartbeats, and the time of the look by the judge's clock. That is the time after the
    answer: while the question waits for a database that is away, no process can beat."""
    heartbeats = engine.heartbeats.last(names)
    now = engine.steady()
    judge.look(now, heartbeats)
    return heartbeats, now


class Lookout:
    """A thread that reads the heartbeats which a judge observes. A judge has a single lookout; it runs while there are heartbeats."""

    def __init__(self, engine: Engine, judge: Judge, names: Callable[[], Iterable[str]]) -> None:
        self._engine, self._judge, self._names = engine, judge, names
        self._kept_at = 0.0
        self._thread: Thread | None = None

    def keep(self) -> None:
        """Let it look until the next tick."""
        self._kept_at = self._engine.steady()
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=self._live, name="databuild lookout", daemon=True)
            self._thread.start()

    def look(self) -> bool:
        """Look once; returns whether anything is left to observe."""
        names = list(self._names())
        if names:
            _, now = look_at(self._engine, self._judge, names)
            if now - self._kept_at > MAX_SECONDS_SINCE_TICK:
                lose_silent(self._engine, self._judge, now)
        return bool(names)

    def _live(self, pause: Callable[[float], object] = time.sleep) -> None:
        while self._engine.steady() - self._kept_at < MAX_UNKEPT_SECONDS:
            pause(LOOK_SECONDS)
            try:
                if not self.look():
                    return
            except StoreUnusable:
                # The next tick reports it, and the judge observes from then on.
                return
            except Exception as error:
                log_failure(_log, "a look between two ticks failed; the next tick looks again", error)
                return


def lookout_over_launches(engine: Engine, judge: Judge) -> Lookout:
    """A lookout that finds open launches by itself: a launch may begin and die between two ticks."""
    return Lookout(engine, judge, lambda: [launch.launch_id for launch in engine.queries.launches.open()])


class LostBetween(NamedTuple):
    """A launch that was declared lost between two ticks."""

    why: str
    dagster_run_id: str | None


def lose_silent(engine: Engine, judge: Judge, now: float) -> None:
    """Declare the launches lost whose process had fallen silent by the last look. The next tick does the rest (`lost_between_ticks`).

    A process of this machine that is gone is left to the tick, which adopts what it has finished; what a silent process has finished
    is adopted by the next build of its refs (rule 6.9).
    """
    for launch in engine.queries.launches.open():
        why = judge.why_silent(launch, now)
        if why and engine.handle(LoseLaunches(launch_ids=(launch.launch_id,), reason=why), actor=ACTOR).events:
            lost = engine.memory.of(LostBetween, dict[str, LostBetween])
            lost[launch.launch_id] = LostBetween(why, launch.dagster_run_id)


def lost_between_ticks(engine: Engine) -> dict[str, LostBetween]:
    """The launches that this process declared lost since the last call."""
    lost = engine.memory.of(LostBetween, dict[str, LostBetween])
    return {launch_id: lost.pop(launch_id) for launch_id in list(lost)}
