"""The refs, their instances, the wants and the pauses, and what follows from them at a glance."""

from __future__ import annotations

from dataclasses import dataclass, field

from databuild_dagster.model.errors import Refused
from databuild_dagster.model.states import InstanceState, WantState

_I, _W = InstanceState, WantState
#: The refusal of a command; None if it is taken.
Answer = type[Refused] | None

NEVER = float("inf")
#: Rule 5.3: a want in one of the others has ended.
OPEN_WANTS = {_W.NEW, _W.IDLE, _W.BUILDING, _W.UPSTREAM_BUILDING}
LEASED = {_I.BUILDING, _I.UPSTREAM_BUILDING}
FAILING = {_I.FAILED, _I.UPSTREAM_FAILED}


@dataclass(eq=False)
class NaiveRun:
    """A job run, and the refs that it builds together."""

    outputs: tuple[str, ...]
    launch_id: str = ""
    #: It has not begun.
    is_queued: bool = True
    #: The instances that readers have seen since it was buffered.
    seen: list[NaiveRef] = field(default_factory=list)


@dataclass(eq=False)
class NaiveRef:
    """An instance of a ref, or none yet."""

    state: InstanceState | None = None
    #: The job run that built it.
    run: NaiveRun = field(default_factory=lambda: NaiveRun((), is_queued=False))
    retry_at: float = 0.0
    attempts: int = 0
    outages: int = 0
    losses: int = 0
    n_misses: int = 0
    #: The cycle that it failed for.
    cycle: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    was_live: bool = False
    #: The instances that it was made of.
    inputs: list[NaiveRef] = field(default_factory=list)
    taints: set[str] = field(default_factory=set)
    #: The content hash of its rows, if it is known.
    rows: str | None = None
    #: The instance of its ref that readers saw last before it, and that was ever live.
    before: NaiveRef | None = None
    #: That one, if it has equal rows (rule 4.8).
    equal_to: NaiveRef | None = None

    @property
    def root(self) -> NaiveRef:
        """The first instance with its rows."""
        return self if self.equal_to is None else self.equal_to.root

    def forget(self) -> None:
        """It is live or tainted, so its failures count from zero."""
        self.attempts = self.outages = self.losses = self.n_misses = 0

    def open(self, retry_at: float = 0.0) -> None:
        """Its lease ends, and its ref may be built again from a time on."""
        self.state, self.retry_at = _I.UP_FOR_RETRY, retry_at


@dataclass(eq=False)
class NaiveWant:
    """A want; `is_derivative` where a dep miss made it."""

    refs: tuple[str, ...]
    is_derivative: bool = False
    #: The Dagster run whose claim recorded it.
    requester: str = ""
    fail_fast: bool = False
    priority: int = 0
    created_at: float = 0.0
    expires_at: float = NEVER
    deadline: float = NEVER
    #: Its missed deadline was recorded.
    is_late: bool = False
    was_met: bool = False
    state: WantState = WantState.NEW
    #: The wants that it is kept for.
    kept_for: frozenset[NaiveWant] = frozenset()
    is_withdrawn: bool = False
    #: Its end was looked at by rule 6.14.
    is_settled: bool = False

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_WANTS

    def acts(self, now: float) -> bool:
        """It is open, and within its TTL."""
        return self.is_open and now < self.expires_at


def urgency_of(wants: list[NaiveWant]) -> tuple[int, float]:
    """The highest priority, negative, and the earliest deadline: the smaller, the more urgent."""
    return -max(want.priority for want in wants), min(want.deadline for want in wants)


class Naive:
    """Everything that is known."""

    def __init__(self, refs: tuple[str, ...]) -> None:
        self.now = 0.0
        #: The canonical instances.
        self.refs = {ref: NaiveRef() for ref in refs}
        #: All instances of each ref, oldest first.
        self.history: dict[str, list[NaiveRef]] = {ref: [] for ref in refs}
        self.wants: list[NaiveWant] = []
        #: Ref to the missing refs of its last dep miss, also when that instance is gone (rule 6.3).
        self.learned: dict[str, set[str]] = {ref: set() for ref in refs}
        #: Ref to the end of its pause (rule 6.13).
        self.pauses: dict[str, float] = {}
        #: (requester, ref) to the last answer other than "built", and its outcome (rules 8.1, 8.3).
        self.delegations: dict[tuple[str, str], tuple[str, str]] = {}
        #: Ref to the origin of the data that came last from outside.
        self.origins: dict[str, str] = {}
        #: The taints that extend downstream (rule 7.3).
        self.extending: set[str] = set()

    # What can be asked about a ref

    def is_paused(self, ref: str) -> bool:
        return self.now < self.pauses.get(ref, 0.0)

    def is_leased(self, ref: str) -> bool:
        return self.refs[ref].state in LEASED

    def is_wanted(self, ref: str) -> bool:
        return bool(self.open_wants(ref))

    def open_wants(self, ref: str) -> list[NaiveWant]:
        return [want for want in self.wants if want.is_open and ref in want.refs]

    def is_wanted_now(self, ref: str) -> bool:
        """Whether an open want of a ref is within its TTL."""
        return any(want.acts(self.now) for want in self.open_wants(ref))

    def is_coming(self, ref: str) -> bool:
        """Whether a ref is being built or, perhaps later, about to be."""
        is_open = self.refs[ref].state in (None, _I.TAINTED, _I.UP_FOR_RETRY)
        return self.is_leased(ref) or (is_open and self.is_wanted_now(ref))

    def is_missed(self, ref: str) -> bool:
        """Whether a waiting ref with an open want misses it."""
        return any(
            row.state is _I.UPSTREAM_BUILDING and ref in row.missing and self.is_wanted(other)
            for other, row in self.refs.items()
        )

    def due(self) -> list[str]:
        """The due refs (rules 4.5, 5.4, 6.13), the most urgent first (rule 11.1)."""
        due = [
            ref
            for ref, row in self.refs.items()
            if (row.state in (None, _I.TAINTED) or (row.state is _I.UP_FOR_RETRY and row.retry_at <= self.now))
            and self.is_wanted_now(ref)
            and not self.is_paused(ref)
        ]
        return sorted(due, key=lambda ref: (*urgency_of(self.open_wants(ref)), self._wanted_since(ref), ref))

    def _wanted_since(self, ref: str) -> float:
        return min(want.created_at for want in self.open_wants(ref))

    def is_stale(self, ref: str) -> bool:
        """Whether the rows that readers see of an input differ from the rows that the ref was built from, or are tainted (rules 4.6, 4.8)."""
        for item in self.refs[ref].inputs:
            now = next(self.refs[other] for other, rows in self.history.items() if item in rows)
            if now is not item and item.state is _I.TAINTED and (now.state is not _I.LIVE or now.rows is None):
                return True
            if now.root is not item.root or now.state is _I.TAINTED:
                return True
        return False

    # Job runs and what they build

    def instances(self) -> list[NaiveRef]:
        return [row for rows in self.history.values() for row in rows]

    def open_runs(self) -> list[NaiveRun]:
        """The job runs that have not ended."""
        return [row.run for row in self.refs.values() if row.state is _I.BUILDING]

    def runs(self, ref: str) -> bool:
        """Whether a job run of a ref has begun and not ended."""
        return self.refs[ref].state is _I.BUILDING and not self.refs[ref].run.is_queued

    def open_of(self, launch_id: str) -> list[NaiveRef]:
        """The instances that the open job runs of a launch build."""
        return [row for row in self.refs.values() if row.state is _I.BUILDING and row.run.launch_id == launch_id]

    def outputs(self, ref: str) -> list[NaiveRef]:
        """The instances that the job run of a ref builds."""
        return [self.refs[output] for output in self.refs[ref].run.outputs]

    def is_needed(self, ref: str) -> bool:
        """Whether an output of the job run of a ref is wanted, or missed by a waiting ref that is (rule 6.10)."""
        return any(self.is_wanted(output) or self.is_missed(output) for output in self.refs[ref].run.outputs)
