"""What an asset of ours is besides what Dagster's definition says of it, and how to find it again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dagster import AssetDep, AssetKey, AssetsDefinition

from databuild_dagster.bindings.adapter.asset_keys import asset_text
from databuild_dagster.bindings.adapter.dagster_private import stringify_asset_key_to_input_name
from databuild_dagster.bindings.declare.gates import Gate
from databuild_dagster.bindings.declare.lot_parts import Split
from databuild_dagster.bindings.declare.parameters import Parameter, ParameterKind

#: Partitions that one launch builds at most, unless the asset says otherwise (SPEC 11.2).
DEFAULT_MAX_PARTITIONS_PER_LAUNCH = 1000
#: Where the body rides: on the op's function, the one thing that survives every copy Dagster makes of an
#: asset.
BODY_ATTRIBUTE: Final = "__databuild_body__"

_OF_SPARK = (ParameterKind.SPARK_FRAME, ParameterKind.SPARK_SESSION, ParameterKind.SPARK_RESOURCE)


@dataclass(frozen=True, slots=True)
class AssetBody:
    """What the step needs of an asset besides what Dagster's definition says."""

    function: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    #: Parameter to upstream, as the author wrote it.
    upstreams: Mapping[str, AssetKey]
    #: What the author calls each output to the name of Dagster's output; one that is None for an asset alone.
    outputs: Mapping[str | None, str]
    #: Called once per launch with all its partitions, and not once per partition.
    is_batched: bool
    #: Checks of a new instance before it is live, by the author's name of the output.
    gates: Mapping[str | None, tuple[Gate, ...]]
    #: A new instance may have columns that do not fit those of the one before.
    allow_schema_change: bool
    max_partitions_per_launch: int
    concurrency: int | None
    #: What wakes it by itself, as the author wrote it; nothing for most.
    subscriptions: tuple[AssetDep, ...] = ()
    #: A source's new instance has what is live built anew.
    follow_late: bool = False
    #: What its inputs have nothing for has nothing either, and the function is not called.
    skip_empty: bool = False
    #: Parameter to the condition of Spark's SQL that its rows have to meet, for those that have one.
    filters: Mapping[str, str] = field(default_factory=dict)
    #: How a lot is split; None for a lot that one call builds.
    parts: Split | None = None

    @property
    def uses_spark(self) -> bool:
        """Whether the function or a check takes anything of Spark's; without, it may do without a session."""
        gates = (gate.parameters for of_output in self.gates.values() for gate in of_output)
        return any(parameter.kind in _OF_SPARK for parameters in (self.parameters, *gates) for parameter in parameters)

    def name_of(self, assets_def: AssetsDefinition, asset: str) -> str | None:
        """What the author calls an output, whatever prefix Dagster has put before its asset key since."""
        for name, dagster_output in self.outputs.items():
            key = assets_def.keys_by_output_name.get(dagster_output)
            if key is not None and asset_text(key) == asset:
                return name
        raise AssertionError(f"{asset} is no output of {assets_def}")

    def upstreams_in(self, assets_def: AssetsDefinition) -> dict[str, AssetKey]:
        """Parameter to upstream, whatever Dagster or a translator has made of the upstream's asset key since.

        The op's input is named after the key that the author wrote, and keeps its name.
        """
        return {name: _key_in(assets_def, key) for name, key in self.upstreams.items()}

    def sources_in(self, assets_def: AssetsDefinition) -> dict[AssetKey, AssetDep]:
        """What wakes it, in the same way; what is no declared input is what the author wrote."""
        return {_key_in(assets_def, dep.asset_key): dep for dep in self.subscriptions}


def _key_in(assets_def: AssetsDefinition, key: AssetKey) -> AssetKey:
    return assets_def.node_keys_by_input_name.get(stringify_asset_key_to_input_name(key), key)


def body_of(assets_def: AssetsDefinition) -> AssetBody | None:
    """The body of one of our assets, also of the copies Dagster makes of it; None for a plain asset."""
    if not assets_def.is_executable:
        return None
    decorated = getattr(getattr(assets_def.node_def, "compute_fn", None), "decorated_fn", None)
    body = getattr(decorated, BODY_ATTRIBUTE, None)
    return body if isinstance(body, AssetBody) else None
