"""A call of an asset's function, from pinned inputs to written instances, in a thread besides further calls.

A call builds a job run, or a whole batch of job runs. It returns the result of each and never raises. The step's thread
alone reports to the engine.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from msgspec import structs

from databuild_dagster.bindings.building.call import Call, Leftovers, Stops, Tools
from databuild_dagster.bindings.building.outputs import Outputs, unwrapped
from databuild_dagster.bindings.claims.results import Attempt, Built, BuiltOutput, Failed, Missed, Result, Stopped
from databuild_dagster.bindings.declare.build_context import BuildContext, HostedRun
from databuild_dagster.bindings.declare.outcomes import EMPTY, MAY_RETRY, BadResult, DepMiss
from databuild_dagster.bindings.declare.settings import content_hash_of
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.data.contents import damage_behind
from databuild_dagster.data.inputs import Inputs
from databuild_dagster.data.lost_run_output import adopt, adoptable
from databuild_dagster.data.ownership import Ownership
from databuild_dagster.model.datasets import ArcSpec
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.events import OutputFact
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.wording import few_of
from databuild_dagster.spark.errors import BadPartitionKeyColumn, ColumnsAlike, SchemaChanged
from databuild_dagster.spark.failures import explain_failure, is_lost, is_of_the_machine
from databuild_dagster.spark.staging import staging
from databuild_dagster.warehouse.files import return_freed_memory
from databuild_dagster.warehouse.filters import BadFilter
from databuild_dagster.warehouse.manifest import manifest_fact
from databuild_dagster.warehouse.storage import protocol_of

#: Failures of the function or of all its rows: a call for fewer partitions would repeat them.
_OF_ALL = (BadResult, BadPartitionKeyColumn, ColumnsAlike, SchemaChanged, BadFilter)

#: Job runs of a call whose manifests are written to a bucket while the step reports the job runs before them.
PUBLISHED_AT_ONCE = 100


class Builder:
    """Builds the job runs of a step."""

    def __init__(self, tools: Tools, *, threads: int) -> None:
        self._tools = tools
        self._context, self._body, self._frames = tools.context, tools.body, tools.frames
        self.stops, self.owners = Stops(tools.frames), tools.owners
        self.leftovers = Leftovers(tools.context, tools.frames.warehouse)
        self._outputs = Outputs(tools, self.stops, self.leftovers)
        self._owns_warehouse = False
        split = tools.body.split
        self._caller = (
            None if split is None else split.caller(tools, self._outputs, self.stops, self.leftovers, threads=threads)
        )

    def units(self, runs: Sequence[HostedRun], inputs: Mapping[Ref, Inputs]) -> list[tuple[HostedRun, ...]]:
        """The calls that build `runs`; with `skip_empty`, job runs with empty inputs have a call of their own."""
        if not self._body.is_batched:
            return [(run,) for run in runs]
        passing = {run.id for run in runs if self._passes_on(run, inputs)}
        halves = (tuple(run for run in runs if (run.id in passing) is passes) for passes in (False, True))
        return [half for half in halves if half]

    def _passes_on(self, run: HostedRun, inputs: Mapping[Ref, Inputs]) -> bool:
        """Whether all inputs are empty and the author chose `skip_empty`, so that the function is not called."""
        if not self._body.skip_empty:
            return False
        return all(inputs[ref].are_empty(self._sources_of(ref)) for ref in run.refs)

    def _sources_of(self, ref: Ref) -> set[str]:
        arc = self._tools.datasets[asset_of(ref)].arc
        return {source.asset for source in arc.sources} if isinstance(arc, ArcSpec) else set()

    def build(self, runs: tuple[HostedRun, ...], inputs: Mapping[Ref, Inputs]) -> Attempt:
        """Call the function once for all job runs of the unit, and write its results.

        The units in `again` of the attempt are always smaller than this unit.
        """
        stopped = tuple(Stopped(run, why) for run in runs if (why := self.stops.why(run)) is not None)
        ended = {result.run for result in stopped}
        results: list[Result] = [
            *stopped,
            *(built for run in runs if run not in ended and (built := self._adopted(run, inputs))),
        ]
        ended = {result.run for result in results}
        left = tuple(run for run in runs if run not in ended)
        if not left:
            return Attempt(tuple(results))
        used = {ref: inputs[ref].uuids for run in left for ref in run.refs}
        call = Call(left, used)
        self.stops.begin(left)
        try:
            # The launch's tag stops all calls of the launch, also from other processes; the job run's tag stops this
            # one.
            self._claim_warehouse()
            with self._frames.spark.interruptible(self._tools.launch_id, left[0].id):
                attempt = self._call(call, inputs)
        except DepMiss as miss:
            attempt = self._missed(call, miss)
        except BaseException as error:  # User code may raise anything, SystemExit too; it fails this call alone.
            attempt = self._error(call, error)
        assert all(len(unit) < len(left) for unit in attempt.again), "or the calls would not end"
        found = self._judged(call, attempt)
        return replace(found, results=(*results, *found.results))

    def _judged(self, call: Call, attempt: Attempt) -> Attempt:
        return replace(attempt, results=tuple(self._of_inputs(call, result) for result in attempt.results))

    def _of_inputs(self, call: Call, result: Result) -> Result:
        """A failure that a lost or damaged input caused is a dep miss on that input (rule 6.16)."""
        if not isinstance(result, Failed):
            return result
        read = {ref: call.used[ref] for ref in result.run.refs}
        used = {ref: uuid for of_ref in read.values() for ref, uuid in of_ref.items()}
        damage = damage_behind(engine_for(self._context.instance).queries, used, f"{result.error}\n{result.details}")
        if not damage.refs:
            return result
        missed = {ref: tuple(found for found in damage.refs if found in of_ref) for ref, of_ref in read.items()}
        return Missed(result.run, {ref: refs for ref, refs in missed.items() if refs}, damage.sentence)

    def _claim_warehouse(self) -> None:
        """Once for the calls of a launch. Raises `RootOfAnother`, `DiskTrouble`, `StorageTrouble`."""
        if not self._owns_warehouse:
            Ownership(engine_for(self._context.instance).store).claim(self._frames.warehouse)
            self._owns_warehouse = True

    def _adopted(self, run: HostedRun, inputs: Mapping[Ref, Inputs]) -> Built | None:
        """The output of the job run before, if that was lost after it had finished and a build would repeat it (rule 6.9).

        Not for an asset with a split or gates, whose own results cannot be repeated from a manifest.
        """
        if run.attempt == 1 or self._caller is not None or any(self._body.gates.values()):
            return None
        queries, warehouse = engine_for(self._context.instance).queries, self._frames.warehouse
        found, outputs = [], []
        try:
            self._claim_warehouse()
            for ref in run.refs:
                version = self._tools.datasets[asset_of(ref)].code_version
                found.append(adoptable(queries, warehouse, run.id, ref, inputs[ref].uuids, version))
            finished = [manifest for manifest in found if manifest is not None]
            if len(finished) < len(found):
                return None
            for manifest in finished:
                adopted = adopt(warehouse, manifest, run.id, run.attempt)
                uri = warehouse.manifest_path(adopted.dataset, adopted.instance_uuid)
                fact = OutputFact(
                    ref=adopted.ref,
                    inputs=adopted.inputs,
                    code_version=self._tools.datasets[adopted.dataset].code_version,
                    manifest=structs.replace(
                        manifest_fact(adopted, uri),
                        content_hash=content_hash_of(self._tools.datasets[adopted.dataset], warehouse, adopted),
                    ),
                )
                outputs.append(BuiltOutput(fact, adopted, uri, (), {"databuild/adopted_from": adopted.adopted_from}))
        except DatabuildError as error:
            self._context.log.warning(
                f"{few_of(run.refs)} cannot be adopted from a lost job run, and is built: {error}"
            )
            self.leftovers.discard(run)
            return None
        self._context.log.info(f"{few_of(run.refs)}: a lost job run had finished it, so the function is not called.")
        return Built(run, tuple(outputs))

    # The call

    def _call(self, call: Call, inputs: Mapping[Ref, Inputs]) -> Attempt:
        context = self._tools.build_context(call, call.used.values())
        with staging(self._frames.warehouse, call.runs[0].id) as folder:
            if all(self._passes_on(run, inputs) for run in call.runs):
                return self._passed_on(call, context, folder)
            if self._caller is not None:
                return self._caller.call(call, inputs, context, folder)
            try:
                with self._frames.unchanged_folders(folder):
                    arguments = self._tools.arguments.of(call.runs, inputs, context, folder)
                    self.stops.raise_if_all(call)
                    answer = unwrapped(self._body.function(**arguments), self._tools.job, context)
                    self.stops.raise_if_all(call)
                    return_freed_memory()
                    for asset, result in self._outputs.by_asset(answer, call).items():
                        self._outputs.stage(call, asset, result, os.path.join(folder, f"output-{len(call.staged)}"))
                        self.stops.raise_if_all(call)
                        self._outputs.check(call, asset, context)
                self.stops.raise_if_all(call)
            except BaseException:
                self.leftovers.drop(call.staged.values())
                raise
            return self._published(call, context, call.runs)

    def _published(self, call: Call, context: BuildContext, runs: Sequence[HostedRun]) -> Attempt:
        """Publish job runs; of files that Spark left in a bucket some at a time, so that the step reports them meanwhile."""
        most = PUBLISHED_AT_ONCE if _are_in_a_bucket(call) else len(runs)
        left = runs[most:]
        try:
            results = self._outputs.published(call, context, runs[:most])
        except Exception as error:
            # The function is not called again: some of these may be written, and those before them are live.
            results = [self._outputs.not_published(call, run, error) for run in runs[:most]]
        return Attempt(tuple(results), rest=partial(self._rest, call, context, left) if left else None)

    def _rest(self, call: Call, context: BuildContext, runs: Sequence[HostedRun]) -> Attempt:
        return self._judged(call, self._published(call, context, runs))

    def _passed_on(self, call: Call, context: BuildContext, folder: str) -> Attempt:
        """Empty instances with the columns of their neighbors; no user code runs, and no gate."""
        if self._caller is not None:
            self.leftovers.attempts_before(call.runs[0], call.refs[0])
        for asset in self._outputs.by_asset(EMPTY, call):
            self._outputs.stage(call, asset, EMPTY, os.path.join(folder, f"output-{len(call.staged)}"))
        self.stops.raise_if_all(call)
        self._context.log.info(
            f"{few_of(call.refs)}: all inputs are empty, so it is empty too, and the function is not called."
        )
        return Attempt(tuple(self._outputs.published(call, context, call.runs)))

    # Errors

    def _missed(self, call: Call, miss: DepMiss) -> Attempt:
        """The refs that each job run misses; the rest of a batch is called again without them."""
        if not miss.by_name:
            return Attempt(tuple(Missed(run, dict.fromkeys(run.refs, miss.refs)) for run in call.runs))
        by_key = self._body.is_batched
        names = {ref: partition_key_of(ref) if by_key else self._tools.names[asset_of(ref)] for ref in call.refs}
        if unknown := [name for name in miss.by_name if name not in names.values()]:
            return self._error(
                call, BadResult(f"{self._tools.job} raised DepMiss for {unknown[0]!r}, {_not_one_of(names.values())}.")
            )
        missed, others = [], []
        for run in call.runs:
            impacted = {ref: miss.by_name[name] for ref in run.refs if (name := names[ref]) in miss.by_name and name}
            if impacted:
                missed.append(Missed(run, impacted))
            else:
                others.append(run)
        return Attempt(tuple(missed), (tuple(others),) if others else ())

    def _error(self, call: Call, error: BaseException) -> Attempt:
        """A failed batch is halved until the guilty ref is alone: a bad day does not fail its neighbors."""
        if self.stops.are_all(call.runs):
            return Attempt(tuple(Stopped(run, self.stops.why(run) or "") for run in call.runs))
        lost = is_lost(error)
        if lost:
            self._frames.spark.forget_lost_session()
        if len(call.runs) > 1 and self._may_be_of_one(call, error, lost=lost):
            self._context.log.warning(
                f"A batch of {len(call.runs)} partitions failed and is halved: {explain_failure(error)}"
            )
            middle = len(call.runs) // 2
            return Attempt((), (call.runs[:middle], call.runs[middle:]))
        return Attempt(tuple(self._tools.failed(run, error) for run in call.runs))

    def _may_be_of_one(self, call: Call, error: BaseException, *, lost: bool) -> bool:
        """Whether a single partition of the batch may be the cause."""
        if isinstance(error, _OF_ALL) or is_of_the_machine(error):
            return False
        if not lost and not isinstance(error, MAY_RETRY):
            return True
        # A first failure may be chance. A second one may come from what one partition does to a server or a service.
        # This attempt is not counted yet: its job runs have not ended.
        return any(engine_for(self._context.instance).queries.planning.attempts(call.refs).values())


def _are_in_a_bucket(call: Call) -> bool:
    """Whether every file of a call is where it stays, in an object store."""
    staged = [result for result in call.staged.values() if result.files]
    return bool(staged) and all(result.reach is not None and protocol_of(result.folder) for result in staged)


def _not_one_of(names: Iterable[str | None]) -> str:
    """The end of the sentence about a wrong name in a dep miss: the names that are right."""
    known = [name for name in dict.fromkeys(names) if name is not None]
    return (
        f"which this call does not build: it builds {few_of([repr(name) for name in known])}"
        if known
        else "but builds one thing only; name the missing refs alone, as in DepMiss(ref)"
    )
