"""One call of an asset's function, from pinned inputs to written instances: what happens in a thread while
others do the same.

A call builds one job run, or a whole batch of them. Returns what became of each and never raises; telling the
engine is the step's business, so that there is one writer.
"""

import os
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagster import AssetExecutionContext

from databuild_dagster.bindings.arguments import Arguments
from databuild_dagster.bindings.body import AssetBody
from databuild_dagster.bindings.context import BuildContext
from databuild_dagster.bindings.frames import Frames
from databuild_dagster.bindings.gates import GateClosed, Verdict, described, verdicts
from databuild_dagster.bindings.hosting import HostedRun
from databuild_dagster.bindings.inputs import InputFinder, Inputs
from databuild_dagster.bindings.outcomes import EMPTY, BadResult, DepMiss, Empty, Transient
from databuild_dagster.bindings.parameters import ParameterKind, kind_of
from databuild_dagster.bindings.results import Attempt, Built, BuiltOutput, Failed, Missed, Result, Stopped
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.events import ManifestFact, OutputFact
from databuild_dagster.model.refs import asset_of, partition_key_of
from databuild_dagster.spark import Staged, check_schema, in_threads
from databuild_dagster.warehouse import ManifestState


@dataclass
class _Call:
    """One call of the function, as far as it has come."""

    runs: tuple[HostedRun, ...]
    #: Ref to input ref to the uuid that was read.
    used: dict[str, dict[str, str]]
    staged: dict[str, Staged] = field(default_factory=dict)
    verdicts: dict[str, list[Verdict]] = field(default_factory=dict)

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

    def units(self, runs: Sequence[HostedRun]) -> list[tuple[HostedRun, ...]]:
        """The calls that build these job runs."""
        if self._body.is_batched:
            return [tuple(runs)] if runs else []
        return [(run,) for run in runs]

    def build(self, runs: tuple[HostedRun, ...], inputs: Mapping[str, Inputs]) -> Attempt:
        """Call the function once for all of these job runs, and write what it returns."""
        stopped = tuple(Stopped(run, self._stopped[run.id]) for run in runs if run.id in self._stopped)
        left = tuple(run for run in runs if run.id not in self._stopped)
        if not left:
            return Attempt(stopped)
        used = {ref: inputs[ref].uuids for run in left for ref in run.refs}
        call = _Call(left, used)
        self._together.update((run.id, left) for run in left)
        try:
            # By the launch everything of it can be stopped, also by others; by its first job run only this call.
            with self._frames.interruptible(self._launch_id, left[0].id, uses_spark=self._body.uses_spark):
                attempt = self._call(call, inputs)
        except DepMiss as miss:
            attempt = self._missed(call, miss)
        except BaseException as error:  # Whatever the user's code raises, SystemExit too, is this call's alone.
            attempt = self._what_went_wrong(call, error)
        return Attempt((*stopped, *attempt.results), attempt.again)

    def stop(self, job_run_id: str, why: str) -> None:
        """End a job run from another thread: its answer will not count.

        Its Spark work is interrupted, unless it is also that of neighbours that are to go on.
        """
        self._stopped[job_run_id] = why
        together = self._together.get(job_run_id, ())
        if together and all(run.id in self._stopped for run in together):
            self._frames.interrupt(together[0].id)

    def discard(self, built: Built) -> None:
        """The engine did not take it: nothing may be left that looks like data."""
        for output in built.outputs:
            self._frames.discard(built.run.id, output.fact.ref)

    # The call

    def _call(self, call: _Call, inputs: Mapping[str, Inputs]) -> Attempt:
        context = BuildContext(
            dagster_context=self._context,
            runs=call.runs,
            output_names=self._names,
            session=lambda: self._frames.session,
            read=lambda refs: self._arguments.read(refs, call.used.values()),
        )
        with self._frames.staging(call.runs[0].id) as folder:
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
            keys = {key: None for key in call.keys if key is not None}
            inputs = {key: call.used[ref] for ref in refs if (key := partition_key_of(ref)) is not None}
            by_key = self._frames.stage_batch(frame, folder, asset, keys, inputs)
            staged = {ref: by_key[partition_key_of(ref) or ""] for ref in refs}
        else:
            staged = {ref: self._frames.stage(frame, folder, ref, call.used[ref]) for ref in refs}
        if not self._body.allow_schema_change and (newest := self._frames.newest(asset)) is not None:
            for ref, each in staged.items():
                check_schema(each.schema, ref, newest)
        call.staged.update(staged)

    def _check(self, call: _Call, asset: str, context: BuildContext) -> None:
        """Ask the gates. Raises `GateClosed` where a verdict is on a whole batch."""
        gates = self._body.gates.get(self._names[asset], ())
        refs = {partition_key_of(ref): ref for ref in call.refs_of(asset)}
        staged = {key: call.staged[ref] for key, ref in refs.items()}
        if not any(each.schema.columns for each in staged.values()):
            return  # Nothing but EMPTY, and never anything else.
        for gate in gates:
            try:
                arguments = {
                    each.name: self._frames.staged(
                        staged, pandas=each.kind is ParameterKind.PANDAS_FRAME, by_key=self._body.is_batched
                    )
                    if each.kind.is_input
                    else self._arguments.tool(each, context)
                    for each in gate.parameters
                }
                answer = gate.function(**arguments)
                found = verdicts(gate, answer, list(refs), is_batched=self._body.is_batched)
            except BadResult:
                raise
            except Exception as error:
                if self._is_transient(error) or self._is_stopped(call):
                    raise
                raise GateClosed(f"Check {gate.name} raised {self._frames.explain(error)}") from error
            if len(refs) > 1 and (verdict := _common(found.values())) is not None and verdict.blocks:
                raise GateClosed(f"Check {gate.name}: {verdict.why}")
            for key, verdict in found.items():
                call.verdicts.setdefault(refs[key], []).append(verdict)

    def _published(self, call: _Call, context: BuildContext) -> list[Result]:
        try:
            return in_threads(lambda run: self._publish(call, run, context), call.runs)
        except BaseException:
            # Their uuids are to be written once more, and an instance is never overwritten.
            for run in call.runs:
                for ref in run.refs:
                    self._frames.discard(run.id, ref)
            raise

    def _publish(self, call: _Call, run: HostedRun, context: BuildContext) -> Result:
        if run.id in self._stopped:
            return Stopped(run, self._stopped[run.id])
        closed = call.closed(run)
        state = ManifestState.PARTIAL if closed else None
        outputs = []
        for ref in run.refs:
            used = call.used[ref]
            instance = self._frames.publish(call.staged[ref], run.id, ref, used, state=state, comment=closed or "")
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
            outputs.append(BuiltOutput(fact, instance, passed, context.output_metadata(ref)))
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
        known = {str(key) for key in call.keys} if by_key else {str(name) for name in self._names.values()}
        if unknown := [name for name in miss.by_name if name not in known]:
            what = "a partition key of this batch" if by_key else f"one of its outputs {_listed(sorted(known))}"
            why = f"which is not {what}"
            if not by_key and None in self._names.values():
                why = "but builds one thing only; name the missing refs alone, as in DepMiss(ref)"
            return self._what_went_wrong(call, BadResult(f"{self._what()} raised DepMiss for {unknown[0]!r}, {why}."))
        missed, others = [], []
        for run in call.runs:
            names = {ref: str(run.partition_key) if by_key else str(self._names[asset_of(ref)]) for ref in run.refs}
            impacted = {ref: miss.by_name[name] for ref, name in names.items() if name in miss.by_name}
            if impacted:
                missed.append(Missed(run, impacted))
            else:
                others.append(run)
        return Attempt(tuple(missed), (tuple(others),) if others else ())

    def _what_went_wrong(self, call: _Call, error: BaseException) -> Attempt:
        """A batch that failed is halved until the guilty ref is alone: one bad day never fails its neighbours."""
        if self._is_stopped(call):
            return Attempt(tuple(Stopped(run, self._stopped[run.id]) for run in call.runs))
        transient = isinstance(error, Transient) or self._is_transient(error)
        if len(call.runs) > 1 and not isinstance(error, Transient) and not self._frames.is_lost(error):
            middle = len(call.runs) // 2
            return Attempt((), (call.runs[:middle], call.runs[middle:]))
        details = "".join(traceback.format_exception(error))
        return Attempt(tuple(Failed(run, self._frames.explain(error), transient, details) for run in call.runs))

    def _is_stopped(self, call: _Call) -> bool:
        return all(run.id in self._stopped for run in call.runs)

    def _is_transient(self, error: BaseException) -> bool:
        return self._frames.is_transient(error)

    def _what(self) -> str:
        return next(iter(self._datasets.values())).job


class _StoppedEarly(Exception):
    """Between two phases of a call all of whose job runs were ended from outside."""


def _common(found: "Any") -> Verdict | None:
    """The one verdict on a whole batch, if it was not given key by key."""
    distinct = {id(verdict): verdict for verdict in found}
    return next(iter(distinct.values())) if len(distinct) == 1 else None


def _listed(names: Sequence[Any]) -> str:
    return ", ".join(repr(name) for name in names)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
