"""Waiting for what others build, holding nothing: until it is live or failed, or is this run's to build after all (SPEC 8.3).

An active delegation follows the ref from job run to job run, through dep miss, retry, loss and cancellation. It holds no
lease, but where Dagster counts runs it does hold a slot; if that is what the others wait for, it gives way.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event

from dagster import Failure

from databuild_dagster.bindings.claims.claims import Hosting, take_over
from databuild_dagster.bindings.claims.run_messages import gave_way, stalled
from databuild_dagster.bindings.claims.run_request import Asking
from databuild_dagster.bindings.claims.slot_deadlock import patience
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.commands import GiveUpDelegations
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.states import FAILING, LEASED, InstanceState

#: How often it looks whether others are done.
POLL_SECONDS = 1.0
#: How long it waits for a launch that has not begun before it does that work itself.
TAKE_OVER_SECONDS = 10.0


@dataclass(slots=True)
class News:
    """What one look at the refs that are waited for has found."""

    #: Ref to the instance that serves.
    live: dict[str, str] = field(default_factory=dict)
    #: Ref to why its build failed.
    failed: dict[str, str] = field(default_factory=dict)
    #: What the waiting run is to build itself, and goes on waiting for.
    hosting: Hosting | None = None
    #: Ref, not waited for any more, to what is to be built before it and waits for the slot of this run.
    left: dict[str, tuple[str, ...]] = field(default_factory=dict)


class Waiting:
    """A context manager around the wait of one step; whatever ends it early is told to the ledger."""

    def __init__(
        self,
        engine: Engine,
        datasets: Mapping[str, DatasetSpec],
        asking: Asking,
        join: Mapping[str, str],
        *,
        since: float,
        timeout_seconds: float,
        claim: Callable[[Sequence[str]], Hosting],
        in_the_way_of: Callable[[Iterable[str], float], tuple[str, ...]],
    ) -> None:
        #: Ref to the job run that builds it at present.
        self.waiting = dict(join)
        self._engine = engine
        self._datasets = datasets
        self._asking = asking
        self._timeout_seconds = timeout_seconds
        self._claim = claim
        self._in_the_way_of = in_the_way_of
        self._patience_seconds = patience()
        #: When this run began to wait for anything, as the engine's `steady` measures.
        self._since = since
        self._pause = Event()

    def __enter__(self) -> "Waiting":
        return self

    def __exit__(self, kind: type[BaseException] | None, ended: BaseException | None, trace: object) -> None:
        if kind is None:
            return
        why = ended.description if isinstance(ended, Failure) else None
        self._give_up(why or "its Dagster run was interrupted")

    def look(self) -> News:
        """Look once. Raises Dagster's `Failure`, which names the stalled job run, when the time is up."""
        news = News()
        free = []
        now = self._engine.now()
        for ref, canonical in self._engine.queries.canonical(list(self.waiting)).items():
            # What backs off is tried again later, by whoever is first then.
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
        waited = self._engine.steady() - self._since
        if free:
            claimed = self._claim(free)
            news.hosting = replace(claimed, join={**self.waiting, **claimed.join})
        elif self.waiting and waited > self._timeout_seconds:
            if not news.live and not news.failed:
                raise Failure(stalled(self.waiting, self._timeout_seconds), allow_retries=False)
        elif self.waiting and waited > TAKE_OVER_SECONDS:
            news.hosting = self._take_over()
            if news.hosting is None and waited > self._patience_seconds:
                news.left = self._give_way()
        return news

    def pause(self) -> None:
        """Until the next look."""
        self._pause.wait(POLL_SECONDS)

    def _take_over(self) -> Hosting | None:
        """A launch that never begins may be waiting for the very slot that this Dagster run holds (SPEC 8.2)."""
        for job_run_id in dict.fromkeys(self.waiting.values()):
            hosting = take_over(self._engine, self._datasets, job_run_id, self._asking)
            if hosting is not None and hosting.launch_id is not None:
                built_here = {ref for run in hosting.job_runs for ref in run.refs}
                left = {ref: each for ref, each in self.waiting.items() if ref not in built_here}
                return replace(hosting, join=left)
        return None

    def _give_way(self) -> dict[str, tuple[str, ...]]:
        """What waits for inputs that wait for the slot of this Dagster run is not waited for any more."""
        needed = self._in_the_way_of(self.waiting, self._patience_seconds)
        if not needed:
            return {}
        left = dict.fromkeys(self.waiting, needed)
        self._give_up(gave_way(list(left), needed))
        self.waiting.clear()
        return left

    def _give_up(self, why: str) -> None:
        if not self.waiting:
            return
        run_id = self._asking.dagster_run_id
        self._engine.handle(
            GiveUpDelegations(requester=run_id, reason=why, refs=tuple(self.waiting)),
            actor=f"dagster run {run_id}",
        )
