"""A step waits for refs that other runs build, until each is live or failed, or this run has to build it (rule 8.3).

An active delegation follows the ref from job run to job run, through dep miss, retry, loss and cancellation. It holds no
lease, but where Dagster limits runs, of all kinds, by tag or by pool, it holds a slot. Dagster does not know that a launch
queued for a slot may build inputs of the refs that the holder waits for. Such a run would wait until its time limit, so it
ends like a run that misses an input; the want that it left builds its refs (decision 0023).
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from threading import Event

from dagster import DagsterInstance, DagsterRunStatus, Failure

from databuild_dagster.bindings.claims.claims import Asking, Hosting, take_over
from databuild_dagster.bindings.claims.launcher import LAUNCHES_PER_QUERY, runs_of_launches
from databuild_dagster.bindings.claims.run_messages import gave_way, stalled
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.why.awaited import launches_not_begun
from databuild_dagster.model.commands import GiveUpDelegations
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import FAILING, LEASED, InstanceState

#: Time between two looks at the store.
POLL_SECONDS = 1.0
#: A launch that has not begun after this time is started by the waiting run.
TAKE_OVER_SECONDS = 10.0
#: A run gives its slot up when it has waited, and a launch has been queued, for one to two times as long. A launch leaves
#: the queue in a few seconds if a slot is free. The time is random because a single freed slot is mostly enough.
GIVE_WAY_SECONDS = 30.0

#: The launch has a slot.
_BEGINNING = (DagsterRunStatus.STARTING, DagsterRunStatus.STARTED)


@dataclass(slots=True)
class News:
    """The changes that a look at the store has found."""

    #: Ref to its live instance.
    live: dict[Ref, str] = field(default_factory=dict)
    #: Ref to the reason of its failure.
    failed: dict[Ref, str] = field(default_factory=dict)
    #: The job runs that the waiting run has to build itself, and the refs that it still waits for.
    hosting: Hosting | None = None
    #: Ref that the run has given up, to the refs built before it that are queued for this run's slot.
    left: dict[Ref, tuple[Ref, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class Waiting:
    """A context manager around the wait of a step. If an error ends the wait, the ledger records the reason."""

    engine: Engine
    datasets: Mapping[str, DatasetSpec]
    asking: Asking
    #: Ref to the job run that builds it now.
    waiting: dict[Ref, str]
    _: KW_ONLY
    #: When this run began to wait, by the engine's `steady` clock.
    since: float
    timeout_seconds: float
    claim: Callable[[Sequence[Ref]], Hosting]
    in_the_way_of: Callable[[Iterable[Ref], float], tuple[Ref, ...]]
    patience_seconds: float = field(default_factory=lambda: GIVE_WAY_SECONDS * random.uniform(1, 2))
    _pause: Event = field(default_factory=Event)

    def __enter__(self) -> "Waiting":
        return self

    def __exit__(self, kind: type[BaseException] | None, ended: BaseException | None, trace: object) -> None:
        if kind is None:
            return
        why = ended.description if isinstance(ended, Failure) else None
        self._give_up(why or "its Dagster run was interrupted")

    def look(self) -> News:
        """Read the store once. Raises Dagster's `Failure`, which names the stalled job run, at the time limit."""
        news = News()
        free = []
        now = self.engine.now()
        for ref, canonical in self.engine.queries.canonical.of(list(self.waiting)).items():
            # After its backoff the first claim or tick retries the ref.
            if canonical.state in LEASED or (canonical.retry_at or 0.0) > now:
                self.waiting[ref] = canonical.job_run or self.waiting[ref]
                continue
            del self.waiting[ref]
            if canonical.state is InstanceState.LIVE and canonical.uuid is not None:
                news.live[ref] = canonical.uuid
            elif canonical.state in FAILING:
                news.failed[ref] = canonical.reason or "its build failed"
            else:
                free.append(ref)
        waited = self.engine.steady() - self.since
        if free:
            claimed = self.claim(free)
            news.hosting = replace(claimed, join={**self.waiting, **claimed.join})
        elif self.waiting and waited > self.timeout_seconds:
            if not news.live and not news.failed:
                raise Failure(stalled(self.waiting, self.timeout_seconds), allow_retries=False)
        elif self.waiting and waited > TAKE_OVER_SECONDS:
            news.hosting = self._take_over()
            if news.hosting is None and waited > self.patience_seconds:
                news.left = self._give_way()
        return news

    def pause(self) -> None:
        """Wait for the next look."""
        self._pause.wait(POLL_SECONDS)

    def _take_over(self) -> Hosting | None:
        """Start a launch that has not begun: it may be queued for the slot of this Dagster run (rule 8.2)."""
        for job_run_id in dict.fromkeys(self.waiting.values()):
            hosting = take_over(self.engine, self.datasets, job_run_id, self.asking)
            if hosting is not None and hosting.launch_id is not None:
                built_here = {ref for run in hosting.job_runs for ref in run.refs}
                others = {ref: job_run for ref, job_run in self.waiting.items() if ref not in built_here}
                return replace(hosting, join=others)
        return None

    def _give_way(self) -> dict[Ref, tuple[Ref, ...]]:
        """Stop waiting if launches before the refs are queued for the slot of this Dagster run."""
        needed = self.in_the_way_of(self.waiting, self.patience_seconds)
        if not needed:
            return {}
        left = dict.fromkeys(self.waiting, needed)
        self._give_up(gave_way(list(left), needed))
        self.waiting.clear()
        return left

    def _give_up(self, why: str) -> None:
        if not self.waiting:
            return
        run_id = self.asking.dagster_run_id
        self.engine.handle(
            GiveUpDelegations(requester=run_id, reason=why, refs=tuple(self.waiting)), actor=f"dagster run {run_id}"
        )


def in_the_way_of(
    engine: Engine, instance: DagsterInstance, waiting: Iterable[Ref], patience_seconds: float
) -> tuple[Ref, ...]:
    """The refs that the awaited refs need and whose launches have been queued for a slot longer than the patience.

    Empty while any launch of the needed refs runs.
    """
    needed_by = launches_not_begun(engine, waiting)
    if not needed_by:
        return ()
    # Of more launches it suffices that none of these runs.
    launches = list(needed_by)[:LAUNCHES_PER_QUERY]
    found = runs_of_launches(instance, launches)
    if any(record.dagster_run.status in _BEGINNING for _, record in found):
        return ()
    now = engine.clock()
    behind = [
        launch_id
        for launch_id, record in found
        if record.dagster_run.status is DagsterRunStatus.QUEUED
        and now - record.create_timestamp.timestamp() > patience_seconds
    ]
    return tuple(dict.fromkeys(ref for launch_id in behind for ref in needed_by[launch_id]))
