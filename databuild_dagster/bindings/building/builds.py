"""One call of an asset's function, from pinned inputs to written instances: what happens in a thread while
others do the same.

A call builds one job run, or a whole batch of them. Returns what became of each and never raises; telling the
engine is the step's business, so that there is one writer.
"""

import os
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import BoundedSemaphore, Lock
from typing import Any

from dagster import AssetExecutionContext

from databuild_dagster.bindings.building.arguments import Arguments
from databuild_dagster.bindings.building.code_digest import code_digest
from databuild_dagster.bindings.building.lot_in_parts import LotInParts, Part, SplitInput, counted_parts
from databuild_dagster.bindings.claims.claims import HostedRun
from databuild_dagster.bindings.claims.results import Attempt, Built, BuiltOutput, Failed, Missed, Result, Stopped
from databuild_dagster.bindings.declare.asset_spec import AssetBody
from databuild_dagster.bindings.declare.build_context import BuildContext
from databuild_dagster.bindings.declare.gates import Gate, GateClosed, Verdict, described, verdict_of
from databuild_dagster.bindings.declare.lot_parts import Split
from databuild_dagster.bindings.declare.outcomes import EMPTY, BadResult, DepMiss, Empty, Transient
from databuild_dagster.bindings.declare.parameters import ParameterKind, kind_of
from databuild_dagster.bindings.reading.frames import Frames
from databuild_dagster.bindings.registry.lot_partitions import lot_id_of
from databuild_dagster.data.inputs import InputFinder, Inputs
from databuild_dagster.model.datasets import ArcSpec, DatasetSpec
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.events import ManifestFact, OutputFact
from databuild_dagster.model.refs import asset_of, derive_partition_uuid, partition_key_of
from databuild_dagster.model.wording import few_of
from databuild_dagster.spark.errors import BadPartitionKeyColumn, SchemaChanged
from databuild_dagster.spark.schemas import Columns, check_schema
from databuild_dagster.spark.staging import Staged, in_threads
from databuild_dagster.warehouse.disk import remove_tree
from databuild_dagster.warehouse.errors import DiskTrouble, StorageTrouble
from databuild_dagster.warehouse.filters import BadFilter
from databuild_dagster.warehouse.manifest import ManifestState

#: Failures that are of the function or of all its rows: calling it for fewer partitions would find them again.
_OF_ALL = (BadResult, BadPartitionKeyColumn, SchemaChanged, BadFilter)

#: Failed parts of one lot whose tracebacks are told.
MAX_TRACEBACKS = 3


@dataclass
class _Call:
    """One call of the function, as far as it has come."""

    runs: tuple[HostedRun, ...]
    #: Ref to input ref to the uuid that was read.
    used: dict[str, dict[str, str]]
    #: Whether one of them was tried before, and something other than its data was to blame.
    is_retry: bool = False
    staged: dict[str, Staged] = field(default_factory=dict)
    verdicts: dict[str, list[Verdict]] = field(default_factory=dict)
    #: The manifests of a lot's parts, which have their places already.
    children: tuple[str, ...] = ()

    @property
    def refs(self) -> list[str]:
        return [ref for run in self.runs for ref in run.refs]

    @property
    def keys(self) -> list[str | None]:
        return [run.partition_key for run in self.runs]

    def refs_of(self, asset: str) -> list[str]:
        return [ref for run in self.runs for ref in run.refs if asset_of(ref) == asset]

    def closed(self, run: HostedRun) -> str | None:
        """What the gates have against a job run."""
        against = [
            f"check {each.gate} of {ref}: {each.why}"
            for ref in run.refs
            for each in self.verdicts.get(ref, ())
            if each.blocks
        ]
        return "; ".join(against) or None


class Builder:
    """Builds the job runs of one step."""

    def __init__(
        self,
        context: AssetExecutionContext,
        body: AssetBody,
        config: Any,
        datasets: Mapping[str, DatasetSpec],
        frames: Frames,
        finder: InputFinder,
        *,
        launch_id: str,
        threads: int,
    ) -> None:
        self._context = context
        self._body = body
        self._datasets = datasets
        self._frames = frames
        self._launch_id = launch_id
        self._arguments = Arguments(context, body, config, datasets, frames, finder)
        #: Asset to what the author calls it.
        self._names = {asset: body.name_of(context.assets_def, asset) for asset in datasets}
        #: Job run to why it was ended from outside.
        self._stopped: dict[str, str] = {}
        #: Job run to those that its call builds with it, itself included.
        self._together: dict[str, tuple[HostedRun, ...]] = {}
        #: How often each ref was tried before.
        self._tried: dict[str, int] = {}
        #: Asset to the instance whose columns the next one's are to fit.
        self._columns: dict[str, Columns | None] = {}
        self._columns_lock = Lock()
        at_once = body.parts.at_once if body.parts is not None else None
        #: Parts that are built at the same time, of all lots together.
        self._parts_at_once = at_once or threads
        self._part_slots = BoundedSemaphore(self._parts_at_once)
        #: Job run to the folder that stands for what earlier attempts have left.
        self._unsettled: dict[str, str] = {}

    def units(self, runs: Sequence[HostedRun], inputs: Mapping[str, Inputs]) -> list[tuple[HostedRun, ...]]:
        """The calls that build these job runs; what passes emptiness on is in none with what does not."""
        # Asked once for all: each call is in a thread of its own, with a connection of its own.
        self._tried.update(self._frames.attempts(ref for run in runs for ref in run.refs))
        if not self._body.is_batched:
            return [(run,) for run in runs]
        passing = {run.id for run in runs if self._passes_on(run, inputs)}
        halves = (tuple(run for run in runs if (run.id in passing) is each) for each in (False, True))
        return [half for half in halves if half]

    def _passes_on(self, run: HostedRun, inputs: Mapping[str, Inputs]) -> bool:
        """Whether there is nothing to make anything of, and the author says that the function need not hear of it."""
        if not self._body.skip_empty:
            return False
        return all(inputs[ref].are_empty(self._sources_of(ref)) for ref in run.refs)

    def _sources_of(self, ref: str) -> set[str]:
        arc = self._datasets[asset_of(ref)].arc
        return {source.asset for source in arc.sources} if isinstance(arc, ArcSpec) else set()

    def build(self, runs: tuple[HostedRun, ...], inputs: Mapping[str, Inputs]) -> Attempt:
        """Call the function once for all of these job runs, and write what it returns.

        What it gives to be called for again is always less than what it was given.
        """
        stopped = tuple(Stopped(run, self._stopped[run.id]) for run in runs if run.id in self._stopped)
        left = tuple(run for run in runs if run.id not in self._stopped)
        if not left:
            return Attempt(stopped)
        used = {ref: inputs[ref].uuids for run in left for ref in run.refs}
        call = _Call(left, used, is_retry=any(self._tried.get(ref) for run in left for ref in run.refs))
        self._together.update((run.id, left) for run in left)
        try:
            # By the launch everything of it can be stopped, also by others; by its first job run only this call.
            with self._frames.interruptible(self._launch_id, left[0].id):
                attempt = self._call(call, inputs)
        except DepMiss as miss:
            attempt = self._missed(call, miss)
        except BaseException as error:  # Whatever the user's code raises, SystemExit too, is this call's alone.
            attempt = self._what_went_wrong(call, error)
        assert all(len(unit) < len(left) for unit in attempt.again), "or it would be called for ever"
        return Attempt((*stopped, *attempt.results), attempt.again)

    def stop(self, job_run_id: str, why: str) -> None:
        """End a job run from another thread: its answer will not count.

        Its Spark work is interrupted, unless it is also that of neighbours that are to go on.
        """
        self._stopped[job_run_id] = why
        together = self._together.get(job_run_id, ())
        if together and all(run.id in self._stopped for run in together):
            self._frames.begin_to_interrupt(together[0].id)

    def settle(self, run: HostedRun) -> None:
        """The engine knows how it ended: what earlier attempts at its lot have kept is in it, or of no use any more."""
        folder = self._unsettled.pop(run.id, None)
        if folder is None:
            return
        try:
            for ref in run.refs:
                self._frames.remove_attempts_before(run.id, ref)
            remove_tree(folder)
        except (DiskTrouble, StorageTrouble) as error:
            # As long as the folder is there, the orchestrator tries again once this process is gone.
            self._context.log.warning(f"What earlier attempts left of {few_of(run.refs)} is not removed yet: {error}")

    def discard(self, run: HostedRun) -> None:
        """The engine did not take it: nothing may be left that looks like data. What earlier attempts keep stays theirs."""
        if (folder := self._unsettled.pop(run.id, None)) is not None:
            with suppress(DiskTrouble):
                remove_tree(folder)
        for ref in run.refs:
            try:
                self._frames.discard(run.id, ref)
            except DatabuildError as error:
                self._context.log.warning(f"What was written for {ref} could not be removed: {error}")

    # The call

    def _call(self, call: _Call, inputs: Mapping[str, Inputs]) -> Attempt:
        context = self._build_context(call, call.used.values())
        with self._frames.staging(call.runs[0].id) as folder:
            if all(self._passes_on(run, inputs) for run in call.runs):
                return self._passed_on(call, context, folder)
            if self._body.parts is not None:
                return self._called_in_parts(call, self._body.parts, inputs, context, folder)
            arguments = self._arguments.of(call.runs, inputs, context, folder)
            self._raise_if_stopped(call)
            answer = self._body.function(**arguments)
            self._raise_if_stopped(call)
            for asset, result in self._by_asset(answer, call).items():
                self._stage(call, asset, result, os.path.join(folder, f"output-{len(call.staged)}"))
                self._raise_if_stopped(call)
                self._check(call, asset, context)
            self._raise_if_stopped(call)
            return Attempt(tuple(self._published(call, context)))

    def _build_context(self, call: _Call, used: Collection[dict[str, str]]) -> BuildContext:
        """What is read at run time is written into `used`."""
        return BuildContext(
            dagster_context=self._context,
            runs=call.runs,
            output_names=self._names,
            is_batched=self._body.is_batched,
            session=lambda: self._frames.session,
            read=lambda refs: self._arguments.read(refs, used),
        )

    def _passed_on(self, call: _Call, context: BuildContext, folder: str) -> Attempt:
        """Empty instances with the columns of their neighbours; nothing of the user's runs, no check either."""
        if self._body.parts is not None:
            self._attempts_before(call.runs[0], call.refs[0])
        for asset in self._by_asset(EMPTY, call):
            self._stage(call, asset, EMPTY, os.path.join(folder, f"output-{len(call.staged)}"))
        self._raise_if_stopped(call)
        self._context.log.info(f"{few_of(call.refs)}: the inputs are empty, which is passed on without a call.")
        return Attempt(tuple(self._published(call, context)))

    def _called_in_parts(
        self, call: _Call, split: Split, inputs: Mapping[str, Inputs], context: BuildContext, folder: str
    ) -> Attempt:
        """One call per part (SPEC 10.4). What there is of the lot stays if a part fails, and goes if the lot does."""
        (run,), (ref,) = call.runs, call.refs
        asset = asset_of(ref)
        lot = LotInParts(
            split,
            SplitInput(self._arguments, split.input, run, inputs),
            asset=self._arguments.upstream_of(split.input),
            ref=ref,
            uuid=derive_partition_uuid(run.id, ref),
            job_run=run.id,
            warehouse=self._frames.warehouse,
            code_version=self._datasets[asset].code_version or code_digest(self._body.function),
            declared=call.used[ref],
            filters=self._body.filters,
        )

        def call_part(part: Part) -> None:
            """In a thread of its own, which Spark tells apart: what stops the job run stops it there too."""
            used = dict(call.used[ref])
            of_part = self._build_context(call, [used])
            with self._frames.interruptible(self._launch_id, run.id), self._telling_of(part, call):
                self._raise_if_stopped(call)
                if self._body.uses_spark:
                    _ = self._frames.session  # A frame made in another thread does not tag what this one runs.
                given = {split.input: lot.input_of(part)}
                arguments = self._arguments.of(call.runs, inputs, of_part, folder, given)
                result = self._checked(self._body.function(**arguments), asset)
                self._raise_if_stopped(call)
                frame = None if result is EMPTY else result
                staged = self._frames.stage(frame, os.path.join(folder, f"part-{part.number}"), ref, used)
                if staged.files:  # What has no rows has no say about columns.
                    self._check_columns(ref, staged)
                self._raise_if_stopped(call)
                lot.publish(part, staged, used)
            context.add_output_metadata(of_part.output_metadata(ref))

        try:
            lot.find_parts()
            lot.take_over_kept(self._attempts_before(run, ref), self._arguments.are_current)
            self._context.log.info(lot.announced())
            lot.build(call_part, self._part_slots, self._parts_at_once)
            self._raise_if_stopped(call)
            if lot.failed or lot.missed:
                return Attempt((self._incomplete(run, lot),))
            call.used[ref].update(lot.inputs)
            call.children = lot.children
            has_gates = bool(self._body.gates.get(self._names[asset]))
            call.staged[ref] = lot.staged(os.path.join(folder, "whole") if has_gates else None)
            self._check(call, asset, context)
            self._raise_if_stopped(call)
        except BaseException:
            self.discard(run)
            raise
        context.add_output_metadata({"databuild/parts": len(lot.parts), "databuild/parts_reused": len(lot.reused)})
        return Attempt(tuple(self._published(call, context)))

    def _attempts_before(self, run: HostedRun, ref: str) -> list[str]:
        """Instances whose kept parts this one may use; from here on they are to be removed once it has ended."""
        attempts = self._frames.attempts_before(run.id, ref)
        if attempts:
            self._unsettled[run.id] = self._frames.lasting_folder(run.id)
        return attempts

    @contextmanager
    def _telling_of(self, part: Part, call: _Call) -> Iterator[None]:
        """What goes wrong with a part is told at once: the others may take a while."""
        try:
            yield
        except DepMiss as miss:
            if miss.by_name:
                named = next(iter(miss.by_name))
                raise BadResult(f"{self._what()} raised DepMiss for {named!r}, {_not_one_of([None])}.") from miss
            raise
        except BaseException as error:
            if self._frames.is_lost(error):
                self._frames.forget_lost_session()
            if not self._is_stopped(call):
                self._context.log.warning(f"Part {part.name} of {call.refs[0]} failed: {self._frames.explain(error)}")
            raise

    def _incomplete(self, run: HostedRun, lot: LotInParts) -> Result:
        """Some parts failed, or miss something: what the others wrote is kept for the next attempt."""
        why = lot.why_incomplete(self._frames.explain)
        try:
            kept = self._kept(run, lot, why)
        except DatabuildError as error:
            self.discard(run)
            kept = f"What the others wrote could not be kept: {error}"
        if not lot.failed:
            self._context.log.info(f"{lot.ref}: {why} {kept}")
            return Missed(run, {lot.ref: lot.missing})
        told = [f"Part {part.name}:\n{_traceback(error)}" for part, error in list(lot.failed.items())[:MAX_TRACEBACKS]]
        transient = all(self._is_transient(error) for error in lot.failed.values())
        return Failed(run, why, transient, "\n".join([*told, kept]))

    def _kept(self, run: HostedRun, lot: LotInParts, why: str) -> str:
        """Where, for people. Raises what writing raises."""
        if not lot.done:
            self.discard(run)
            return ""
        instance = self._frames.publish(
            lot.staged(), run.id, lot.ref, lot.inputs, state=lot.state, comment=why, children=lot.children
        )
        return f"What {counted_parts(len(lot.done))} wrote is kept in {instance.uri}."

    def _raise_if_stopped(self, call: _Call) -> None:
        if all(run.id in self._stopped for run in call.runs):
            raise _StoppedEarly

    def _by_asset(self, answer: Any, call: _Call) -> dict[str, Any]:
        """The result for each output that is asked for; whatever else was computed is not kept (SPEC 6.2)."""
        wanted = [asset for asset in self._names if call.refs_of(asset)]
        if None in self._names.values():
            return {wanted[0]: self._checked(answer, wanted[0])}
        names = list(self._body.outputs)
        if answer is EMPTY:
            return dict.fromkeys(wanted, EMPTY)
        if not isinstance(answer, Mapping):
            raise BadResult(
                f"{self._what()} returned {described(answer)}; return a dict with a DataFrame or EMPTY "
                f"for each of {_listed(names)}, or raise DepMiss or Transient."
            )
        if unknown := [name for name in answer if name not in names]:
            raise BadResult(f"{self._what()} returned {unknown[0]!r}, which is none of its outputs {_listed(names)}.")
        if missing := [self._names[asset] for asset in wanted if self._names[asset] not in answer]:
            raise BadResult(
                f"{self._what()} returned nothing for its output {missing[0]!r}; return EMPTY if it has no rows."
            )
        return {asset: self._checked(answer[self._names[asset]], asset) for asset in wanted}

    def _checked(self, result: Any, asset: str) -> Any:
        kind = kind_of(type(result))
        if isinstance(result, Empty) or (kind is not None and kind.is_input):
            return result
        raise BadResult(
            f"{asset} returned {described(result)}; "
            "return a DataFrame of Spark or pandas, or EMPTY, or raise DepMiss or Transient."
        )

    def _stage(self, call: _Call, asset: str, result: Any, folder: str) -> None:
        """Written where nobody looks, with columns that fit those of its neighbours."""
        refs = call.refs_of(asset)
        frame = None if result is EMPTY else result
        if self._body.is_batched:
            keys = [key for key in call.keys if key is not None]
            inputs = {key: call.used[ref] for ref in refs if (key := partition_key_of(ref)) is not None}
            by_key = self._frames.stage_batch(frame, folder, asset, keys, inputs)
            staged = {ref: by_key[partition_key_of(ref) or ""] for ref in refs}
        else:
            staged = {ref: self._frames.stage(frame, folder, ref, call.used[ref]) for ref in refs}
        for ref, each in staged.items():
            self._check_columns(ref, each)
        call.staged.update(staged)

    def _check_columns(self, ref: str, staged: Staged, *, from_now_on: bool = False) -> None:
        """Against the newest live instance, and whatever this step has built since. Raises `SchemaChanged`."""
        asset = asset_of(ref)
        with self._columns_lock:
            if asset not in self._columns:
                self._columns[asset] = self._frames.columns_of(asset)
            if not self._body.allow_schema_change:
                check_schema(staged.schema, ref, self._columns[asset])
            if from_now_on and staged.schema.columns:
                self._columns[asset] = Columns(ref, staged.schema)

    def _check(self, call: _Call, asset: str, context: BuildContext) -> None:
        """Ask the gates. Raises `GateClosed` where a verdict is on a whole batch."""
        refs = {partition_key_of(ref): ref for ref in call.refs_of(asset)}
        staged = {key: call.staged[ref] for key, ref in refs.items()}
        if not any(each.schema.columns for each in staged.values()):
            return  # Nothing but EMPTY, and never anything else.
        for gate in self._body.gates.get(self._names[asset], ()):
            found = self._ask(gate, staged, call, context)
            if isinstance(found, Verdict):
                if found.blocks and len(refs) > 1:
                    raise GateClosed(f"Check {gate.name} of {len(refs)} partitions: {found.why}")
                found = dict.fromkeys(refs, found)
            for key, verdict in found.items():
                call.verdicts.setdefault(refs[key], []).append(verdict)

    def _ask(
        self, gate: Gate, staged: Mapping[str | None, Staged], call: _Call, context: BuildContext
    ) -> Verdict | Mapping[str | None, Verdict]:
        """One verdict on all of them, or one on each. What a gate raises is a verdict too."""
        is_batched = self._body.is_batched
        try:
            arguments = {
                each.name: self._frames.staged(
                    staged, pandas=each.kind is ParameterKind.PANDAS_FRAME, by_key=is_batched
                )
                if each.kind.is_input
                else self._arguments.tool(each, context)
                for each in gate.parameters
            }
            return verdict_of(gate, gate.function(**arguments), list(staged), is_batched=is_batched)
        except (BadResult, DepMiss, Transient):
            raise
        except Exception as error:
            if self._is_stopped(call) or self._frames.is_transient(error):
                raise
            return Verdict(gate.name, passed=False, why=f"it raised {self._frames.explain(error)}")

    def _published(self, call: _Call, context: BuildContext) -> list[Result]:
        """Each by itself from here on: the function is not called again once anything has its place."""
        return in_threads(lambda run: self._publish_or_fail(call, run, context), call.runs)

    def _publish_or_fail(self, call: _Call, run: HostedRun, context: BuildContext) -> Result:
        try:
            return self._publish(call, run, context)
        except Exception as error:
            self.discard(run)
            return self._failed(run, error)

    def _publish(self, call: _Call, run: HostedRun, context: BuildContext) -> Result:
        if run.id in self._stopped:
            if call.children:
                self.discard(run)  # Parts have their places before the lot has.
            return Stopped(run, self._stopped[run.id])
        closed = call.closed(run)
        state = ManifestState.PARTIAL if closed else None
        if closed is None:
            # Once more, for neighbours that were staged at the same time may have become the ones to fit.
            for ref in run.refs:
                self._check_columns(ref, call.staged[ref], from_now_on=True)
        outputs = []
        for ref in run.refs:
            used = call.used[ref]
            lot = lot_id_of(self._datasets[asset_of(ref)], run.partition_key)
            instance = self._frames.publish(
                call.staged[ref],
                run.id,
                ref,
                used,
                state=state,
                comment=closed or "",
                children=call.children,
                lot_id=lot,
            )
            fact = OutputFact(
                ref=ref,
                inputs=used,
                code_version=self._datasets[asset_of(ref)].code_version,
                manifest=ManifestFact(
                    state=instance.state,
                    uri=instance.uri,
                    files=instance.files,
                    rows=instance.rows,
                    bytes=instance.bytes,
                ),
            )
            passed = tuple(call.verdicts.get(ref, ()))
            files_read = self._arguments.files_read.metadata(run.partition_key)
            outputs.append(BuiltOutput(fact, instance, passed, {**files_read, **context.output_metadata(ref)}))
        if closed:
            details = f"What it wrote is kept in {outputs[0].instance.uri}."
            return Failed(run, _sentence(closed), False, details, {o.fact.ref: o.verdicts for o in outputs})
        return Built(run, tuple(outputs))

    # Trouble

    def _missed(self, call: _Call, miss: DepMiss) -> Attempt:
        """What each of them misses; the rest of a batch is called for without those that miss something."""
        if not miss.by_name:
            return Attempt(tuple(Missed(run, dict.fromkeys(run.refs, miss.refs)) for run in call.runs))
        by_key = self._body.is_batched
        names = {ref: partition_key_of(ref) if by_key else self._names[asset_of(ref)] for ref in call.refs}
        if unknown := [name for name in miss.by_name if name not in names.values()]:
            return self._what_went_wrong(
                call, BadResult(f"{self._what()} raised DepMiss for {unknown[0]!r}, {_not_one_of(names.values())}.")
            )
        missed, others = [], []
        for run in call.runs:
            impacted = {ref: miss.by_name[name] for ref in run.refs if (name := names[ref]) in miss.by_name and name}
            if impacted:
                missed.append(Missed(run, impacted))
            else:
                others.append(run)
        return Attempt(tuple(missed), (tuple(others),) if others else ())

    def _what_went_wrong(self, call: _Call, error: BaseException) -> Attempt:
        """A batch that failed is halved until the guilty ref is alone: one bad day never fails its neighbours."""
        if self._is_stopped(call):
            return Attempt(tuple(Stopped(run, self._stopped[run.id]) for run in call.runs))
        lost = self._frames.is_lost(error)
        if lost:
            self._frames.forget_lost_session()
        if len(call.runs) > 1 and self._may_be_of_one(call, error, lost=lost):
            self._context.log.warning(
                f"A batch of {len(call.runs)} partitions failed and is halved: {self._frames.explain(error)}"
            )
            middle = len(call.runs) // 2
            return Attempt((), (call.runs[:middle], call.runs[middle:]))
        return Attempt(tuple(self._failed(run, error) for run in call.runs))

    def _may_be_of_one(self, call: _Call, error: BaseException, *, lost: bool) -> bool:
        """Whether one of a batch may be guilty alone."""
        if isinstance(error, _OF_ALL) or self._frames.is_of_the_machine(error):
            return False
        # Once it is bad luck. Twice, it may be what one of them does to a server, or to a service.
        return call.is_retry if lost or isinstance(error, Transient) else True

    def _failed(self, run: HostedRun, error: BaseException) -> Failed:
        return Failed(run, self._frames.explain(error), self._is_transient(error), _traceback(error))

    def _is_transient(self, error: BaseException) -> bool:
        return isinstance(error, Transient) or self._frames.is_transient(error)

    def _is_stopped(self, call: _Call) -> bool:
        return all(run.id in self._stopped for run in call.runs)

    def _what(self) -> str:
        return next(iter(self._datasets.values())).job


class _StoppedEarly(Exception):
    """Between two phases of a call all of whose job runs were ended from outside."""


def _not_one_of(names: Iterable[str | None]) -> str:
    """What an author may name in a dep miss of this call."""
    known = [name for name in dict.fromkeys(names) if name is not None]
    return (
        f"which this call does not build: it builds {few_of([repr(name) for name in known])}"
        if known
        else "but builds one thing only; name the missing refs alone, as in DepMiss(ref)"
    )


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _listed(names: Sequence[Any]) -> str:
    return ", ".join(repr(name) for name in names)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
