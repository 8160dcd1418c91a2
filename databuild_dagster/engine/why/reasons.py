"""The state of a ref in words, for plans and explanations. Everything is read in bulk, by key."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Final, NamedTuple

from databuild_dagster.engine.wording import when
from databuild_dagster.model.pauses import PauseInForce
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.model.wording import few_of, one_line, typed
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.instances import Taint
from databuild_dagster.store.queries.job_runs import JobRunView
from databuild_dagster.store.queries.queries import Queries

#: A launch is slow after so many times its usual duration, which needs so many past launches, and not before so many seconds.
TIMES_USUAL: Final = 5
MIN_PAST: Final = 3
MIN_SECONDS: Final = 60.0


class StartedRun(NamedTuple):
    """A job run that has started."""

    launch_id: str
    job_run: str
    ref: Ref
    since: float


def slow_launches(queries: Queries, running: Iterable[StartedRun], now: float) -> dict[str, str]:
    """A clause about each slow launch among the launches of some job runs, by launch id (rule 8.3).

    The usual duration of a job run is the duration in `metrics`; the durations of a launch's job runs are added.
    """
    found: dict[str, str] = {}
    for run in {run.launch_id: run for run in running if now - run.since >= MIN_SECONDS}.values():
        spans = queries.launches.spans(asset_of(run.ref))
        of_one = median(span.seconds / span.n_job_runs for span in spans) if len(spans) >= MIN_PAST else 0.0
        usual = of_one * len(queries.job_runs.of_launch(run.launch_id))
        if usual and now - run.since >= TIMES_USUAL * usual:
            found[run.launch_id] = (
                f", {(now - run.since) / usual:.0f} times as long as usual, so its work may stand still: "
                f"`databuild want cancel --job-runs --retry {typed(run.job_run)}` builds it again"
            )
    return found


_S = InstanceState
#: Names of missing inputs that a sentence lists.
NAMED = 3
#: Missing inputs that only a person can bring.
_FAILED = {_S.FAILED: "which failed", _S.UPSTREAM_FAILED: "whose inputs failed"}
#: The words of `counted`, in their order.
_COUNTED: dict[InstanceState | None, str] = {
    _S.FAILED: "failed",
    _S.UPSTREAM_FAILED: "upstream failed",
    None: "never built",
    _S.TAINTED: "tainted",
    _S.UP_FOR_RETRY: "to be tried again",
    _S.UPSTREAM_BUILDING: "waiting for inputs",
    _S.BUILDING: "being built",
    _S.LIVE: "live",
}


def counted(counts: Mapping[InstanceState | None, int]) -> str:
    """The number of refs in each state: "28 never built, 2 being built"."""
    return ", ".join(f"{counts[state]} {words}" for state, words in _COUNTED.items() if counts.get(state))


@dataclass(frozen=True)
class KnownRefs:
    """The store's facts about refs."""

    canonical: dict[Ref, Canonical]
    #: By ref, for refs that are not live.
    job_runs: dict[Ref, JobRunView]
    taints: dict[Ref, tuple[Taint, ...]]
    missing: dict[Ref, tuple[Ref, ...]]
    #: Of the missing refs.
    states: dict[Ref, InstanceState | None]
    #: Of the refs that are paused.
    pauses: dict[Ref, PauseInForce]
    #: By launch id, a clause about each that runs much longer than usual.
    slow: dict[str, str]
    #: Of live refs, the first instance with the rows that readers see (rule 4.8); a ref without an earlier one is left out.
    rows_of: dict[Ref, str]

    def state(self, ref: Ref) -> InstanceState | None:
        return self.canonical[ref].state

    def why(self, ref: Ref, now: float) -> str:
        """The reason for a ref's state, as the rest of a sentence that begins with the ref."""
        known = self.canonical[ref]
        match known.state:
            case None:
                return "never built"
            case _S.LIVE:
                since = "" if known.live_at is None else f" since {when(known.live_at)}"
                equal = f" with the rows of {self.rows_of[ref]}" if ref in self.rows_of else ""
                return f"live{since}, instance {known.uuid}{equal}"
            case _S.TAINTED:
                taints = (f"{one_line(taint.reason)} by {taint.actor}" for taint in self.taints.get(ref, ()))
                return "tainted: " + "; ".join(taints)
            case _S.UP_FOR_RETRY:
                after = f", after: {one_line(known.reason)}" if known.reason else ""
                if known.retry_at is not None and known.retry_at > now:
                    return f"retry at {when(known.retry_at)}{after}"
                return f"to be tried again{after}"
            case _S.BUILDING:
                return self._being_built(ref)
            case _S.UPSTREAM_BUILDING:
                return f"waits for {few_of(self.missing.get(ref, ()), NAMED)}, as job run {known.job_run} found"
            case _S.FAILED:
                return (
                    f"failed in job run {known.job_run} with: {one_line(known.reason or 'no reason given').rstrip('.')}"
                )
            case _S.UPSTREAM_FAILED:
                return self._needs_failed(ref) or f"not built: {one_line(known.reason or '')}"

    def _needs_failed(self, ref: Ref) -> str:
        """Failed, upstream failed and other missing inputs, each named (rule 6.12); empty if none has failed."""
        by_state: dict[InstanceState | None, list[Ref]] = {}
        for need in self.missing.get(ref, ()):
            by_state.setdefault(self.states[need], []).append(need)
        found = [(by_state.pop(state), words) for state, words in _FAILED.items() if state in by_state]
        if not found:
            return ""
        named = ", and ".join([f"{few_of(needs, NAMED)}, {words}" for needs, words in found])
        others = counted({state: len(needs) for state, needs in by_state.items()}) if by_state else ""
        return f"needs {named}" + (f"; of its other missing inputs: {others}" if others else "")

    def _being_built(self, ref: Ref) -> str:
        run = self.job_runs[ref]
        if run.state is JobRunState.QUEUED or run.started_at is None:
            return f"queued as job run {run.id} since {when(run.buffered_at)}"
        return f"being built by job run {run.id} since {when(run.started_at)}{self.slow.get(run.launch_id, '')}"


def look_up(queries: Queries, refs: Iterable[Ref], now: float) -> KnownRefs:
    """The store's facts about `refs` now."""
    canonical = queries.canonical.of(list(refs))

    def in_state(*states: InstanceState) -> dict[Ref, Canonical]:
        return {ref: known for ref, known in canonical.items() if known.state in states}

    building = {ref: known.job_run or "" for ref, known in in_state(_S.BUILDING).items()}
    tainted = {ref: known.uuid or "" for ref, known in in_state(_S.TAINTED).items()}
    waiting = {ref: known.uuid or "" for ref, known in in_state(_S.UPSTREAM_BUILDING, _S.UPSTREAM_FAILED).items()}
    job_runs = queries.job_runs.named(building.values()) if building else {}
    live = {known.uuid or "": ref for ref, known in in_state(_S.LIVE).items()}
    again = [uuid for uuid, ref in live.items() if canonical[ref].has_earlier_rows]
    rows_of = queries.instances.first_with_rows(again, with_erased=False) if again else {}
    started = [(run, run.started_at) for run in job_runs.values() if run.started_at is not None]
    taints = queries.instances.taints_in_force(tainted.values()) if tainted else {}
    missing = queries.planning.missing_of_each(waiting.values()) if waiting else {}
    return KnownRefs(
        canonical=canonical,
        job_runs={ref: job_runs[job_run_id] for ref, job_run_id in building.items()},
        taints={ref: taints.get(uuid, ()) for ref, uuid in tainted.items()},
        missing={ref: missing.get(uuid, ()) for ref, uuid in waiting.items()},
        states=queries.canonical.states(dict.fromkeys(chain.from_iterable(missing.values()))),
        pauses=queries.planning.paused(canonical, now),
        rows_of={live[uuid]: first for uuid, first in rows_of.items()},
        slow=slow_launches(queries, (StartedRun(run.launch_id, run.id, run.refs[0], at) for run, at in started), now),
    )
