"""What an asset's function is called with: each parameter filled by its kind.

In a batch an input whose partitions depend on the output's key comes with that key as a column, and any other
input without; the declared mapping decides, never what happens to be in the batch.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, assert_never

from dagster import AssetExecutionContext

from databuild_dagster.bindings.adapter.asset_keys import asset_text
from databuild_dagster.bindings.claims.claims import HostedRun
from databuild_dagster.bindings.declare.asset_spec import AssetBody
from databuild_dagster.bindings.declare.build_context import BuildContext
from databuild_dagster.bindings.declare.input_filters import FilesReadOfStep, summed
from databuild_dagster.bindings.declare.outcomes import BadResult, DepMiss
from databuild_dagster.bindings.declare.parameters import Parameter, ParameterKind
from databuild_dagster.bindings.reading.frames import Frames, OnNarrowed
from databuild_dagster.data.inputs import InputFinder, Inputs
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.spark.frames import frame_type
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse.file_index import FilesRead


class Arguments:
    """Fills the parameters of one asset's function, call by call."""

    def __init__(
        self,
        context: AssetExecutionContext,
        body: AssetBody,
        config: Any,
        datasets: Mapping[str, DatasetSpec],
        frames: Frames,
        finder: InputFinder,
    ) -> None:
        self._context = context
        self._body = body
        self._config = config
        #: Outputs of one function have the same inputs.
        self._dataset = next(iter(datasets.values()))
        self._frames = frames
        self._finder = finder
        #: What filters have spared.
        self.files_read = FilesReadOfStep()

    def of(
        self,
        runs: Sequence[HostedRun],
        inputs: Mapping[str, Inputs],
        context: BuildContext,
        folder: str,
        given: Mapping[str, Any] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """By parameter; what is `given` is not read. What Spark reads of a batch hangs on `folder` until the results
        are written."""
        return {
            each.name: given[each.name]
            if each.name in given
            else self._input(each, runs, inputs, os.path.join(folder, f"input-{number}"))
            if each.kind.is_input
            else self.tool(each, context)
            for number, each in enumerate(self._body.parameters)
        }

    def tool(self, parameter: Parameter, context: BuildContext) -> Any:
        """What is not an input."""
        match parameter.kind:
            case ParameterKind.SPARK_SESSION:
                return self._frames.spark.session
            case ParameterKind.SPARK_RESOURCE:
                return self._frames.spark.resource
            case ParameterKind.CONTEXT:
                return context
            case ParameterKind.RESOURCE:
                return getattr(self._context.resources, parameter.name)
            case ParameterKind.CONFIG:
                return self._config
            case ParameterKind.SPARK_FRAME | ParameterKind.PANDAS_FRAME:
                raise AssertionError(f"{parameter.name} is an input")
            case _:
                assert_never(parameter.kind)

    def read(self, refs: tuple[str, ...], used: Iterable[dict[str, str]]) -> Any:
        """A frame of refs named at run time, and written down as read. Raises `DepMiss` for those not live."""
        pinned = self._finder.pin(refs)
        if missing := [ref for ref in refs if pinned[ref].state is not InstanceState.LIVE]:
            raise DepMiss(*missing)
        uuids = {ref: uuid for ref in refs if (uuid := pinned[ref].uuid) is not None}
        for lineage in used:
            lineage.update(uuids)
        asset = asset_of(refs[0])
        if self._finder.is_foreign(asset):
            return self._frames.load_foreign(asset, refs, frame_type(), pandas=False)
        return self._frames.read([pinned[ref] for ref in refs], asset, pandas=False)

    def whole(self, name: str, run: HostedRun, inputs: Mapping[str, Inputs]) -> Any:
        """The frame of one parameter by itself."""
        return self._input(self._named(name), [run], inputs, folder="")

    def file_sizes(self, name: str, run: HostedRun, inputs: Mapping[str, Inputs]) -> dict[str, int]:
        """The files that one parameter's frame is made of, each with its bytes. Raises `BadResult` for a plain asset."""
        parameter = self._named(name)
        asset = self._upstream(parameter)
        if self._finder.is_foreign(asset):
            raise BadResult(
                f"{asset} is a plain Dagster asset, whose files only Dagster knows; split {self._dataset.job} "
                "with parts=ByKey(…)."
            )
        found = inputs[run.refs[0]]
        pinned = [found.pinned[ref] for ref in found.refs_of_asset.get(asset, ())]
        return self._frames.file_sizes(
            pinned,
            asset,
            pandas=parameter.kind is ParameterKind.PANDAS_FRAME,
            where=self._body.filters.get(name),
            on_narrowed=self._noting(name, [(run.partition_key, pinned)]),
        )

    def of_files(self, name: str, run: HostedRun, inputs: Mapping[str, Inputs], files: Collection[str]) -> Any:
        """The frame of one parameter, of some of its files only."""
        parameter = self._named(name)
        asset, found = self._upstream(parameter), inputs[run.refs[0]]
        pinned = [found.pinned[ref] for ref in found.refs_of_asset.get(asset, ())]
        pandas = parameter.kind is ParameterKind.PANDAS_FRAME
        return self._frames.read(pinned, asset, pandas=pandas, files=files, where=self._body.filters.get(name))

    def are_current(self, uuids: Mapping[str, str]) -> bool:
        """Whether these instances, input ref to uuid, are what would be read now."""
        pinned = self._finder.pin(uuids) if uuids else {}
        return all(pinned[ref].uuid == uuid and pinned[ref].state is InstanceState.LIVE for ref, uuid in uuids.items())

    def upstream_of(self, name: str) -> str:
        """The asset that a parameter stands for."""
        return self._upstream(self._named(name))

    def _named(self, name: str) -> Parameter:
        return next(each for each in self._body.parameters if each.name == name)

    def _input(self, parameter: Parameter, runs: Sequence[HostedRun], inputs: Mapping[str, Inputs], folder: str) -> Any:
        asset = self._upstream(parameter)
        pandas = parameter.kind is ParameterKind.PANDAS_FRAME
        where = self._body.filters.get(parameter.name)
        found = {run.partition_key: inputs[run.refs[0]] for run in runs}
        if self._body.is_batched and self._finder.follows_key(self._dataset, asset):
            keyed = {key: each.refs_of_asset.get(asset, ()) for key, each in found.items() if key is not None}
            if self._finder.is_foreign(asset):
                frame = self._frames.load_foreign_by_key(asset, keyed, parameter.annotation, pandas=pandas)
                has_columns = any(keyed.values())
                return self._frames.filtered(frame, where, pandas=pandas) if where and has_columns else frame
            pinned = {key: [found[key].pinned[ref] for ref in refs] for key, refs in keyed.items()}
            noting = self._noting(parameter.name, pinned.items())
            return self._frames.read_by_key(pinned, asset, folder, pandas=pandas, where=where, on_narrowed=noting)
        one = next(iter(found.values()))
        refs = one.refs_of_asset.get(asset, ())
        if self._finder.is_foreign(asset):
            frame = self._frames.load_foreign(asset, refs, parameter.annotation, pandas=pandas)
            return self._frames.filtered(frame, where, pandas=pandas) if where and refs else frame
        instances = [one.pinned[ref] for ref in refs]
        noting = self._noting(parameter.name, [(key, instances) for key in found])
        return self._frames.read(instances, asset, pandas=pandas, where=where, on_narrowed=noting)

    def _noting(self, name: str, read: Iterable[tuple[str | None, Sequence[Canonical]]]) -> OnNarrowed:
        """What hears how many files are read: of each partition for the materializations, of all for the log."""

        def note(of_uuid: Mapping[str, FilesRead]) -> None:
            for key, found in read:
                known = (of_uuid.get(each.uuid or "") for each in found)
                self.files_read.note(key, name, summed(each for each in known if each is not None))
            total = summed(of_uuid.values())
            self._context.log.info(
                f"{total.files} of {total.of} files of {name} are read where {self._body.filters[name]}."
            )

        return note

    def _upstream(self, parameter: Parameter) -> str:
        """As registered; Dagster may have put a prefix before what the author wrote."""
        for spec in self._dataset.inputs:
            if spec.param == parameter.name:
                return spec.asset
        return asset_text(self._body.upstreams[parameter.name])
