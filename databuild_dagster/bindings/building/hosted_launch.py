"""The job runs of a launch in a step: a few threads build them, and the step's thread reports them.

The engine decides first. A result that it rejects is not reported to Dagster.
"""

import atexit
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, assert_never

from dagster import AssetExecutionContext, DagsterRunStatus

from databuild_dagster.bindings.adapter.dagster_private import DagsterExecutionInterruptedError
from databuild_dagster.bindings.building.builds import Builder
from databuild_dagster.bindings.building.owners import Owned
from databuild_dagster.bindings.claims import run_messages
from databuild_dagster.bindings.claims.results import Attempt, Built, Failed, Missed, Result, Stopped
from databuild_dagster.bindings.declare.build_context import HostedRun
from databuild_dagster.bindings.declare.gates import Verdict
from databuild_dagster.bindings.display.ui_events import Painter
from databuild_dagster.data.inputs import Inputs
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.launch_heartbeat import Heartbeat
from databuild_dagster.engine.outages import begin_outage
from databuild_dagster.engine.why.built_again import built_again
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import AD_HOC_LOCATION
from databuild_dagster.model.errors import Refused, StaleJobRun
from databuild_dagster.model.events import RunSuccess
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.set_aside import steady
from databuild_dagster.model.states import JobRunState
from databuild_dagster.model.surroundings import PROBED, Surrounding
from databuild_dagster.model.wording import few_of
from databuild_dagster.spark.failures import explain_failure
from databuild_dagster.warehouse.threads import DaemonThreads

#: The open launches of this process: the Dagster run of each, and the function that abandons it.
_open_launches: dict[str, tuple[str, Callable[[], None]]] = {}

_Ended = TypeVar("_Ended", bound=Built | Missed | Failed)


def end_open_launches(dagster_run_id: str | None = None) -> None:
    """End the launches that steps of this process left open: the launches of a Dagster run, or all.

    An interrupt while Dagster writes an event makes Dagster drop the step's generator without closing it; its launch
    would stay alive as long as its process.
    """
    for launch_id, (run_id, abandon) in list(_open_launches.items()):
        # Another thread may have ended it meanwhile.
        if dagster_run_id in (None, run_id) and _open_launches.pop(launch_id, None) is not None:
            abandon()


atexit.register(end_open_launches)


@dataclass
class Progress:
    """The results of a step so far, of all its launches."""

    #: The last launch.
    launch_id: str | None = None
    n_hosted: int = 0
    live: dict[Ref, str] = field(default_factory=dict)
    #: Ref to its error, in order of occurrence.
    failed: dict[Ref, str] = field(default_factory=dict)
    #: What the function raised for the first of them.
    cause: BaseException | None = None
    missed: dict[Ref, tuple[Ref, ...]] = field(default_factory=dict)
    stopped: dict[Ref, str] = field(default_factory=dict)
    #: Ref that was refused, or that failed elsewhere, to the sentence about it.
    denied: dict[Ref, str] = field(default_factory=dict)
    #: Ref to the verdicts of its gates.
    verdicts: dict[Ref, tuple[Verdict, ...]] = field(default_factory=dict)


@dataclass(eq=False)
class HostedLaunch:
    """A launch that the step hosts, until each of its job runs has ended."""

    id: str
    job_runs: Sequence[HostedRun]
    builder: Builder
    context: AssetExecutionContext
    engine: Engine
    painter: Painter
    progress: Progress
    n_threads: int
    #: The code location, whose launches an outage holds back.
    location: str
    _threads: DaemonThreads[Attempt] | None = None
    #: The first refs that failed with an error and a traceback. An outage gives each partition of a launch the same error.
    _told: dict[tuple[str, str], str] = field(default_factory=dict)
    #: A different thread ends the launch.
    _is_abandoned: bool = False

    def __post_init__(self) -> None:
        ids = [run.id for run in self.job_runs]
        self._heartbeat = Heartbeat(self.engine, self.id, ids, self.builder.stops.stop)
        #: Job runs whose end the engine has not recorded.
        self._unfinished = set(ids)

    def build(self, inputs_of: Callable[[list[Ref]], Mapping[Ref, Inputs]]) -> Iterator[Any]:
        """Build every job run whose inputs are live; yields Dagster's events."""
        with self._heartbeat:
            _open_launches[self.id] = (self.context.run.run_id, self._abandon)
            try:
                inputs = inputs_of([ref for run in self.job_runs for ref in run.refs])
                missing = {ref: found.missing for ref, found in inputs.items() if found.missing}
                ready, misses = [], []
                for run in self.job_runs:
                    if impacted := {ref: missing[ref] for ref in run.refs if ref in missing}:
                        misses.append(Missed(run, impacted))
                    else:
                        ready.append(run)
                yield from self._report(misses)
                yield from self._build_in_threads(ready, inputs)
                if self._is_abandoned:
                    raise DagsterExecutionInterruptedError
            except Exception as error:
                if self._is_abandoned:
                    # The calls that this thread waited for were canceled.
                    raise DagsterExecutionInterruptedError from error
                # An error of ours or of Dagster, not of the asset: the job runs are retried a limited number of times.
                self._end(explain_failure(error), as_failure=True, owned=self.builder.owners.of(error))
                raise
            except BaseException:
                # Interrupted, or Dagster closed the step.
                self._end("interrupted", as_failure=False)
                raise
            finally:
                _open_launches.pop(self.id, None)

    def _build_in_threads(self, runs: Sequence[HostedRun], inputs: Mapping[Ref, Inputs]) -> Iterator[Any]:
        if not runs:
            return
        builder = self.builder
        units = builder.units(runs, inputs)
        threads = self._threads = DaemonThreads[Attempt](min(self.n_threads, len(runs)), "databuild build")
        pending = {threads.submit(builder.build, unit, inputs) for unit in units}
        rests: dict[Future[Attempt], Callable[[], Attempt]] = {}
        try:
            while pending:
                done = wait(pending, return_when=FIRST_COMPLETED).done
                attempts = [future.result() for future in done]
                # Submitted before the results are reported: Spark and the store work while Dagster writes.
                pending |= {
                    threads.submit(builder.build, unit, inputs) for attempt in attempts for unit in attempt.again
                }
                for rest in [attempt.rest for attempt in attempts if attempt.rest is not None]:
                    rests[published := threads.submit(rest)] = rest
                    pending.add(published)
                pending -= done
                yield from self._report([result for attempt in attempts for result in attempt.results])
        except BaseException:
            self._stop("the step was interrupted")
            for future in pending:
                # At once, or when a call ends that took longer than the stop waits.
                future.add_done_callback(partial(_drop_rest, rests))
            raise
        threads.close()

    # Reports

    def _report(self, results: Sequence[Result]) -> Iterator[Any]:
        """Report to the engine, then to Dagster, each kind of result in a single command."""
        built, missed, failed = list[Built](), list[Missed](), list[Failed]()
        for result in results:
            match result:
                case Built():
                    built.append(result)
                case Missed():
                    missed.append(result)
                case Failed():
                    failed.append(result)
                case Stopped():
                    self._stopped(result.run, result.why, f" was stopped: {result.why}.")
                case _:
                    assert_never(result)
        self._heartbeat.reported(result.run.id for result in results)
        built = self._accepted(built, _success)
        missed = self._accepted(missed, _miss)
        failed = self._accepted(failed, _failure)
        self._unfinished.difference_update(result.run.id for result in results)
        accepted: list[Built | Missed | Failed] = [*built, *missed, *failed]
        for result in accepted:
            self.builder.leftovers.settle(result.run)
        yield from self._show(built, missed, failed)

    def _show(self, built: Sequence[Built], missed: Sequence[Missed], failed: Sequence[Failed]) -> Iterator[Any]:
        progress, log = self.progress, self.context.log
        for miss in missed:
            progress.missed.update(miss.impacted)
            for ref, missing in miss.impacted.items():
                if miss.damage:
                    log.error(f"{ref} cannot be built: {miss.damage}")
                else:
                    log.info(f"{ref} waits for {few_of(missing)}.")
        for owner, failure in {failure.owner: failure for failure in failed if failure.owner is not None}.items():
            self._begin_outage(owner, failure.why_out_of_reach)
        for failure in failed:
            if not progress.failed:
                progress.cause = failure.cause
            progress.failed.update(dict.fromkeys(failure.run.refs, failure.error))
            progress.verdicts.update(failure.verdicts)
            refs = few_of(failure.run.refs)
            if (first := self._told.setdefault((steady(failure.error), steady(failure.details)), refs)) != refs:
                log.error(run_messages.failed_alike(failure.run.refs, first, failure.error))
            else:
                log.error(run_messages.failed(failure.run.refs, failure.error, failure.details))
        self.painter.missed(ref for miss in missed for ref in miss.run.refs)
        for output in (output for success in built for output in success.outputs):
            progress.live[output.fact.ref] = output.manifest.instance_uuid
            progress.verdicts[output.fact.ref] = output.verdicts
        yield from self.painter.built(built)

    def _begin_outage(self, what: Surrounding, why: str) -> None:
        """Hold back what needs it, where an orchestrator launches and probes."""
        if self.location != AD_HOC_LOCATION and what in PROBED:
            begin_outage(self.engine, self.location, what, why, self._actor)

    def _accepted(self, results: list[_Ended], command_of: Callable[[Sequence[_Ended]], c.Command]) -> list[_Ended]:
        """The results that the engine recorded. A stale job run does not affect its neighbors."""
        if not results:
            return []
        try:
            self.engine.handle(command_of(results), actor=self._actor)
        except StaleJobRun as stale:
            if len(results) > 1:
                return [accepted for result in results for accepted in self._accepted([result], command_of)]
            (result,) = results
            if isinstance(result, Built) and stale.facts["state"] == JobRunState.SUCCEEDED.value:
                # The orchestrator judged this process dead and adopted its files.
                return results
            self._stopped(result.run, stale.message, f": {stale}")
            self.builder.leftovers.discard(result.run)
            return []
        return results

    def _stopped(self, run: HostedRun, why: str, predicate: str) -> None:
        self.progress.stopped.update(dict.fromkeys(run.refs, why))
        self.context.log.warning(f"{few_of(run.refs)}{predicate}")

    # The end of job runs that this step cannot finish

    def _stop(self, why: str) -> None:
        """Stop all job runs here, and wait for their threads; results that the threads still return are rejected."""
        for job_run_id in list(self._unfinished):
            self.builder.stops.stop(job_run_id, why)
        # Once only: Dagster may close the generator after the launch was abandoned, and Ctrl-C ends the wait.
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.stop(
                lambda: few_of([ref for run in self.job_runs if run.id in self._unfinished for ref in run.refs], 3)
            )

    def _end(self, why: str, *, as_failure: bool, owned: Owned | None = None) -> None:
        """End the unfinished job runs, so that other runs need not wait for their leases to lapse."""
        ids_left = sorted(self._unfinished)
        if not ids_left:
            return
        # Cleared first, so that Dagster's closing of the generator does not end them again.
        self._unfinished.clear()
        self._heartbeat.reported(ids_left)
        # Rule 6.10: wants that were open at a cancellation do not retry it.
        keep_wants = not self._was_terminated()

        def end(ids: Sequence[str]) -> None:
            owner = None if owned is None else owned.owner
            fail = c.FailJobRuns(
                failures=tuple(c.RunFailure(job_run_id, why, "transient", owner) for job_run_id in ids)
            )
            cancel = c.CancelJobRuns(job_run_ids=tuple(ids), reason=why, keep_wants=keep_wants)
            try:
                self.engine.handle(fail if as_failure else cancel, actor=self._actor)
            except Refused:
                # Another process has just ended one of them; the others are ended here.
                for job_run_id in ids if len(ids) > 1 else ():
                    end([job_run_id])

        end(ids_left)
        if owned is not None:
            self._begin_outage(owned.owner, owned.why)
        if not as_failure and not keep_wants:
            refs = [ref for run in self.job_runs if run.id in ids_left for ref in run.refs]
            for sentence in built_again(self.engine, refs):
                self.context.log.warning(sentence)

    def _abandon(self) -> None:
        self._is_abandoned = True
        try:
            self._stop("the Dagster run was interrupted")
        finally:
            self._end("interrupted", as_failure=False)
            self._heartbeat.stop()

    def _was_terminated(self) -> bool:
        """Whether a person terminated the run in Dagster. Ctrl-C is a pause: a later run continues."""
        run = self.context.instance.get_run_by_id(self.context.run.run_id)
        return run is not None and run.status is DagsterRunStatus.CANCELING

    @property
    def _actor(self) -> str:
        return f"dagster run {self.context.run.run_id}"


def _drop_rest(rests: Mapping[Future[Attempt], Callable[[], Attempt]], future: Future[Attempt]) -> None:
    """Remove the files that a call of a stopped launch leaves: `rests` has what each future was to publish."""
    left: Callable[[], Attempt] | None = None
    if future.cancelled():
        left = rests.get(future)
    elif future.exception() is None and (rest := future.result().rest) not in rests.values():
        left = rest  # No future has it yet.
    while left is not None:
        # A job run that is stopped removes its files.
        left = left().rest


def _success(results: Iterable[Built]) -> c.SucceedJobRuns:
    return c.SucceedJobRuns(
        runs=tuple(RunSuccess(built.run.id, tuple(output.fact for output in built.outputs)) for built in results)
    )


def _miss(results: Iterable[Missed]) -> c.MissDeps:
    return c.MissDeps(
        misses=tuple(c.RunMiss(missed.run.id, dict(missed.impacted), missed.damage) for missed in results)
    )


def _failure(results: Iterable[Failed]) -> c.FailJobRuns:
    return c.FailJobRuns(
        failures=tuple(
            c.RunFailure(failed.run.id, failed.error, "transient" if failed.is_transient else "hard", failed.owner)
            for failed in results
        )
    )
