"""`@databuild_asset`: a function from frames to a frame becomes a Dagster asset whose every build is asked
for first.

Dagster is shown a generator `@multi_asset` with one skippable output; its inputs are ours (they stand in the
spec's deps, so the graph is right) and no IO manager is asked for them. Calling the asset calls the function.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from dagster import (
    AssetDep,
    AssetExecutionContext,
    AssetIn,
    AssetKey,
    AssetsDefinition,
    AssetSpec,
    AutomationCondition,
    BackfillPolicy,
    PartitionsDefinition,
    multi_asset,
)

from databuild_dagster.bindings.body import (
    BODY_ATTRIBUTE,
    DEFAULT_MAX_PARTITIONS_PER_LAUNCH,
    AssetBody,
    body_of,
)
from databuild_dagster.bindings.dagster_private import quiet_beta_warnings
from databuild_dagster.bindings.default_resources import default_resources
from databuild_dagster.bindings.keys import asset_text
from databuild_dagster.bindings.parameters import InvalidAsset, Parameter, ParameterKind, parameters_of
from databuild_dagster.bindings.resource_keys import DEPLOYMENT, IO_MANAGER, SPARK
from databuild_dagster.bindings.step import run_step


class DatabuildAsset(AssetsDefinition):
    """What `@databuild_asset` makes: a Dagster asset, and the function itself when called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        body = body_of(self)
        assert body is not None, "a DatabuildAsset is made by the decorator only"
        return body.function(*args, **kwargs)


@overload
def databuild_asset(function: Callable[..., Any], /) -> DatabuildAsset: ...


@overload
def databuild_asset(
    *,
    name: str | None = None,
    key: AssetKey | str | Sequence[str] | None = None,
    key_prefix: str | Sequence[str] | None = None,
    partitions_def: PartitionsDefinition[Any] | None = None,
    ins: Mapping[str, AssetIn] | None = None,
    deps: Iterable[Any] | None = None,
    description: str | None = None,
    group_name: str | None = None,
    owners: Sequence[str] | None = None,
    tags: Mapping[str, str] | None = None,
    kinds: set[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    code_version: str | None = None,
    automation_condition: AutomationCondition[Any] | None = None,
    backfill_policy: BackfillPolicy | None = None,
    pool: str | None = None,
    max_partitions_per_launch: int = DEFAULT_MAX_PARTITIONS_PER_LAUNCH,
    concurrency: int | None = None,
    batched: bool = False,
    check_specs: Any = None,
    retry_policy: Any = None,
) -> Callable[[Callable[..., Any]], DatabuildAsset]: ...


def databuild_asset(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    key: AssetKey | str | Sequence[str] | None = None,
    key_prefix: str | Sequence[str] | None = None,
    partitions_def: PartitionsDefinition[Any] | None = None,
    ins: Mapping[str, AssetIn] | None = None,
    deps: Iterable[Any] | None = None,
    description: str | None = None,
    group_name: str | None = None,
    owners: Sequence[str] | None = None,
    tags: Mapping[str, str] | None = None,
    kinds: set[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    code_version: str | None = None,
    automation_condition: AutomationCondition[Any] | None = None,
    backfill_policy: BackfillPolicy | None = None,
    pool: str | None = None,
    max_partitions_per_launch: int = DEFAULT_MAX_PARTITIONS_PER_LAUNCH,
    concurrency: int | None = None,
    batched: bool = False,
    check_specs: Any = None,
    retry_policy: Any = None,
) -> DatabuildAsset | Callable[[Callable[..., Any]], DatabuildAsset]:
    """Declare an asset that Spark builds, one partition at a time.

    Parameters are filled by annotation: a Spark or pandas `DataFrame` is the upstream asset of that name
    (`ins` changes its key or partition mapping; `deps` must be live but is not read), and `SparkSession`,
    `BuildContext`, a `ConfigurableResource` or `config: MyConfig` are what they say. The function returns a
    frame, `EMPTY`, or raises (`DepMiss`, `Transient`, anything else is a failure). Raises `InvalidAsset` for
    what cannot work.
    """
    #: The names of the scope the asset is written in, for annotations that are strings.
    local_names = dict(sys._getframe(1).f_locals)

    def decorate(function: Callable[..., Any]) -> DatabuildAsset:
        asset_name = function.__name__ if name is None else name
        _refuse_options(asset_name, batched=batched, check_specs=check_specs, retry_policy=retry_policy)
        own_key = _own_key(asset_name, key=key, name=name, key_prefix=key_prefix)
        parameters = parameters_of(function, local_names)
        upstreams = _upstreams(asset_name, parameters, ins or {})
        spec = AssetSpec(
            own_key,
            deps=_deps(asset_name, upstreams, ins or {}, list(deps or ())),
            skippable=True,
            description=description or function.__doc__,
            group_name=group_name,
            owners=owners,
            tags=tags,
            kinds=kinds,
            metadata=metadata,
            code_version=code_version,
            automation_condition=automation_condition,
            partitions_def=partitions_def,
        ).with_io_manager_key(IO_MANAGER)
        body = AssetBody(
            function=function,
            parameters=parameters,
            upstreams=upstreams,
            max_partitions_per_launch=_positive(asset_name, "max_partitions_per_launch", max_partitions_per_launch),
            concurrency=None if concurrency is None else _positive(asset_name, "concurrency", concurrency),
        )
        return _as_dagster_asset(spec, body, backfill_policy=backfill_policy, pool=pool)

    return decorate if function is None else decorate(function)


def _as_dagster_asset(
    spec: AssetSpec, body: AssetBody, *, backfill_policy: BackfillPolicy | None, pool: str | None
) -> DatabuildAsset:
    if backfill_policy is None and spec.partitions_def is not None:
        # One Dagster run costs seconds and hosts any number of partitions, which fail alone in it.
        backfill_policy = BackfillPolicy.single_run()
    with quiet_beta_warnings():
        assets_def = multi_asset(
            specs=[spec],
            name=spec.key.to_python_identifier(),
            required_resource_keys={DEPLOYMENT, SPARK, *_resource_keys(body)},
            resource_defs=default_resources(),
            backfill_policy=backfill_policy,
            pool=pool,
        )(_step_function(body))
        return DatabuildAsset(**assets_def.get_attributes_dict())


def _step_function(body: AssetBody) -> Callable[..., Iterator[Any]]:
    """The generator Dagster runs: its signature has only what Dagster fills, context and config."""
    config = next((p.annotation for p in body.parameters if p.kind is ParameterKind.CONFIG), None)

    def with_config(context: AssetExecutionContext, config: Any) -> Iterator[Any]:
        yield from run_step(context, body, config)

    def without_config(context: AssetExecutionContext) -> Iterator[Any]:
        yield from run_step(context, body, None)

    step: Any = without_config if config is None else with_config
    if config is not None:
        step.__annotations__["config"] = config
    step.__name__ = getattr(body.function, "__name__", "asset")
    setattr(step, BODY_ATTRIBUTE, body)
    return step  # type: ignore[no-any-return]


def _own_key(
    asset_name: str,
    *,
    key: AssetKey | str | Sequence[str] | None,
    name: str | None,
    key_prefix: str | Sequence[str] | None,
) -> AssetKey:
    if key is not None:
        if name is not None or key_prefix is not None:
            raise InvalidAsset(f"Asset {asset_name!r} gives key and also name or key_prefix; the key says both.")
        own_key = AssetKey.from_coercible(key)
    else:
        prefix = [key_prefix] if isinstance(key_prefix, str) else list(key_prefix or ())
        own_key = AssetKey([*prefix, asset_name])
    asset_text(own_key)
    return own_key


def _upstreams(asset_name: str, parameters: Sequence[Parameter], ins: Mapping[str, AssetIn]) -> dict[str, AssetKey]:
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


def _deps(
    asset_name: str, upstreams: Mapping[str, AssetKey], ins: Mapping[str, AssetIn], deps: Sequence[Any]
) -> list[AssetDep]:
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


def _resource_keys(body: AssetBody) -> set[str]:
    return {parameter.name for parameter in body.parameters if parameter.kind is ParameterKind.RESOURCE}


def _positive(asset_name: str, option: str, value: int) -> int:
    if value < 1:
        raise InvalidAsset(f"{option} of asset {asset_name!r} is {value}; it must be at least 1.")
    return value


def _refuse_options(asset_name: str, *, batched: bool, check_specs: Any, retry_policy: Any) -> None:
    if batched:
        raise InvalidAsset(f"Asset {asset_name!r}: batched=True is not supported yet; write it for one partition.")
    if check_specs is not None:
        raise InvalidAsset(f"Asset {asset_name!r}: check_specs= means nothing here; write a separate @asset_check.")
    if retry_policy is not None:
        raise InvalidAsset(
            f"Asset {asset_name!r}: retry_policy= means nothing here; raise Transient where a retry may help."
        )
