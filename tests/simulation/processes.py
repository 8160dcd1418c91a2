"""Virtual processes in virtual time: plain functions, each in a greenlet, stepped one store call at a time.

A step costs its process a little virtual time, drawn from the process's own random numbers, and the process that is
due first goes on; so the interleaving, the delays and the order of everything follow from the seed, and leaving one
process out changes little for the others. Knows nothing of the engine.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate

from greenlet import getcurrent, greenlet

from tests.support.clock import NOON

#: How many of the clocks that are set are hours ahead for a moment; by how much, and for how long.
LEAPS, LEAP_SECONDS, LEAP_LASTS = 0.2, 4 * 3600.0, 10.0


class Crashed(BaseException):
    """The process is no more. Not an `Exception`: nothing a program does about errors helps against kill -9."""


class Broken(AssertionError):
    """What the simulation was looking for: `kind` tells failures apart when a story is shrunk."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


@dataclass(frozen=True)
class Trouble:
    """What may befall a process at each of its steps, as probabilities; and how wrong its clock may be."""

    crash: float = 0.0
    #: Everybody dies at once.
    blackout: float = 0.0
    #: Seconds up to twenty: a slow disk, a long collection of garbage.
    delay: float = 0.0
    #: The whole process stands still, longer than a lease: a suspended laptop.
    freeze: float = 0.0
    #: A user sets its clock.
    jump: float = 0.0
    skew_seconds: float = 0.0


@dataclass(eq=False)
class Process:
    """One incarnation of a virtual process; what runs in it dies with it."""

    name: str
    machine: str
    rng: random.Random
    skew: float = 0.0
    #: Until then its clock is hours ahead.
    leap_ends: float = 0.0
    is_dead: bool = False
    n_steps: int = 0
    frozen_until: float = 0.0
    threads: list[Thread] = field(default_factory=list)
    #: Called once when it has died or ended, with whether it crashed.
    at_end: list[Callable[[bool], None]] = field(default_factory=list)


@dataclass(eq=False)
class Thread:
    """One line of execution of a process."""

    process: Process
    body: greenlet
    is_main: bool


class Scheduler:
    """Virtual time, and whose turn it is."""

    def __init__(self, seed: int, trouble: Trouble, muted: frozenset[str] = frozenset()) -> None:
        self.seed = seed
        self.now = NOON
        self.muted = muted
        #: What befell whom, by names that stay the same when another is left out.
        self.incidents: list[str] = []
        self.processes: dict[str, Process] = {}
        self.story: list[str] = []
        self.is_calm = False
        self.is_over = False
        self.n_steps = 0
        self._skew_seconds = trouble.skew_seconds
        #: Each kind with its share of a die's faces, one after another.
        kinds = ("crash", "blackout", "delay", "freeze", "jump")
        self._troubles = list(zip(kinds, accumulate(getattr(trouble, kind) for kind in kinds), strict=True))
        self._queue: list[tuple[float, int, Thread]] = []
        self._n_queued = 0
        self._current: Thread | None = None
        self._blackout = False
        self._hub = getcurrent()

    # Seen from within a process

    @property
    def current(self) -> Process | None:
        return self._current.process if self._current is not None else None

    def clock_of(self, process: Process) -> Callable[[], float]:
        return lambda: self.now + process.skew + LEAP_SECONDS * (self.now < process.leap_ends)

    def step(self, doing: str) -> None:
        """A point at which the scheduler may switch, delay, or crash the process."""
        process = self.current
        if process is None:
            return
        if process.is_dead:
            raise Crashed
        process.n_steps += 1
        self.n_steps += 1
        wait = process.rng.expovariate(50.0)
        if not self.is_calm:
            wait += self._befalls(process, doing)
        self.sleep(wait)

    def sleep(self, seconds: float) -> None:
        thread = self._current
        assert thread is not None
        if thread.process.is_dead:
            raise Crashed
        self._enqueue(self.now + seconds, thread)
        self.park()

    def park(self) -> None:
        """Until another thread wakes this one."""
        self._hub.switch()

    def wake(self, thread: Thread) -> None:
        self._enqueue(self.now, thread)

    def happens(self, what: str, probability: float) -> bool:
        """Whether an incident befalls the current process now. Recorded, and left out when it is muted."""
        process = self.current
        assert process is not None
        if process.rng.random() >= probability or self.is_calm:
            return False
        incident = f"{process.name} step {process.n_steps}: {what}"
        if incident in self.muted:
            return False
        self.incidents.append(incident)
        return True

    def _befalls(self, process: Process, doing: str) -> float:
        rng = process.rng
        luck, amount = rng.random(), rng.random()
        what = next((what for what, up_to in self._troubles if luck < up_to), None)
        if what is None:
            return 0.0
        incident = f"{process.name} step {process.n_steps}: {what}"
        if incident in self.muted:
            return 0.0
        self.incidents.append(incident)
        match what:
            case "crash":
                self.tell(f"is killed {doing}")
                raise Crashed
            case "blackout":
                self.tell(f"and everybody else is killed, {doing}")
                self._blackout = True
                raise Crashed
            case "delay":
                seconds = 1 + 19 * amount
                self.tell(f"is slow {doing}: {seconds:.0f} s")
                return seconds
            case "freeze":
                seconds = 20 + 100 * amount
                self.tell(f"stands still {doing}: {seconds:.0f} s")
                process.frozen_until = self.now + seconds
            case "jump":
                if amount < LEAPS:
                    process.leap_ends = self.now + LEAP_LASTS
                    self.tell(f"has its clock {LEAP_SECONDS:.0f} s ahead for {LEAP_LASTS:.0f} s, and then right again")
                else:
                    process.skew += 120 * (amount - 0.5)
                    self.tell(f"has its clock set: now {process.skew:+.0f} s")
        return 0.0

    def tell(self, what: str, who: str | None = None) -> None:
        """One line of the story."""
        name = who or (self.current.name if self.current is not None else "the world")
        self.story.append(f"{self.now - NOON:8.2f} s  {name:<24} {what}")

    # Seen from outside

    def start(self, name: str, main: Callable[[Process], None], *, after: float = 0.0) -> Process:
        """A new process under a name that no living one has."""
        assert name not in self.processes, name
        assert not self.is_over
        rng = random.Random(f"{self.seed} {name}")
        process = Process(name, machine=rng.choice(["this machine", "that machine"]), rng=rng)
        process.skew = self._skew_seconds * (2 * rng.random() - 1)
        self.processes[name] = process
        self.start_thread(process, lambda: main(process), is_main=True, after=after)
        return process

    def start_thread(
        self, process: Process, body: Callable[[], None], *, is_main: bool = False, after: float = 0.0
    ) -> Thread:
        thread = Thread(process, greenlet(body, parent=self._hub), is_main)
        process.threads.append(thread)
        self._enqueue(self.now + after, thread)
        return thread

    def _enqueue(self, at: float, thread: Thread) -> None:
        self._n_queued += 1
        heapq.heappush(self._queue, (at, self._n_queued, thread))

    def run_until(self, end: float) -> None:
        """Everything that is due before that time, and everything that becomes so."""
        while self._queue and self._queue[0][0] <= end:
            at, _, thread = heapq.heappop(self._queue)
            self.now = max(self.now, at)
            process = thread.process
            if process.is_dead or thread.body.dead:
                continue
            if process.frozen_until > self.now:
                self._enqueue(process.frozen_until, thread)
                continue
            self._resume(thread)
        self.now = max(self.now, end)

    def _resume(self, thread: Thread) -> None:
        self._current = thread
        try:
            thread.body.switch()
        except Crashed:
            self._bury(thread.process, crashed=True)
        else:
            if thread.body.dead and thread.is_main:
                self._bury(thread.process, crashed=False)
        finally:
            self._current = None
        if self._blackout:
            self._blackout = False
            for process in list(self.processes.values()):
                self.kill(process)

    def kill(self, process: Process) -> None:
        if not process.is_dead:
            self._bury(process, crashed=True)

    def _bury(self, process: Process, *, crashed: bool) -> None:
        process.is_dead = True
        for thread in process.threads:
            if not thread.body.dead:
                # What was never switched to has nothing to unwind.
                self._current = thread
                try:
                    thread.body.throw(Crashed)
                except Crashed:
                    pass
                finally:
                    self._current = None
        del self.processes[process.name]
        for tell in process.at_end:
            tell(crashed)

    def end(self) -> None:
        """No process goes on, and none starts any more."""
        self.is_over = True
        for process in list(self.processes.values()):
            self.kill(process)


class Turns:
    """A fair lock between virtual processes: the store's write lock, as its `WriteLock` is between real ones."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._holder: Thread | None = None
        self._depth = 0
        self._waiting: deque[Thread] = deque()

    def acquire(self) -> None:
        me = self._scheduler._current
        if me is None:
            return
        if self._holder is me:
            self._depth += 1
            return
        if self._holder is None:
            self._holder = me
            return
        self._waiting.append(me)
        try:
            self._scheduler.park()
        except BaseException:
            if self._holder is not me:
                self._waiting.remove(me)
            raise
        assert self._holder is me

    def is_mine(self) -> bool:
        """Held by the process that runs now."""
        return self._holder is not None and self._holder is self._scheduler._current

    def release(self) -> None:
        """Of what the thread has not, nothing."""
        me = self._scheduler._current
        if me is None or self._holder is not me:
            return
        if self._depth:
            self._depth -= 1
            return
        self._holder = self._waiting.popleft() if self._waiting else None
        if self._holder is not None:
            self._scheduler.wake(self._holder)
