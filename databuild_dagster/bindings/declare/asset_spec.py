"""The part of an asset that Dagster's definition does not have, and how to find it from the definition."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from dagster import AssetDep, AssetKey, AssetsDefinition

from databuild_dagster.bindings.adapter.dagster_private import stringify_asset_key_to_input_name
from databuild_dagster.bindings.adapter.keys import asset_text
from databuild_dagster.bindings.declare.gates import Gate
from databuild_dagster.bindings.declare.parameters import Parameter, ParameterKind, kind_of
from databuild_dagster.model.refs import Ref
from databuild_dagster.spark.memory_frames import FrameKind

if TYPE_CHECKING:
    from databuild_dagster.bindings.building.call import Call, Leftovers, Stops, Tools
    from databuild_dagster.bindings.building.outputs import Outputs
    from databuild_dagster.bindings.claims.results import Attempt
    from databuild_dagster.bindings.declare.build_context import BuildContext
    from databuild_dagster.data.inputs import Inputs

#: The most partitions of a launch, unless the asset sets the number (rule 11.2).
DEFAULT_MAX_PARTITIONS_PER_LAUNCH = 1000
#: The attribute of the op's function that has the body: the function survives every copy that Dagster makes of an asset.
BODY_ATTRIBUTE: Final = "__databuild_body__"

_OF_SPARK = (ParameterKind.SPARK_FRAME, ParameterKind.SPARK_SESSION, ParameterKind.SPARK_RESOURCE)


class Caller(Protocol):
    """Makes the calls of a step's function, in place of one call for each job run or batch."""

    def call(self, call: Call, inputs: Mapping[Ref, Inputs], context: BuildContext, folder: str) -> Attempt:
        """Build the only job run of `call`; `folder` takes what is not published yet. Raises what the function raises."""


class Split(Protocol):
    """An option of an asset that divides a call of its function into several."""

    def caller(self, tools: Tools, outputs: Outputs, stops: Stops, leftovers: Leftovers, *, threads: int) -> Caller:
        """The caller of a step; `threads` calls run at a time unless the option says otherwise."""


@dataclass(frozen=True, slots=True)
class AssetBody:
    """The part of an asset that a step needs and Dagster's definition does not have."""

    function: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    #: Parameter to upstream, as written by the author.
    upstreams: Mapping[str, AssetKey]
    #: The author's name of each output to the name of Dagster's output; a single asset's output has the name None.
    outputs: Mapping[str | None, str]
    #: The function is called once per launch with all its partitions, not once per partition.
    is_batched: bool
    #: Checks of a new instance before it is live, by the author's name of the output.
    gates: Mapping[str | None, tuple[Gate, ...]]
    #: A new instance may have different columns than the instance before.
    allow_schema_change: bool
    max_partitions_per_launch: int
    concurrency: int | None
    #: The sources of its arc, as written by the author.
    subscriptions: tuple[AssetDep, ...] = ()
    #: A new instance of a source rebuilds live partitions.
    follow_late: bool = False
    #: A partition whose inputs are all empty is empty, without a call of the function.
    skip_empty: bool = False
    #: Parameter to its filter, a condition of Spark's SQL; only parameters with a filter.
    filters: Mapping[str, str] = field(default_factory=dict)
    #: How a call becomes several; None if a single call builds a job run or a batch.
    split: Split | None = None

    @property
    def uses_spark(self) -> bool:
        """Whether the function or a check has a parameter of Spark's; otherwise no session is needed."""
        return any(kind in _OF_SPARK for kind in self._kinds)

    @property
    def is_configured(self) -> bool:
        """Whether the function or a check has a parameter with the run's configuration."""
        return ParameterKind.CONFIG in self._kinds

    @property
    def may_run_beside(self) -> bool:
        """Whether its launches may run beside others in a process: it computes in Spark alone, or has a `concurrency` above 1."""
        frames = {kind.frame for kind in self._kinds} | {self.returned_kind}
        return (self.concurrency or 1) > 1 or frames <= {FrameKind.SPARK, None}

    @property
    def returned_kind(self) -> FrameKind:
        """As annotated; without an annotation Spark's where the function uses Spark, else pandas'."""
        annotation = _return_annotation(self.function)
        for option in (annotation, *typing.get_args(annotation)):
            kind = kind_of(option)
            if kind is not None and kind.frame is not None:
                return kind.frame
        return FrameKind.SPARK if self.uses_spark else FrameKind.PANDAS

    @property
    def _kinds(self) -> Iterator[ParameterKind]:
        """Of the parameters of the function and of its checks."""
        gates = (gate.parameters for of_output in self.gates.values() for gate in of_output)
        return (parameter.kind for parameters in (self.parameters, *gates) for parameter in parameters)

    def name_of(self, assets_def: AssetsDefinition, asset: str) -> str | None:
        """The author's name of an output, also after Dagster has added a prefix to its asset key."""
        for name, dagster_output in self.outputs.items():
            key = assets_def.keys_by_output_name.get(dagster_output)
            if key is not None and asset_text(key) == asset:
                return name
        raise AssertionError(f"{asset} is no output of {assets_def}")

    def upstreams_in(self, assets_def: AssetsDefinition) -> dict[str, AssetKey]:
        """Parameter to upstream, also after Dagster or a translator has changed the upstream's asset key.

        The op's input keeps its name, which is derived from the author's key.
        """
        return {name: _key_in(assets_def, key) for name, key in self.upstreams.items()}

    def sources_in(self, assets_def: AssetsDefinition) -> dict[AssetKey, AssetDep]:
        """The sources of the arc, in the same way; a source that is no declared input keeps the author's key."""
        return {_key_in(assets_def, dep.asset_key): dep for dep in self.subscriptions}


def _return_annotation(function: Callable[..., Any]) -> Any:
    try:
        return typing.get_type_hints(function).get("return")
    except NameError:  # A name that only the scope of the function has.
        return None


def _key_in(assets_def: AssetsDefinition, key: AssetKey) -> AssetKey:
    return assets_def.node_keys_by_input_name.get(stringify_asset_key_to_input_name(key), key)


def body_of(assets_def: AssetsDefinition) -> AssetBody | None:
    """The body of a databuild asset, also of Dagster's copies of it; None for a plain asset."""
    if not assets_def.is_executable:
        return None
    decorated = getattr(getattr(assets_def.node_def, "compute_fn", None), "decorated_fn", None)
    body = getattr(decorated, BODY_ATTRIBUTE, None)
    return body if isinstance(body, AssetBody) else None
