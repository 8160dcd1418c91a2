"""The step of every databuild asset, which every build passes (rule 8.1).

The refs that the Dagster run asks for become job runs to build here, refs that other runs build, and live refs. A few
threads of a shared Spark session build the job runs; the step's thread reports each result to the engine and to Dagster at
once. Then the step waits for the builds of other runs, and holds nothing.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
from dagster import AssetExecutionContext, Failure

from databuild_dagster.bindings.adapter import dagster_private, run_tags
from databuild_dagster.bindings.adapter.keys import DEPLOYMENT, SPARK, asset_key, asset_text
from databuild_dagster.bindings.building.arguments import Arguments
from databuild_dagster.bindings.building.builds import Builder
from databuild_dagster.bindings.building.call import Tools
from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.building.hosted_launch import HostedLaunch, Progress
from databuild_dagster.bindings.building.owners import Owners
from databuild_dagster.bindings.building.provenance import made_with
from databuild_dagster.bindings.claims import run_messages
from databuild_dagster.bindings.claims.claims import Asking, Hosting, asking, begin, claim
from databuild_dagster.bindings.claims.run_messages import NotBuilt, NotLive, not_live
from databuild_dagster.bindings.claims.wait_for_builds import Waiting, in_the_way_of
from databuild_dagster.bindings.declare.asset_spec import AssetBody
from databuild_dagster.bindings.declare.outcomes import InvalidMetadata, storable
from databuild_dagster.bindings.display.materialization import page_metadata
from databuild_dagster.bindings.display.ui_events import Painter
from databuild_dagster.bindings.reading.frames import Frames, How
from databuild_dagster.bindings.registry.instance import engine_for, temporary_home_of, warehouse_of
from databuild_dagster.bindings.registry.plain_assets import ForeignAssets
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.data.inputs import InputFinder
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.registering import register, register_ad_hoc
from databuild_dagster.model.datasets import AD_HOC_LOCATION, DatasetSpec
from databuild_dagster.model.logs import log_failure, logger
from databuild_dagster.model.redaction import errors_without_secrets
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import few_of, typed
from databuild_dagster.spark.failures import explain_failure
from databuild_dagster.spark.memory_frames import FrameKind
from databuild_dagster.spark.session import spark_ui_url, watch_progress
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse.layout import Warehouse

#: How often a run claims refs again that other runs gave up while it waited.
MAX_CLAIMS = 20
#: Waiting refs that have a line each in the log of a run; a last line counts the rest.
MAX_WARNINGS = 50
#: Data of more partitions or bytes is no value of a result of `materialize()`.
MAX_PARTITIONS = 100
MAX_BYTES = 64 * 1024 * 1024

_LIVE = InstanceState.LIVE

_log = logger(__name__)


def run_step(context: AssetExecutionContext, body: AssetBody, config: Any) -> Iterator[Any]:
    """Yields Dagster's events; raises `Failure` if a job run failed or a ref was refused (rules 6.1, 8.8)."""
    with errors_without_secrets(), ExitStack() as held:
        yield from Step(step_world(context, body, config, held)).run()


@dataclass(frozen=True)
class StepWorld:
    """What a step works with."""

    tools: Tools
    engine: Engine
    deployment: Deployment
    painter: Painter
    asking: Asking
    progress: Progress

    @property
    def is_direct(self) -> bool:
        """Whether a script or a test called `materialize()`."""
        return self.tools.context.job_def.executor_def is dagster_private.execute_in_process_executor


def step_world(context: AssetExecutionContext, body: AssetBody, config: Any, held: ExitStack) -> StepWorld:
    """Registers the datasets first: here a graph and an instance are at hand. `held` is closed at the end of the step."""
    instance, engine = context.instance, engine_for(context.instance)
    deployment: Deployment = getattr(context.resources, DEPLOYMENT)
    graph: dagster_private.AssetGraph = context.job_def.asset_layer.asset_graph.source_asset_graph
    outputs = {asset_text(key): key for key in context.assets_def.keys_by_output_name.values()}
    registered = _registered(engine, deployment.location, graph, outputs, context.run.tags)
    selected = context.selected_asset_keys
    # A later version of the code may have registered meanwhile; the code that this process runs is its own.
    codes = {spec.asset: spec.code for spec in datasets_of(graph, deployment.location)}
    datasets = {
        asset: msgspec.structs.replace(registered[asset], code=codes[asset])
        for asset, key in outputs.items()
        if key in selected and asset in registered
    }
    warehouse, progress = Warehouse(deployment.warehouse or warehouse_of(instance)), Progress()
    painter = Painter(context, warehouse, datasets, sample_rows=deployment.sample_rows)
    spark, show = getattr(context.resources, SPARK), partial(_show_spark, context, painter, progress, held)
    frames = Frames(spark_resource=spark, warehouse=warehouse.root, graph=graph, instance=instance, on_session=show)
    finder = InputFinder(engine, ForeignAssets(instance), registered.values())
    names = {asset: body.name_of(context.assets_def, asset) for asset in datasets}
    arguments = Arguments(context, body, config, datasets, frames, finder)
    tools = Tools(context, body, datasets, frames, arguments, names, Owners(frames.spark.resource, warehouse))
    asker = asking(
        instance, context.run, rebuild=deployment.rebuild, ahead_seconds=lambda: max(engine.now() - engine.clock(), 0.0)
    )
    asker = replace(asker, made_with=made_with(context, next(iter(datasets.values()), None)))
    return StepWorld(tools, engine, deployment, painter, asker, progress)


def _registered(
    engine: Engine, location: str, graph: dagster_private.AssetGraph, outputs: Iterable[str], tags: Mapping[str, str]
) -> dict[str, DatasetSpec]:
    datasets = datasets_of(graph, location)
    if location == AD_HOC_LOCATION:
        known = register_ad_hoc(engine, location, datasets)
    else:
        # A launch is executed right after the tick that made it, which has registered in the same process.
        is_current = run_tags.LAUNCH_TAG in tags and tags.get(run_tags.PROCESS_TAG) == this_process()
        known = register(engine, location, datasets, building=outputs, is_current=is_current, is_asked=False)
    return {spec.asset: spec for spec in known.datasets.values()}


def _show_spark(
    context: AssetExecutionContext, painter: Painter, progress: Progress, held: ExitStack, session: Any
) -> None:
    """Link Spark's own UI from the Dagster run, and log the progress of Spark."""

    def log(tag: str, done: int, total: int) -> None:
        # Each operation has the launch's tag and that of its first job run; the launch's one is logged.
        if tag == progress.launch_id:
            with _logging_errors("the progress of Spark could not be logged"):
                context.log.info(f"Spark has done {done} of {total} tasks.")

    with _logging_errors("the Dagster run could not be linked to Spark's UI"):
        if (url := spark_ui_url(session)) is not None:
            painter.link("Spark has pages of its own for this run.", spark_ui=url)
        held.enter_context(watch_progress(session, log))


class Step:
    """A step in its world, from the request of its Dagster run to the last event."""

    def __init__(self, world: StepWorld) -> None:
        self._world, self._tools, self._engine = world, world.tools, world.engine
        self._context, self._datasets = world.tools.context, world.tools.datasets
        self._painter, self._progress = world.painter, world.progress
        #: When the step first had to wait for other runs, and its claims of refs that they gave up.
        self._waiting_since: float | None = None
        self._n_claims = 0

    def run(self) -> Iterator[Any]:
        if self._world.deployment.location == AD_HOC_LOCATION and not self._world.is_direct:
            self._context.log.warning(run_messages.outside(self._context.assets_def.keys))
        if (home := temporary_home_of(self._context.instance)) is not None:
            self._context.log.warning(run_messages.temporary_home(home))
        hosting = begin(
            self._engine,
            self._datasets,
            self._partition_keys(),
            asking=self._world.asking,
            launch_id=self._context.run.tags.get(run_tags.LAUNCH_TAG),
            apart=self._with_missing_inputs,
            check=self._check_spark,
        )
        asked = hosting.asked
        next_hosting: Hosting | None = hosting
        try:
            while next_hosting is not None:
                yield from self._build(next_hosting)
                yield from self._reuse(next_hosting)
                next_hosting = yield from self._wait_for(next_hosting.join)
        except Failure as stalled:
            if not self._world.is_direct:
                raise
            raise NotBuilt(refs=self._not_live(asked), why=stalled.description or "") from stalled
        yield from self._finish(asked, is_launch=hosting.is_launch)

    def _check_spark(self, refs: Sequence[Ref]) -> None:
        """Open and probe a remote Spark before a claim records anything. Raises `Failure` with its sentence.

        The refs of a launch are leased already. Its job runs get the same sentence as a transient failure (rule 6.8).
        """
        if not (self._tools.body.uses_spark and self._tools.frames.spark.is_remote):
            return
        if not (self._world.asking.rebuild_before is not None or self._not_live(refs)):
            return
        try:
            _ = self._tools.frames.spark.session
        except Exception as error:  # The errors of PySpark, grpc and py4j have no common class.
            why = explain_failure(error)
            stopped = NotBuilt(refs=refs, why=why) if self._world.is_direct else Failure(why, allow_retries=False)
            raise stopped from error

    def _partition_keys(self) -> Sequence[str | None]:
        if not any(spec.partitions_def is not None for spec in self._context.assets_def.specs):
            return [None]
        keys = list(self._context.partition_keys)
        if len(keys) > 1 and run_tags.PARTITIONS_TAG not in self._context.run.tags:
            self._painter.tag(run_tags.PARTITIONS_TAG, run_tags.range_in_words(keys))
        return keys

    def _with_missing_inputs(self, refs: Sequence[Ref]) -> set[Ref]:
        """Outputs of a multi-asset that must not delay the buildable outputs (rule 6.2)."""
        if len(self._datasets) == 1:
            return set()
        return {ref for ref, inputs in self._tools.arguments.finder.of(self._datasets, refs).items() if inputs.missing}

    # Building

    def _build(self, hosting: Hosting) -> Iterator[Any]:
        self._painter.given(hosting)
        if hosting.launch_id is None:
            return
        self._progress.launch_id = hosting.launch_id
        self._progress.n_hosted += len(hosting.job_runs)
        n_threads = self._world.deployment.threads
        launch = HostedLaunch(
            hosting.launch_id,
            hosting.job_runs,
            Builder(replace(self._tools, launch_id=hosting.launch_id), threads=n_threads),
            context=self._context,
            engine=self._engine,
            painter=self._painter,
            progress=self._progress,
            n_threads=n_threads,
            location=self._world.deployment.location,
        )
        yield from launch.build(partial(self._tools.arguments.finder.of, self._datasets))

    # Builds of others

    def _reuse(self, hosting: Hosting) -> Iterator[Any]:
        if hosting.reuse:
            self._context.log.info(run_messages.reused(list(hosting.reuse)))
        if skipped := run_messages.skipped_of(hosting.asked, hosting.reuse):
            self._context.log.info(run_messages.skipped(skipped))
        yield from self._served(hosting.reuse)
        for ref, sentence in hosting.refused.items():
            self._deny(ref, sentence)

    def _deny(self, ref: Ref, sentence: str) -> None:
        self._progress.denied[ref] = sentence
        self._context.log.error(sentence)

    def _served(self, uuids: Mapping[Ref, str]) -> Iterator[Any]:
        """Count live instances that other runs built like instances built here."""
        self._progress.live.update(uuids)
        yield from self._painter.reused(
            uuids, as_materializations=dagster_private.BACKFILL_ID_TAG in self._context.run.tags
        )

    def _wait_for(self, join: Mapping[Ref, str]) -> Generator[Any, None, Hosting | None]:
        """Wait until the runs that build `join` are done; returns the refs that this step has to build after all (rules 8.2, 8.3)."""
        if join:
            self._context.log.info(run_messages.joined(list(join)))
        if join and self._waiting_since is None:
            self._waiting_since = self._engine.steady()
        with Waiting(
            self._engine,
            self._datasets,
            self._world.asking,
            dict(join),
            since=self._waiting_since or 0.0,
            timeout_seconds=self._world.deployment.delegation_timeout_seconds,
            claim=self._claim,
            in_the_way_of=partial(in_the_way_of, self._engine, self._context.instance),
        ) as others:
            while others.waiting:
                news = others.look()
                yield from self._served(news.live)
                for ref, why in news.failed.items():
                    self._deny(ref, run_messages.failed_elsewhere(ref, why))
                if news.left:
                    # The run ends as if its job run had missed the inputs: no partition is green or red, and a want stays open.
                    self._context.log.warning(run_messages.gave_way(list(news.left), next(iter(news.left.values()))))
                    self._progress.missed.update(news.left)
                    self._painter.missed(news.left)
                if news.hosting is not None:
                    return news.hosting
                if others.waiting:
                    others.pause()
        return None

    def _claim(self, refs: Sequence[Ref]) -> Hosting:
        """Claim refs that other runs gave up. Raises Dagster's `Failure` after `MAX_CLAIMS` claims."""
        self._n_claims += 1
        if self._n_claims > MAX_CLAIMS:
            raise Failure(
                f"{few_of(refs)} was given up by another run, the {MAX_CLAIMS}th time that this run has waited. "
                f"`databuild explain {typed(refs[0])}` says why; start another run to continue.",
                allow_retries=False,
            )
        hosting = claim(self._engine, self._datasets, refs, asking=self._world.asking, apart=self._with_missing_inputs)
        if hosting.job_runs:
            self._context.log.info(
                run_messages.given_up_elsewhere([ref for run in hosting.job_runs for ref in run.refs])
            )
        return hosting

    # The end

    def _finish(self, asked: Sequence[Ref], *, is_launch: bool) -> Iterator[Any]:
        progress = self._progress
        yield from self._painter.checks(progress.verdicts)
        # A re-execution has the tags of the run before it.
        is_delegated = bool(progress.live) and not progress.n_hosted
        if is_delegated or run_tags.DELEGATED_TAG in self._context.run.tags:
            self._painter.tag(run_tags.DELEGATED_TAG, str(is_delegated).lower())
        left = self._not_live(asked)
        waiting = {} if is_launch else self._judged(left)
        if progress.denied:
            self._painter.tag(run_tags.OUTCOME_TAG, run_tags.OUTCOME_DENIED)
        if progress.failed or progress.denied or (waiting and self._world.is_direct):
            self._painter.only_failed([*progress.failed, *progress.denied])
            why = _failure_message(progress) or next(iter(waiting.values())).sentence
            metadata = self._metadata_of(progress.cause)
            if first := next(iter([*progress.failed, *progress.denied]), None):
                metadata = {**metadata, **page_metadata(self._engine, first)}
            raise (
                NotBuilt(refs=left, why=why, metadata=metadata)
                if left and self._world.is_direct
                else Failure(why, metadata=metadata, allow_retries=False)
            ) from progress.cause
        if progress.missed and is_launch:
            self._painter.tag(run_tags.OUTCOME_TAG, run_tags.OUTCOME_DEP_MISS)
        elif any(ref.is_wanted for ref in waiting.values()):
            self._painter.tag(run_tags.OUTCOME_TAG, run_tags.OUTCOME_WAITING)
        elif progress.stopped:
            self._painter.tag(run_tags.OUTCOME_TAG, "stopped")
        yield from self._painter.waiting(waiting)
        not_live_assets = {asset_of(ref) for ref in left}
        for asset in self._datasets:
            if asset not in not_live_assets:
                yield self._painter.all_live(asset_key(asset))
                if self._world.is_direct:
                    self._put_value(asset, [ref for ref in asked if asset_of(ref) == asset])

    def _metadata_of(self, cause: BaseException | None) -> Mapping[str, Any]:
        """The metadata of Dagster's own error; none that Dagster cannot store, because the failures are recorded."""
        try:
            return storable(cause.metadata, "dagster.Failure") if isinstance(cause, Failure) else {}
        except InvalidMetadata as error:
            self._context.log.warning(str(error))
            return {}

    def _put_value(self, asset: str, refs: Sequence[Ref]) -> None:
        """Give the result of `materialize()` the rows, which are live already."""
        with _logging_errors(f"result.asset_value({asset!r}) has no value"):
            instances = list(self._engine.queries.canonical.of(refs).values())
            put_asset_value(self._context, self._tools.body, self._tools.frames, asset, instances)

    def _not_live(self, asked: Sequence[Ref]) -> list[Ref]:
        return [ref for ref, state in self._engine.queries.canonical.states(asked).items() if state is not _LIVE]

    def _judged(self, left: Sequence[Ref]) -> dict[Ref, NotLive]:
        """Deny the refs that have failed, also at their dep miss; returns the refs that wait, with a warning for each."""
        progress = self._progress
        progress.denied = {ref: sentence for ref in left if (sentence := progress.denied.get(ref)) is not None}
        unexplained = [ref for ref in left if ref not in progress.failed and ref not in progress.denied]
        waiting = not_live(self._engine, unexplained) if unexplained else {}
        for ref in [ref for ref, found in waiting.items() if found.has_failed]:
            self._deny(ref, waiting.pop(ref).sentence)
        for found in list(waiting.values())[:MAX_WARNINGS]:
            self._context.log.warning(found.sentence)
        if len(waiting) > MAX_WARNINGS:
            self._context.log.warning(f"{len(waiting) - MAX_WARNINGS} more refs wait: see `databuild want list`.")
        return waiting


@contextmanager
def _logging_errors(what: str) -> Iterator[None]:
    """Guards what is only shown: a partition must not fail because of it."""
    try:
        yield
    except Exception as error:
        log_failure(_log, what, error)


def _failure_message(progress: Progress) -> str:
    """For example: 1 of 31 partitions failed: 2013-01-07. First: ValueError: …; empty if nothing failed or was refused."""
    if not progress.failed:
        return run_messages.denied(progress.denied) if progress.denied else ""
    ref, error = next(iter(progress.failed.items()))
    key = partition_key_of(ref)
    if key is None:
        return f"{ref} failed: {error}"
    keys = list(dict.fromkeys(partition_key_of(ref) or ref for ref in progress.failed))
    partitions = "partition" if progress.n_hosted == 1 else "partitions"
    return f"{len(keys)} of {progress.n_hosted} {partitions} failed: {few_of(keys)}. First: {error}"


# The value of an asset in the result of `materialize()`: `result.asset_value("orders")`, as tests of Dagster read it.
# The step yields no value, so it is read from the instances after the asset is live. A frame of Spark is read only when it is
# used. Other frames are in memory at once, so that large ones are left to `read`.


def put_asset_value(
    context: AssetExecutionContext, body: AssetBody, frames: Frames, asset: str, instances: Sequence[Canonical]
) -> None:
    """Put the rows of live instances into the result, as a frame of the kind that the function is annotated to return."""
    n_bytes = sum(instance.bytes or 0 for instance in instances)
    if len(instances) > MAX_PARTITIONS or n_bytes > MAX_BYTES:
        context.log.info(
            f"result.asset_value({asset!r}) is None: {len(instances)} partitions and {n_bytes:,} bytes are too many. "
            "Read them with databuild_dagster.table or read."
        )
        return
    output = context.assets_def.get_output_name_for_asset_key(asset_key(asset))
    dagster_private.put_result(context, output, frames.read(instances, asset, How(body.returned_kind)))
    if body.returned_kind is FrameKind.SPARK:
        dagster_private.keep_temporary_folder(context.instance)
