"""The step of every asset of ours: the one choke point that all builds pass (SPEC 8.1).

What the Dagster run asked for becomes job runs that it was given, refs that others are building, and refs
that are live. The job runs are built by a few threads of one Spark session; the engine and Dagster hear of
each as soon as it is done, from this one thread. Afterwards the others are waited for, holding nothing.
"""

import atexit
import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from dagster import AssetExecutionContext, DagsterRunStatus, Failure

from databuild_dagster.bindings.adapter.asset_keys import asset_key, asset_text
from databuild_dagster.bindings.adapter.dagster_private import BACKFILL_ID_TAG, AssetGraph
from databuild_dagster.bindings.adapter.resource_keys import DEPLOYMENT, SPARK
from databuild_dagster.bindings.adapter.run_tags import (
    DELEGATED_TAG,
    LAUNCH_TAG,
    OUTCOME_DENIED,
    OUTCOME_DEP_MISS,
    SPARK_UI_TAG,
)
from databuild_dagster.bindings.building.builds import Builder
from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.building.provenance import made_with
from databuild_dagster.bindings.claims import run_messages as sayings
from databuild_dagster.bindings.claims.claims import HostedRun, Hosting, begin, claim
from databuild_dagster.bindings.claims.results import Attempt, Built, Failed, Missed, Result, Stopped
from databuild_dagster.bindings.claims.run_request import asking
from databuild_dagster.bindings.claims.slot_deadlock import in_the_way_of
from databuild_dagster.bindings.claims.wait_for_builds import Waiting
from databuild_dagster.bindings.declare.asset_spec import AssetBody
from databuild_dagster.bindings.declare.gates import Verdict
from databuild_dagster.bindings.display.ui_events import Painter
from databuild_dagster.bindings.reading.frames import Frames
from databuild_dagster.bindings.registry.instance import engine_for, warehouse_of
from databuild_dagster.bindings.registry.plain_assets import ForeignAssets
from databuild_dagster.bindings.registry.registration import datasets_of, register, register_ad_hoc
from databuild_dagster.data.inputs import InputFinder, Inputs
from databuild_dagster.engine.launch_heartbeat import Heartbeat
from databuild_dagster.model.commands import (
    CancelJobRuns,
    FailJobRuns,
    MissDeps,
    RunFailure,
    RunMiss,
    SucceedJobRuns,
)
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import Refused, StaleJobRun
from databuild_dagster.model.events import RunSuccess
from databuild_dagster.model.refs import asset_of, partition_key_of
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.model.wording import few_of
from databuild_dagster.spark.progress import watch_progress
from databuild_dagster.spark.session import spark_ui_url
from databuild_dagster.warehouse.threads import DaemonThreads

#: How often a run asks for refs again that others gave up while it waited for them.
MAX_CLAIMS = 20
#: How long threads may take to notice that they were interrupted. Spark's jobs do at once; a function in Python only when
#: it has ended, and what it answers after that is refused.
STOP_SECONDS = 10.0
#: Whoever takes longer is waited for, and that is said.
STOPPED_AT_ONCE_SECONDS = 0.5

_LIVE = InstanceState.LIVE

_log = logging.getLogger(__name__)


#: What this process hosts at the moment, by launch, and how to let go of it.
_open_hostings: dict[str, Callable[[], None]] = {}


def end_open_hostings() -> None:
    """End what a step of this process has left behind.

    An interrupt may come while Dagster writes an event: then it forgets the step's generator without closing
    it, and what the generator hosts would be alive as long as its process.
    """
    while _open_hostings:
        _open_hostings.popitem()[1]()


atexit.register(end_open_hostings)


@dataclass
class _Progress:
    """What has become of the refs so far."""

    n_hosted: int = 0
    live: dict[str, str] = field(default_factory=dict)
    #: Ref to its error, in the order of happening.
    failed: dict[str, str] = field(default_factory=dict)
    missed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    #: Refs that others failed to build, or that were not given.
    denied: dict[str, str] = field(default_factory=dict)
    #: Ref to what its gates said.
    verdicts: dict[str, tuple[Verdict, ...]] = field(default_factory=dict)


def run_step(context: AssetExecutionContext, body: AssetBody, config: Any) -> Iterator[Any]:
    """Yields Dagster's events; raises `Failure` iff a job run failed."""
    yield from _Step(context, body, config).run()


class _Step:
    def __init__(self, context: AssetExecutionContext, body: AssetBody, config: Any) -> None:
        self.context = context
        self.body = body
        self.config = config
        self.deployment: Deployment = getattr(context.resources, DEPLOYMENT)
        self.engine = engine_for(context.instance)
        self.graph: AssetGraph = context.job_def.asset_layer.asset_graph.source_asset_graph
        registered = self._registered()
        #: The selected outputs, in the order of their declaration.
        self.datasets = {asset: registered[asset] for asset in self._selected() if asset in registered}
        self.finder = InputFinder(self.engine, ForeignAssets(context.instance), registered.values())
        self.frames = Frames(
            spark_resource=getattr(context.resources, SPARK),
            warehouse=self.deployment.warehouse or warehouse_of(context.instance),
            graph=self.graph,
            instance=context.instance,
            on_session=self._show_spark,
        )
        self.painter = Painter(context)
        self.builder: Builder | None = None
        self.threads: DaemonThreads[Attempt] | None = None
        self.progress = _Progress()
        ahead_seconds = max(self.engine.now() - self.engine.clock(), 0.0)
        asker = asking(context.instance, context.run, rebuild=self.deployment.rebuild, ahead_seconds=ahead_seconds)
        self.asking = replace(asker, made_with=made_with(context, body.function))
        self.is_backfill = BACKFILL_ID_TAG in context.run.tags
        self.launch_id: str | None = None
        #: When it first had to wait for others, and how often it has taken what they gave up.
        self.waiting_since: float | None = None
        self.n_claims = 0
        #: What is to be let go of with the step.
        self.held = ExitStack()

    def run(self) -> Iterator[Any]:
        with self.held:
            yield from self._run()

    def _run(self) -> Iterator[Any]:
        hosting = begin(
            self.engine,
            self.datasets,
            self._partition_keys(),
            asking=self.asking,
            launch_id=self.context.run.tags.get(LAUNCH_TAG),
            apart=self._with_missing_inputs,
        )
        asked = hosting.asked
        going_on: Hosting | None = hosting
        while going_on is not None:
            yield from self._build(going_on)
            yield from self._reuse(going_on)
            going_on = yield from self._wait_for(going_on.join)
        yield from self._finish(asked)

    def _registered(self) -> dict[str, DatasetSpec]:
        """The store knows the datasets before it is asked; here a graph and an instance are at hand."""
        location = self.deployment.location
        datasets = datasets_of(self.graph, location)
        if self.deployment.is_ad_hoc:
            known = register_ad_hoc(self.engine, location, datasets)
        else:
            outputs = map(asset_text, self.context.assets_def.keys_by_output_name.values())
            known = register(self.engine, location, datasets, building=outputs)
        return {spec.asset: spec for spec in known.datasets.values()}

    def _selected(self) -> list[str]:
        keys = self.context.assets_def.keys_by_output_name.values()
        return [asset_text(key) for key in keys if key in self.context.selected_asset_keys]

    def _partition_keys(self) -> Sequence[str | None]:
        if not any(spec.partitions_def is not None for spec in self.context.assets_def.specs):
            return [None]
        return list(self.context.partition_keys)

    def _with_missing_inputs(self, refs: Sequence[str]) -> set[str]:
        """Outputs of a multi-asset that must not hold up those that could be built (SPEC 6.2)."""
        if len(self.datasets) == 1:
            return set()
        return {ref for ref, inputs in self.finder.of(self.datasets, refs).items() if inputs.missing}

    # Building

    def _build(self, hosting: Hosting) -> Iterator[Any]:
        self.painter.given(hosting)
        if hosting.launch_id is None:
            return
        runs = hosting.job_runs
        self.launch_id = hosting.launch_id
        self.progress.n_hosted += len(runs)
        builder = self.builder = Builder(
            self.context,
            self.body,
            self.config,
            self.datasets,
            self.frames,
            self.finder,
            launch_id=hosting.launch_id,
            threads=self.deployment.threads,
        )
        with Heartbeat(self.engine, hosting.launch_id, [run.id for run in runs], builder.stop) as heartbeat:
            unfinished = {run.id for run in runs}
            _open_hostings[hosting.launch_id] = lambda: self._abandon(builder, unfinished, heartbeat)
            try:
                inputs = self.finder.of(self.datasets, [ref for run in runs for ref in run.refs])
                missing = {ref: found.missing for ref, found in inputs.items() if found.missing}
                misses = [
                    Missed(run, {ref: missing[ref] for ref in run.refs if ref in missing})
                    for run in runs
                    if not missing.keys().isdisjoint(run.refs)
                ]
                yield from self._told(misses, heartbeat, unfinished)
                ready = [run for run in runs if missing.keys().isdisjoint(run.refs)]
                yield from self._build_in_threads(builder, ready, inputs, heartbeat, unfinished)
            except Exception as error:
                # Ours or Dagster's trouble, not the asset's: the job runs are tried again, but not for ever.
                self._end(unfinished, f"{type(error).__name__}: {error}", heartbeat, as_failure=True)
                raise
            except BaseException:
                # Interrupted, or Dagster closed the step.
                self._end(unfinished, "interrupted", heartbeat, as_failure=False)
                raise
            finally:
                _open_hostings.pop(hosting.launch_id, None)

    def _build_in_threads(
        self,
        builder: Builder,
        runs: Sequence[HostedRun],
        inputs: Mapping[str, Inputs],
        heartbeat: Heartbeat,
        unfinished: set[str],
    ) -> Iterator[Any]:
        if not runs:
            return
        units = builder.units(runs, inputs)
        n_threads = min(self.deployment.threads, len(runs))
        threads = self.threads = DaemonThreads[Attempt](n_threads, "databuild build")
        pending = {threads.submit(builder.build, unit, inputs) for unit in units}
        try:
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                attempts = [future.result() for future in done]
                # Begun before the others are told of: Spark works while Dagster writes.
                pending |= {
                    threads.submit(builder.build, unit, inputs) for attempt in attempts for unit in attempt.again
                }
                results = [result for attempt in attempts for result in attempt.results]
                yield from self._told(results, heartbeat, unfinished)
        except BaseException:
            for job_run_id in list(unfinished):
                builder.stop(job_run_id, "the step was interrupted")
            threads.close()
            if wait(pending, timeout=STOPPED_AT_ONCE_SECONDS).not_done:
                _log.warning("Interrupted: stopping, within %.0f seconds.", STOP_SECONDS)
                wait(pending, timeout=STOP_SECONDS)
            raise
        threads.close()

    def _show_spark(self, session: Any) -> None:
        """Link Spark's own UI from the Dagster run, and say in its log how far Spark is."""

        def tell(tag: str, done: int, total: int) -> None:
            # Each operation carries the launch's tag and that of its first job run; once is enough.
            if tag == self.launch_id:
                with _whatever_happens("progress could not be told"):
                    self.context.log.info(f"Spark has done {done} of {total} tasks.")

        with _whatever_happens("the Dagster run could not be linked to Spark's UI"):
            if (url := spark_ui_url(session)) is not None:
                self.painter.tag(SPARK_UI_TAG, url)
            self.held.enter_context(watch_progress(session, tell))

    def _told(self, results: Sequence[Result], heartbeat: Heartbeat, unfinished: set[str]) -> Iterator[Any]:
        """Tell the engine, then Dagster; what the engine does not take any more never happened."""
        heartbeat.reported(result.run.id for result in results)
        built = self._accepted([each for each in results if isinstance(each, Built)], self._succeed)
        missed = self._accepted([each for each in results if isinstance(each, Missed)], self._miss)
        failed = self._accepted([each for each in results if isinstance(each, Failed)], self._fail)
        for stopped in (each for each in results if isinstance(each, Stopped)):
            self.progress.stopped.update(dict.fromkeys(stopped.run.refs, stopped.why))
            self.context.log.warning(f"{few_of(stopped.run.refs)} was stopped: {stopped.why}.")
        unfinished.difference_update(result.run.id for result in results)
        if self.builder is not None:
            for ended in (*built, *missed, *failed):
                self.builder.settle(ended.run)
        for miss in missed:
            self.progress.missed.update(miss.impacted)
            for ref, missing in miss.impacted.items():
                self.context.log.info(f"{ref} waits for {few_of(missing)}.")
        for failure in failed:
            self.progress.failed.update(dict.fromkeys(failure.run.refs, failure.error))
            self.progress.verdicts.update(failure.verdicts)
            self.context.log.error(f"{few_of(failure.run.refs)} failed: {failure.error}\n\n{failure.details}")
        self.painter.missed(ref for miss in missed for ref in miss.run.refs)
        for output in (output for each in built for output in each.outputs):
            self.progress.live[output.fact.ref] = output.instance.uuid
            self.progress.verdicts[output.fact.ref] = output.verdicts
        yield from self.painter.built(built)

    def _accepted(self, results: "Sequence[Any]", tell: Any) -> "Sequence[Any]":
        """Those that the engine took. One stale job run must not take its neighbours with it."""
        if not results:
            return []
        try:
            tell(results)
        except StaleJobRun as stale:
            if len(results) > 1:
                return [each for result in results for each in self._accepted([result], tell)]
            (result,) = results
            if isinstance(result, Built) and stale.facts["state"] == JobRunState.SUCCEEDED.value:
                # This process was taken for dead, and what it had written was adopted: it is as good as told.
                return results
            self.progress.stopped.update(dict.fromkeys(result.run.refs, stale.message))
            self.context.log.warning(f"{few_of(result.run.refs)}: {stale}")
            if self.builder is not None and not isinstance(result, Stopped):
                self.builder.discard(result.run)
            return []
        return results

    def _succeed(self, results: Sequence[Built]) -> None:
        runs = tuple(RunSuccess(each.run.id, tuple(output.fact for output in each.outputs)) for each in results)
        self.engine.handle(SucceedJobRuns(runs=runs), actor=self._actor)

    def _miss(self, results: Sequence[Missed]) -> None:
        misses = tuple(RunMiss(each.run.id, dict(each.impacted)) for each in results)
        self.engine.handle(MissDeps(misses=misses), actor=self._actor)

    def _fail(self, results: Sequence[Failed]) -> None:
        failures = tuple(
            RunFailure(each.run.id, each.error, "transient" if each.is_transient else "hard") for each in results
        )
        self.engine.handle(FailJobRuns(failures=failures), actor=self._actor)

    def _end(self, job_run_ids: set[str], why: str, heartbeat: Heartbeat, *, as_failure: bool) -> None:
        """End what this step cannot finish any more, so that nobody has to wait for the lease to lapse."""
        ids_left = sorted(job_run_ids)
        if not ids_left:
            return
        # Emptied first: what ends them here is not to end them again when Dagster lets go of the generator.
        job_run_ids.clear()
        heartbeat.reported(ids_left)
        # SPEC 6.10: what a person canceled is not retried by the wants that were open for it.
        keep_wants = not self._was_terminated()

        def end(ids: Sequence[str]) -> None:
            fail = FailJobRuns(failures=tuple(RunFailure(each, why, "transient") for each in ids))
            cancel = CancelJobRuns(job_run_ids=tuple(ids), reason=why, keep_wants=keep_wants)
            try:
                self.engine.handle(fail if as_failure else cancel, actor=self._actor)
            except Refused:
                # One of them ended by another's word in this very moment; the others are still ours to end.
                for job_run_id in ids if len(ids) > 1 else ():
                    end([job_run_id])

        end(ids_left)

    def _abandon(self, builder: Builder, unfinished: set[str], heartbeat: Heartbeat) -> None:
        if self.threads is not None:
            self.threads.close()
        for job_run_id in list(unfinished):
            builder.stop(job_run_id, "the Dagster run was interrupted")
        self._end(unfinished, "interrupted", heartbeat, as_failure=False)
        heartbeat.stop()

    def _was_terminated(self) -> bool:
        """Whether a person took the run back in Dagster. Ctrl-C is only a pause: a later run goes on."""
        run = self.context.instance.get_run_by_id(self.context.run.run_id)
        return run is not None and run.status is DagsterRunStatus.CANCELING

    @property
    def _actor(self) -> str:
        return f"dagster run {self.context.run.run_id}"

    # What others build, or have built

    def _reuse(self, hosting: Hosting) -> Iterator[Any]:
        yield from self._served(hosting.reuse)
        for ref, why in hosting.refused.items():
            self.progress.denied[ref] = why
            self.context.log.error(sayings.refused(why))

    def _served(self, uuids: Mapping[str, str]) -> Iterator[Any]:
        """What others have built is as good as if it had been built here."""
        self.progress.live.update(uuids)
        yield from self.painter.reused(uuids, as_materializations=self.is_backfill)

    def _wait_for(self, join: Mapping[str, str]) -> Generator[Any, None, Hosting | None]:
        """Until others are done; returns what this step is to build after all (SPEC 8.2, 8.3)."""
        if join:
            self.context.log.info(sayings.joined(list(join)))
        timeout_seconds = self.deployment.delegation_timeout_seconds
        if join and self.waiting_since is None:
            self.waiting_since = self.engine.steady()
        with Waiting(
            self.engine,
            self.datasets,
            self.asking,
            join,
            since=self.waiting_since or 0.0,
            timeout_seconds=timeout_seconds,
            claim=self._claim,
            in_the_way_of=partial(in_the_way_of, self.engine, self.context.instance),
        ) as others:
            while others.waiting:
                news = others.look()
                yield from self._served(news.live)
                for ref, why in news.failed.items():
                    self.progress.denied[ref] = why
                    self.context.log.warning(sayings.failed_elsewhere(ref, why))
                self._leave(news.left)
                if news.hosting is not None:
                    return news.hosting
                if others.waiting:
                    others.pause()
        return None

    def _leave(self, left: Mapping[str, tuple[str, ...]]) -> None:
        """It ends like the run whose job run missed the inputs: neither green nor red, and a want goes on."""
        if left:
            self.context.log.warning(sayings.gave_way(list(left), next(iter(left.values()))))
            self.progress.missed.update(left)
            self.painter.missed(left)

    def _claim(self, refs: Sequence[str]) -> Hosting:
        """What others have given up. Raises Dagster's `Failure` where that goes on and on."""
        self.n_claims += 1
        if self.n_claims > MAX_CLAIMS:
            raise Failure(
                f"{few_of(refs)} was given up elsewhere, the {MAX_CLAIMS}th time that this run has waited for others; "
                "`databuild explain` says why, and another run goes on from here.",
                allow_retries=False,
            )
        hosting = claim(self.engine, self.datasets, refs, asking=self.asking, apart=self._with_missing_inputs)
        if hosting.job_runs:
            self.context.log.info(sayings.given_up_elsewhere([ref for run in hosting.job_runs for ref in run.refs]))
        return hosting

    # The end

    def _finish(self, asked: Sequence[str]) -> Iterator[Any]:
        progress = self.progress
        yield from self.painter.checks(progress.verdicts)
        # A re-execution has the tags of the run before it.
        is_delegated = bool(progress.live) and not progress.n_hosted
        if is_delegated or DELEGATED_TAG in self.context.run.tags:
            self.painter.tag(DELEGATED_TAG, str(is_delegated).lower())
        if progress.failed:
            self.painter.only_failed(progress.failed)
            raise Failure(_failure_message(progress), allow_retries=False)
        if progress.missed:
            self.painter.outcome(OUTCOME_DEP_MISS)
        elif progress.denied:
            self.painter.outcome(OUTCOME_DENIED)
        elif progress.stopped:
            self.painter.outcome("stopped")
        not_live = {asset_of(ref) for ref, state in self.engine.queries.states(asked).items() if state is not _LIVE}
        for asset in self.datasets:
            if asset not in not_live:
                yield self.painter.all_live(asset_key(asset))


@contextmanager
def _whatever_happens(what: str) -> Iterator[None]:
    """For what is only shown: a partition must not fail for it."""
    try:
        yield
    except Exception:
        _log.warning("databuild: %s", what, exc_info=True)


def _failure_message(progress: _Progress) -> str:
    """Such as: 1 of 31 partitions failed: 2013-01-07. First: ValueError: …"""
    ref, error = next(iter(progress.failed.items()))
    key = partition_key_of(ref)
    if key is None:
        return f"{ref} failed: {error}"
    keys = list(dict.fromkeys(partition_key_of(each) or each for each in progress.failed))
    partitions = "partition" if progress.n_hosted == 1 else "partitions"
    return f"{len(keys)} of {progress.n_hosted} {partitions} failed: {few_of(keys)}. First: {error}"
