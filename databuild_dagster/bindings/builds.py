"""One job run, from pinned inputs to a written instance: what happens in a thread while others do the same.

Returns what became of it and never raises; telling the engine is the step's business, so that there is one
writer.
"""

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dagster import AssetExecutionContext, AssetKey

from databuild_dagster.bindings.body import AssetBody
from databuild_dagster.bindings.context import BuildContext
from databuild_dagster.bindings.frames import Frames, WrittenInstance
from databuild_dagster.bindings.hosting import HostedRun
from databuild_dagster.bindings.inputs import InputFinder, Inputs
from databuild_dagster.bindings.keys import asset_text
from databuild_dagster.bindings.outcomes import EMPTY, BadResult, DepMiss, Empty, Transient
from databuild_dagster.bindings.parameters import Parameter, ParameterKind, kind_of
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.events import ManifestFact, OutputFact
from databuild_dagster.model.refs import PartitionRef
from databuild_dagster.model.states import InstanceState


@dataclass(frozen=True, slots=True)
class Built:
    """The data is written; it is live when the engine says so."""

    run: HostedRun
    output: OutputFact
    instance: WrittenInstance
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Missed:
    """Refs it needs are not live."""

    run: HostedRun
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """It raised, or its answer was no answer."""

    run: HostedRun
    error: str
    is_transient: bool
    #: For Dagster's log.
    details: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """It was ended from outside, so nobody waits for its answer."""

    run: HostedRun
    why: str


_OF_SPARK = (ParameterKind.SPARK_FRAME, ParameterKind.SPARK_SESSION, ParameterKind.SPARK_RESOURCE)

Result = Built | Missed | Failed | Stopped


class Builder:
    """Builds the job runs of one step."""

    def __init__(
        self,
        context: AssetExecutionContext,
        key: AssetKey,
        body: AssetBody,
        config: Any,
        dataset: DatasetSpec,
        frames: Frames,
        finder: InputFinder,
    ) -> None:
        self._context = context
        self._key = key
        self._body = body
        self._config = config
        self._dataset = dataset
        self._frames = frames
        self._finder = finder
        #: A function that takes nothing of Spark's may do without a session.
        self._uses_spark = any(each.kind in _OF_SPARK for each in body.parameters)
        #: Job run to why it was ended from outside.
        self._stopped: dict[str, str] = {}

    def build(self, run: HostedRun, inputs: Inputs) -> Result:
        """Call the function for one ref and write what it returns."""
        used = {ref: pinned.uuid for ref, pinned in inputs.pinned.items() if pinned.uuid is not None}
        build_context = BuildContext(
            dagster_context=self._context,
            asset_key=self._key,
            ref=PartitionRef.parse(run.ref),
            job_run_id=run.id,
            session=lambda: self._frames.session,
            read=self._reader(used),
        )
        try:
            with self._frames.interruptible(run.id, uses_spark=self._uses_spark):
                self._raise_if_stopped(run)
                arguments = {each.name: self._argument(each, inputs, build_context) for each in self._body.parameters}
                self._raise_if_stopped(run)
                result = self._body.function(**arguments)
                self._raise_if_stopped(run)
                instance = self._write(run, result, used)
        except DepMiss as miss:
            return Missed(run, miss.refs)
        except BaseException as error:  # Whatever the user's code raises, SystemExit too, is this job run's alone.
            return self._what_went_wrong(run, error)
        output = OutputFact(
            ref=run.ref,
            inputs=used,
            code_version=self._dataset.code_version,
            manifest=ManifestFact(
                state=instance.state,
                uri=instance.uri,
                files=instance.files,
                rows=instance.rows,
                bytes=instance.bytes,
            ),
        )
        return Built(run, output, instance, build_context.output_metadata)

    def stop(self, job_run_id: str, why: str) -> None:
        """End a job run from another thread: its Spark work is interrupted, and its answer will not count."""
        self._stopped[job_run_id] = why
        self._frames.interrupt(job_run_id)

    def discard(self, built: Built) -> None:
        """The engine did not take it: nothing may be left that looks like data."""
        self._frames.discard(built.instance)

    def _raise_if_stopped(self, run: HostedRun) -> None:
        if run.id in self._stopped:
            raise _StoppedEarly

    def _what_went_wrong(self, run: HostedRun, error: BaseException) -> Result:
        if run.id in self._stopped:
            return Stopped(run, self._stopped[run.id])
        transient = isinstance(error, Transient) or self._frames.is_transient(error)
        details = "".join(traceback.format_exception(error))
        return Failed(run, self._frames.explain(error), transient, details)

    def _argument(self, parameter: Parameter, inputs: Inputs, build_context: BuildContext) -> Any:
        match parameter.kind:
            case ParameterKind.SPARK_FRAME | ParameterKind.PANDAS_FRAME:
                return self._input(parameter, inputs)
            case ParameterKind.SPARK_SESSION:
                return self._frames.session
            case ParameterKind.SPARK_RESOURCE:
                return self._frames.spark_resource
            case ParameterKind.CONTEXT:
                return build_context
            case ParameterKind.RESOURCE:
                return getattr(self._context.resources, parameter.name)
            case ParameterKind.CONFIG:
                return self._config

    def _input(self, parameter: Parameter, inputs: Inputs) -> Any:
        asset = asset_text(self._upstream(parameter))
        refs = inputs.refs_of_asset.get(asset, ())
        pandas = parameter.kind is ParameterKind.PANDAS_FRAME
        if self._finder.is_foreign(asset):
            return self._frames.load_foreign(asset, refs, parameter.annotation, pandas=pandas)
        return self._frames.read([inputs.pinned[ref] for ref in refs], asset, pandas=pandas)

    def _upstream(self, parameter: Parameter) -> AssetKey:
        """As registered; Dagster may have put a prefix before what the author wrote."""
        for spec in self._dataset.inputs:
            if spec.param == parameter.name:
                return AssetKey(spec.asset.split("/"))
        return self._body.upstreams[parameter.name]

    def _reader(self, used: dict[str, str]) -> Callable[[tuple[str, ...]], Any]:
        def read(refs: tuple[str, ...]) -> Any:
            pinned = self._finder.pin(refs)
            if missing := [ref for ref in refs if pinned[ref].state is not InstanceState.LIVE]:
                raise DepMiss(*missing)
            used.update((ref, uuid) for ref in refs if (uuid := pinned[ref].uuid) is not None)
            return self._frames.read([pinned[ref] for ref in refs], PartitionRef.parse(refs[0]).asset, pandas=False)

        return read

    def _write(self, run: HostedRun, result: Any, used: Mapping[str, str]) -> WrittenInstance:
        if not isinstance(result, Empty):
            kind = kind_of(type(result))
            if kind is None or not kind.is_input:
                raise BadResult(
                    f"{self._dataset.asset} returned {_described(result)}; "
                    "return a DataFrame of Spark or pandas, or EMPTY, or raise DepMiss or Transient."
                )
        return self._frames.write(run.id, run.ref, None if result is EMPTY else result, inputs=used)


class _StoppedEarly(Exception):
    """Between two phases of a job run that was ended from outside."""


def _described(result: Any) -> str:
    return "nothing (None)" if result is None else f"a {type(result).__module__}.{type(result).__qualname__}"
