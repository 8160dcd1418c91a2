"""The arguments of an asset's function, each parameter filled by its kind.

In a batch, an input whose partitions depend on the output's key has that key as a column. The declared mapping decides
that, not the partitions that happen to be in the batch.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, assert_never

from dagster import AssetExecutionContext

from databuild_dagster.bindings.adapter.keys import asset_text
from databuild_dagster.bindings.declare.asset_spec import AssetBody
from databuild_dagster.bindings.declare.build_context import BuildContext, HostedRun
from databuild_dagster.bindings.declare.outcomes import BadResult, DepMiss
from databuild_dagster.bindings.declare.parameters import Parameter, ParameterKind
from databuild_dagster.bindings.reading.frames import Frames, How, OnNarrowed
from databuild_dagster.data.inputs import InputFinder, Inputs
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.spark.frames import frame_type
from databuild_dagster.spark.memory_frames import FrameKind
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse.file_index import FilesRead


@dataclass
class Arguments:
    """Fills the parameters of an asset's function, call by call."""

    context: AssetExecutionContext
    body: AssetBody
    config: Any
    datasets: Mapping[str, DatasetSpec]
    frames: Frames
    finder: InputFinder
    #: Partition key to filtered input to the files that were read and all files. The last read counts.
    files_read: dict[str | None, dict[str, str]] = field(default_factory=dict)

    @property
    def dataset(self) -> DatasetSpec:
        """Any of the outputs, which all have the same inputs."""
        return next(iter(self.datasets.values()))

    def of(
        self,
        runs: Sequence[HostedRun],
        inputs: Mapping[Ref, Inputs],
        context: BuildContext,
        folder: str,
        given: Mapping[str, Any] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """The argument of each parameter; a parameter in `given` is not read.

        Data that Spark reads for a batch needs `folder` until the results are written.
        """
        found: dict[str, Any] = {}
        for number, parameter in enumerate(self.body.parameters):
            if parameter.name in given:
                found[parameter.name] = given[parameter.name]
            elif parameter.kind.is_input:
                found[parameter.name] = self._input(parameter, runs, inputs, os.path.join(folder, f"input-{number}"))
            else:
                found[parameter.name] = self.tool(parameter, context)
        return found

    def tool(self, parameter: Parameter, context: BuildContext) -> Any:
        """The argument of a parameter that is no input."""
        match parameter.kind:
            case ParameterKind.SPARK_SESSION:
                return self.frames.spark.session
            case ParameterKind.SPARK_RESOURCE:
                return self.frames.spark.resource
            case ParameterKind.CONTEXT:
                return context
            case ParameterKind.RESOURCE:
                return getattr(self.context.resources, parameter.name)
            case ParameterKind.CONFIG:
                return self.config
            case (
                ParameterKind.SPARK_FRAME
                | ParameterKind.PANDAS_FRAME
                | ParameterKind.POLARS_FRAME
                | ParameterKind.ARROW_TABLE
            ):
                raise AssertionError(f"{parameter.name} is an input")
            case _:
                assert_never(parameter.kind)

    def read(self, refs: tuple[Ref, ...], used: Iterable[dict[Ref, str]]) -> Any:
        """A frame of refs named at run time, recorded as read in `used`. Raises `DepMiss` for refs that are not live."""
        pinned = self.finder.pin(refs)
        if missing := [ref for ref in refs if pinned[ref].state is not InstanceState.LIVE]:
            raise DepMiss(*missing)
        uuids = {ref: uuid for ref in refs if (uuid := pinned[ref].uuid) is not None}
        for lineage in used:
            lineage.update(uuids)
        asset = asset_of(refs[0])
        if self.finder.is_foreign(asset):
            return self.frames.load_foreign(asset, refs, frame_type(), FrameKind.SPARK)
        return self.frames.read([pinned[ref] for ref in refs], asset, How(FrameKind.SPARK))

    def are_current(self, uuids: Mapping[Ref, str]) -> bool:
        """Whether a read would return the given instances now; `uuids` maps input ref to uuid."""
        pinned = self.finder.pin(uuids) if uuids else {}
        return all(pinned[ref].uuid == uuid and pinned[ref].state is InstanceState.LIVE for ref, uuid in uuids.items())

    def split_input(self, name: str, run: HostedRun, inputs: Mapping[Ref, Inputs]) -> "SplitInput":
        """The input of a lot that its parts share."""
        parameter = next(parameter for parameter in self.body.parameters if parameter.name == name)
        return SplitInput(self, parameter, run, inputs)

    def _input(self, parameter: Parameter, runs: Sequence[HostedRun], inputs: Mapping[Ref, Inputs], folder: str) -> Any:
        asset = self._upstream(parameter)
        kind = _frame_of(parameter)
        where = self.body.filters.get(parameter.name)
        found = {run.partition_key: inputs[run.refs[0]] for run in runs}
        if self.body.is_batched and self.finder.follows_key(self.dataset, asset):
            keyed = {key: given.refs_of_asset.get(asset, ()) for key, given in found.items() if key is not None}
            if self.finder.is_foreign(asset):
                frame = self.frames.load_foreign_by_key(asset, keyed, parameter.annotation, kind)
                has_columns = any(keyed.values())
                return self.frames.filtered(frame, where) if where and has_columns else frame
            pinned = {key: [found[key].pinned[ref] for ref in refs] for key, refs in keyed.items()}
            how = How(kind, where, self._noting(parameter.name, pinned.items()))
            return self.frames.read_by_key(pinned, asset, how, folder)
        one = next(iter(found.values()))
        refs = one.refs_of_asset.get(asset, ())
        if self.finder.is_foreign(asset):
            frame = self.frames.load_foreign(asset, refs, parameter.annotation, kind)
            return self.frames.filtered(frame, where) if where and refs else frame
        instances = [one.pinned[ref] for ref in refs]
        noting = self._noting(parameter.name, [(key, instances) for key in found])
        return self.frames.read(instances, asset, How(kind, where, noting))

    def _noting(self, name: str, read: Iterable[tuple[str | None, Sequence[Canonical]]]) -> OnNarrowed:
        """A callback for the number of files read: per partition for the materializations, in total for the log."""

        def note(of_uuid: Mapping[str, FilesRead]) -> None:
            for key, found in read:
                known = (of_uuid.get(instance.uuid or "") for instance in found)
                read_of_key = _summed(instance for instance in known if instance is not None)
                self.files_read.setdefault(key, {})[name] = f"{read_of_key.files} of {read_of_key.of}"
            total = _summed(of_uuid.values())
            self.context.log.info(
                f"{total.files} of {total.of} files of {name} are read where {self.body.filters[name]}."
            )

        return note

    def _upstream(self, parameter: Parameter) -> str:
        """The asset of a parameter as registered; Dagster may have added a prefix to the author's name."""
        for spec in self.dataset.inputs:
            if spec.param == parameter.name:
                return spec.asset
        return asset_text(self.body.upstreams[parameter.name])


@dataclass
class SplitInput:
    """The only input that the parts of a lot share."""

    arguments: Arguments
    parameter: Parameter
    run: HostedRun
    inputs: Mapping[Ref, Inputs]

    @cached_property
    def asset(self) -> str:
        return self.arguments._upstream(self.parameter)

    def whole(self) -> Any:
        """Its frame."""
        return self.arguments._input(self.parameter, [self.run], self.inputs, folder="")

    def file_sizes(self) -> dict[str, int]:
        """Its files, each with its bytes. Raises `BadResult` for a plain asset."""
        arguments = self.arguments
        if arguments.finder.is_foreign(self.asset):
            raise BadResult(
                f"{self.asset} is a plain Dagster asset, whose files only Dagster knows; "
                f"split {arguments.dataset.job} with parts=ByKey(…)."
            )
        noting = arguments._noting(self.parameter.name, [(self.run.partition_key, self._pinned())])
        return arguments.frames.file_sizes(self._pinned(), self.asset, self._how(noting))

    def of_files(self, files: Collection[str]) -> Any:
        """A frame of some of its files."""
        return self.arguments.frames.read(self._pinned(), self.asset, self._how(), files)

    def _pinned(self) -> list[Canonical]:
        found = self.inputs[self.run.refs[0]]
        return [found.pinned[ref] for ref in found.refs_of_asset.get(self.asset, ())]

    def _how(self, on_narrowed: OnNarrowed | None = None) -> How:
        where = self.arguments.body.filters.get(self.parameter.name)
        return How(_frame_of(self.parameter), where, on_narrowed)


def _frame_of(parameter: Parameter) -> FrameKind:
    kind = parameter.kind.frame
    assert kind is not None, f"{parameter.name} is no input"
    return kind


def _summed(counts: Iterable[FilesRead]) -> FilesRead:
    found = list(counts)
    return FilesRead(sum(count.files for count in found), sum(count.of for count in found))
