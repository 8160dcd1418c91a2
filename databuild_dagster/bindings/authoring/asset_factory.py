"""A function and its options become a Dagster asset whose every build passes our step.

Dagster gets a generator `@multi_asset` with skippable outputs. Our inputs are deps of the specs, so the graph is right
and no IO manager loads them. Calling the asset calls the function.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from dagster import (
    AssetCheckSpec,
    AssetDep,
    AssetExecutionContext,
    AssetIn,
    AssetKey,
    AssetsDefinition,
    AssetSpec,
    BackfillPolicy,
    HookDefinition,
    multi_asset,
)

from databuild_dagster.bindings.adapter.dagster_private import quiet_beta_warnings
from databuild_dagster.bindings.adapter.keys import DEPLOYMENT, IO_MANAGER, SPARK
from databuild_dagster.bindings.building.deployment import Deployment, DeploymentResource
from databuild_dagster.bindings.building.io_manager import databuild_io_manager
from databuild_dagster.bindings.building.step import run_step
from databuild_dagster.bindings.declare.asset_spec import BODY_ATTRIBUTE, AssetBody, body_of
from databuild_dagster.bindings.declare.numbers import why_out_of_bounds
from databuild_dagster.bindings.declare.parameters import InvalidAsset, Parameter, ParameterKind
from databuild_dagster.bindings.display.checks import selected_taint_checks, taint_check_spec
from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark
from databuild_dagster.model.wording import number_in_words


class DatabuildAsset(AssetsDefinition):
    """The result of the decorators: a Dagster asset that calls its function when called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        body = body_of(self)
        assert body is not None, "a DatabuildAsset is made by the decorators only"
        return body.function(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class OfTheStep:
    """The options that Dagster keeps for the step of an asset, which builds any number of its partitions."""

    name: str
    backfill_policy: BackfillPolicy | None = None
    pool: str | None = None
    op_tags: Mapping[str, Any] | None = None
    required_resource_keys: Iterable[str] | None = None
    hooks: Iterable[HookDefinition] | None = None


def as_dagster_asset(specs: Sequence[AssetSpec], body: AssetBody, step: OfTheStep) -> DatabuildAsset:
    """The asset with one output per spec, and a check per gate."""
    backfill_policy = step.backfill_policy
    if backfill_policy is None and specs[0].partitions_def is not None:
        # One Dagster run costs seconds and hosts any number of partitions, which fail separately.
        backfill_policy = BackfillPolicy.single_run()
    keys = {output_name(spec.key): spec.key for spec in specs}
    checks = [taint_check_spec(spec.key) for spec in specs] + [
        # Not blocking in Dagster: an instance that does not pass never becomes live, which is enough.
        AssetCheckSpec(gate.name, asset=keys[body.outputs[name]], description=gate.description)
        for name, gates in body.gates.items()
        for gate in gates
    ]
    resources = {parameter.name for parameter in body.parameters if parameter.kind is ParameterKind.RESOURCE}
    with quiet_beta_warnings():
        assets_def = multi_asset(
            specs=specs,
            check_specs=checks,
            # Only a step that can be subset may leave out checks and outputs, and a run may select a check alone.
            can_subset=True,
            name=step.name,
            required_resource_keys={DEPLOYMENT, SPARK, *resources, *(step.required_resource_keys or ())},
            resource_defs=_default_resources(),
            backfill_policy=backfill_policy,
            pool=step.pool,
            op_tags=step.op_tags,
            hooks=None if step.hooks is None else set(step.hooks),
        )(_step_function(body))
        return DatabuildAsset(**assets_def.get_attributes_dict())


@cache
def _default_resources() -> dict[str, Any]:
    """Enough for `materialize([asset])`; `build_definitions` replaces them. Dagster compares them by identity, hence the cache."""
    return {
        DEPLOYMENT: DeploymentResource(Deployment()),
        SPARK: DatabuildSpark().get_resource_definition(),
        IO_MANAGER: databuild_io_manager,
    }


def output_name(key: AssetKey) -> str:
    """Dagster's name for the output of an asset."""
    return key.to_python_identifier()


def _step_function(body: AssetBody) -> Callable[..., Iterator[Any]]:
    """The generator Dagster runs: its signature has only context and config, which Dagster fills."""
    config = next((p.annotation for p in body.parameters if p.kind is ParameterKind.CONFIG), None)

    def with_config(context: AssetExecutionContext, config: Any) -> Iterator[Any]:
        if not context.selected_asset_keys:
            # The run selects checks alone. Blocking checks run only with new data.
            yield from selected_taint_checks(context)
            return
        yield from run_step(context, body, config)

    def without_config(context: AssetExecutionContext) -> Iterator[Any]:
        yield from with_config(context, None)

    step: Any = without_config if config is None else with_config
    if config is not None:
        step.__annotations__["config"] = config
    step.__name__ = getattr(body.function, "__name__", "asset")
    setattr(step, BODY_ATTRIBUTE, body)
    return step  # type: ignore[no-any-return]


def upstreams_of(asset_name: str, parameters: Sequence[Parameter], ins: Mapping[str, AssetIn]) -> dict[str, AssetKey]:
    """Parameter to its upstream asset. Raises `InvalidAsset`."""
    inputs = [parameter.name for parameter in parameters if parameter.kind.is_input]
    for unknown in [given for given in ins if given not in inputs]:
        raise InvalidAsset(f"ins of asset {asset_name!r} names {unknown!r}, which is not a DataFrame parameter of it.")
    return {parameter: _upstream_key(parameter, ins.get(parameter)) for parameter in inputs}


def _upstream_key(parameter: str, asset_in: AssetIn | None) -> AssetKey:
    if asset_in is None:
        return AssetKey(parameter)
    if asset_in.key is not None:
        return AssetKey.from_coercible(asset_in.key)
    prefix = asset_in.key_prefix
    return AssetKey([*([prefix] if isinstance(prefix, str) else prefix or ()), parameter])


def deps_of(
    asset_name: str, upstreams: Mapping[str, AssetKey], ins: Mapping[str, AssetIn], deps: Sequence[Any]
) -> list[AssetDep]:
    """Every asset that must be live, read or not, with its partition mapping. Raises `InvalidAsset`."""
    read: dict[AssetKey, AssetDep] = {}
    for parameter, upstream in upstreams.items():
        mapping = ins[parameter].partition_mapping if parameter in ins else None
        if upstream in read:
            raise InvalidAsset(f"Asset {asset_name!r} reads {upstream.to_user_string()!r} through two parameters.")
        read[upstream] = AssetDep(upstream, partition_mapping=mapping)
    for given in deps:
        dep = AssetDep.from_coercible(given)
        read.setdefault(dep.asset_key, dep)
    return list(read.values())


def at_least_one(asset_name: str, option: str, value: int) -> int:
    """The value. Raises `InvalidAsset`."""
    if why := why_out_of_bounds(value, 1):
        raise InvalidAsset(f"{option} of asset {asset_name!r} is {number_in_words(value)}; {why}.")
    return value
