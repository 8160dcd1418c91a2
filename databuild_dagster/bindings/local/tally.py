"""From the event log to the state of each ref of a build, the seconds of each asset, and the end of each job run.

A ref has one state, that of its canonical instance: a dep miss is no end, because the ref goes on when its inputs are live.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from databuild_dagster.engine.holders import this_process
from databuild_dagster.model import events as e
from databuild_dagster.model.events import Event
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.store.queries.queries import Queries

#: The columns of a count, and the states of refs that each counts (rule 4.1); None is a ref without an instance.
COLUMNS: dict[str, tuple[InstanceState | None, ...]] = {
    "live": (InstanceState.LIVE,),
    "building": (InstanceState.BUILDING,),
    "waiting": (InstanceState.UPSTREAM_BUILDING, InstanceState.UP_FOR_RETRY, InstanceState.TAINTED, None),
    "failed": (InstanceState.FAILED, InstanceState.UPSTREAM_FAILED),
}
_COLUMN_OF = {state: name for name, states in COLUMNS.items() for state in states}
#: Events that are read at a time.
PAGE = 1000
#: Levels of inputs that are followed from a ref that waited before the build began.
MAX_LEVELS = 100


@dataclass
class Launch:
    """One launch, as far as the log has it."""

    #: This process buffered or started it.
    is_ours: bool
    refs: dict[Ref, None] = field(default_factory=dict)
    #: Job runs that have not ended.
    open_runs: set[str] = field(default_factory=set)
    #: By the engine's clock. A launch that this process buffered begins at once: it may start a JVM before its step.
    began_at: float | None = None
    has_started: bool = False
    ended_at: float | None = None

    def seconds(self, now: float) -> float:
        """From its begin to its last job run's end, or to now; 0 before the begin."""
        if self.began_at is None:
            return 0.0
        return max((now if self.ended_at is None else self.ended_at) - self.began_at, 0.0)


class Tally:
    """The refs of a request and the inputs that they need, and all that this process builds."""

    def __init__(self, queries: Queries, refs: Sequence[Ref], first_seq: int) -> None:
        self.asked = tuple(dict.fromkeys(refs))
        #: Of every ref that is counted, the state at the last look.
        self.states: dict[Ref, InstanceState | None] = {}
        #: By id, those with job runs after the first seq.
        self.launches: dict[str, Launch] = {}
        #: The job runs of this process that have ended.
        self.outcomes: dict[str, JobRunState] = {}
        self._queries = queries
        #: The last event that was looked at.
        self.seq = first_seq
        self._launch_of: dict[str, Launch] = {}
        #: The refs that this process built with the rows that they had (rule 4.8).
        self.equal: set[Ref] = set()
        #: Refs that got an earlier instance in place of a build (rule 4.9).
        self.returned: set[Ref] = set()
        #: Ref to the inputs that it missed, and to the other outputs of its job run.
        self._needs: dict[Ref, dict[Ref, None]] = {}
        #: Refs that a job run of the log made live: their states need no question.
        self._built: set[Ref] = set()

    def look(self) -> None:
        """Read the log from the last look on, then the states that may have changed."""
        while page := self._queries.events.after(self.seq, PAGE):
            for event in page:
                self._apply(event)
            self.seq = page[-1].seq
            if len(page) < PAGE:
                break
        for _ in range(MAX_LEVELS):
            refs = self._counted()
            asked = [ref for ref in refs if ref not in self._built]
            found = self._queries.canonical.states(asked) if asked else {}
            self.states = {ref: found.get(ref, InstanceState.LIVE) for ref in refs}
            if not self._follow_earlier_misses():
                return

    def count(self) -> dict[str, Counter[str]]:
        """By asset, the number of refs in each of `COLUMNS`: each ref once."""
        found: dict[str, Counter[str]] = {}
        for ref, state in self.states.items():
            found.setdefault(asset_of(ref), Counter())[_COLUMN_OF[state]] += 1
        return found

    def n_live(self) -> int:
        """The number of refs of the request that are live."""
        return sum(self.states.get(ref) is InstanceState.LIVE for ref in self.asked)

    def seconds(self, now: float) -> dict[str, float]:
        """By asset, how long its launches took up to now; a launch of several assets counts for each."""
        found: defaultdict[str, float] = defaultdict(float)
        for launch in self.launches.values():
            for asset in {asset_of(ref) for ref in launch.refs if ref in self.states}:
                found[asset] += launch.seconds(now)
        return dict(found)

    def running(self) -> dict[str, tuple[str, ...]]:
        """By asset, the launches that build it now."""
        found: dict[str, tuple[str, ...]] = {}
        for launch_id, launch in self.launches.items():
            if launch.has_started and launch.ended_at is None:
                for asset in {asset_of(ref) for ref in launch.refs}:
                    found[asset] = (*found.get(asset, ()), launch_id)
        return found

    def _counted(self) -> dict[Ref, None]:
        ours = (ref for launch in self.launches.values() if launch.is_ours for ref in launch.refs)
        return self._needed() | dict.fromkeys(ours)

    def _needed(self) -> dict[Ref, None]:
        needed = dict.fromkeys(self.asked)
        left = list(self.asked)
        for ref in left:
            new = [other for other in self._needs.get(ref, ()) if other not in needed]
            needed |= dict.fromkeys(new)
            left += new
        return needed

    def _follow_earlier_misses(self) -> bool:
        """Add the inputs of refs that waited before the first seq, so that no event names them; true if there are any."""
        early = [
            ref
            for ref, state in self.states.items()
            if state is InstanceState.UPSTREAM_BUILDING and ref not in self._needs
        ]
        if not early:
            return False
        uuids = {ref: canonical.uuid or "" for ref, canonical in self._queries.canonical.of(early).items()}
        missing = self._queries.planning.missing_of_each(uuids.values())
        self._needs |= {ref: dict.fromkeys(missing.get(uuid, ())) for ref, uuid in uuids.items()}
        return True

    def _apply(self, event: Event) -> None:
        match event.fact:
            case e.JobRunBuffered(launch_id=launch_id, owner=owner, runs=runs):
                is_ours = owner == this_process()
                launch = Launch(is_ours, began_at=event.at if is_ours else None)
                self.launches[launch_id] = launch
                for run in runs:
                    self._buffered(launch, run.job_run_id, run.refs)
            case e.JobRunStarted(launch_id=launch_id, holder=holder, job_run_ids=started):
                if (known := self.launches.get(launch_id)) is None:
                    if holder != this_process():
                        return
                    known = self._adopted(launch_id, started)
                known.has_started = True
                known.began_at = event.at if known.began_at is None else known.began_at
                known.is_ours = known.is_ours or holder == this_process()
            case e.JobRunSucceeded(runs=successes):
                self._ended(event, JobRunState.SUCCEEDED, (run.job_run_id for run in successes))
                self._built.update(output.ref for run in successes for output in run.outputs)
                ours = (run for run in successes if run.job_run_id in self.outcomes)
                self.equal.update(o.ref for run in ours for o in run.outputs if o.same_data_as is not None)
            case e.JobRunDepMissed(misses=misses):
                for impact in (impact for miss in misses for impact in miss.impacted):
                    self._needs.setdefault(impact.ref, {}).update(dict.fromkeys(impact.missing))
                self._ended(event, JobRunState.DEP_MISSED, (miss.job_run_id for miss in misses))
            case e.JobRunFailed(failures=failures):
                self._ended(event, JobRunState.FAILED, (failure.job_run_id for failure in failures))
            case e.JobRunLost(failures=failures):
                self._ended(event, JobRunState.LOST, (failure.job_run_id for failure in failures))
            case e.JobRunCanceled(job_run_ids=canceled):
                self._ended(event, JobRunState.CANCELED, canceled)
            case e.InstancesReturned(returns=returns):
                self.returned.update(one.ref for one in returns)
            case e.TaintCreated():
                self._built.clear()

    def _buffered(self, launch: Launch, job_run_id: str, refs: Sequence[Ref]) -> None:
        self._launch_of[job_run_id] = launch
        launch.open_runs.add(job_run_id)
        launch.refs |= dict.fromkeys(refs)
        self._built.difference_update(refs)
        if len(refs) > 1:
            for ref in refs:
                self._needs.setdefault(ref, {}).update(dict.fromkeys(other for other in refs if other != ref))

    def _adopted(self, launch_id: str, job_run_ids: Iterable[str]) -> Launch:
        """A launch that another process buffered before the first seq, and did not live to start."""
        launch = self.launches[launch_id] = Launch(is_ours=True)
        for job_run in self._queries.job_runs.named(job_run_ids).values():
            self._buffered(launch, job_run.id, job_run.refs)
        return launch

    def _ended(self, event: Event, outcome: JobRunState, job_run_ids: Iterable[str]) -> None:
        for job_run_id in job_run_ids:
            if (launch := self._launch_of.get(job_run_id)) is None:
                continue
            launch.open_runs.discard(job_run_id)
            if not launch.open_runs:
                launch.ended_at = event.at
            if launch.is_ours:
                self.outcomes[job_run_id] = outcome
