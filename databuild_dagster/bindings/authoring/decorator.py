"""`@databuild_asset` and `@databuild_multi_asset`: a function from frames to one frame, or several, becomes Dagster assets."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Unpack, cast, overload

from dagster import (
    AssetIn,
    AssetKey,
    AssetSpec,
    AutomationCondition,
    BackfillPolicy,
    FreshnessPolicy,
    HookDefinition,
    PartitionsDefinition,
)

from databuild_dagster.bindings.adapter.keys import IO_MANAGER, asset_text
from databuild_dagster.bindings.authoring.asset_factory import (
    DatabuildAsset,
    OfTheStep,
    as_dagster_asset,
    at_least_one,
    deps_of,
    output_name,
    upstreams_of,
)
from databuild_dagster.bindings.authoring.dagster_options import (
    REFUSED,
    REFUSED_OF_MULTI,
    refuse_options,
)
from databuild_dagster.bindings.declare.asset_spec import DEFAULT_MAX_PARTITIONS_PER_LAUNCH, AssetBody
from databuild_dagster.bindings.declare.gates import gates_of
from databuild_dagster.bindings.declare.inputs import Source, filters_of, subscriptions_of
from databuild_dagster.bindings.declare.parameters import InvalidAsset, Returns, parameters_of
from databuild_dagster.bindings.declare.settings import (
    asset_settings,
    metadata_by_output,
    metadata_of,
    split_of,
    taken_out,
)

if TYPE_CHECKING:
    from databuild_dagster.features.settings import AssetOptions, MultiAssetOptions

_Options = ParamSpec("_Options")
_Decorate = Callable[[Callable[..., Any]], DatabuildAsset]


class _Decorator(Protocol[_Options]):
    """Decorates a function directly, or takes options first."""

    @overload
    def __call__(self, function: Callable[..., Any], /) -> DatabuildAsset: ...

    @overload
    def __call__(self, *args: _Options.args, **options: _Options.kwargs) -> _Decorate: ...


def _also_without_options(decorator: Callable[_Options, _Decorate]) -> _Decorator[_Options]:
    @wraps(decorator)
    def decorate(*function: Any, **options: Any) -> Any:
        return decorator()(*function) if function else decorator(**options)  # type: ignore[call-arg]

    return decorate


@_also_without_options
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
    freshness_policy: FreshnessPolicy | None = None,
    backfill_policy: BackfillPolicy | None = None,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
    required_resource_keys: Iterable[str] | None = None,
    hooks: Iterable[HookDefinition] | None = None,
    max_partitions_per_launch: int = DEFAULT_MAX_PARTITIONS_PER_LAUNCH,
    concurrency: int | None = None,
    batched: bool = False,
    blocking_checks: Sequence[Callable[..., Any]] = (),
    allow_schema_change: bool = False,
    subscribe: Source | Sequence[Source] | None = None,
    follow_late: bool = False,
    skip_empty: bool = False,
    **options: Unpack[AssetOptions],
) -> _Decorate:
    """Declare an asset that Spark builds, one partition at a time or `batched`, all of a launch at once.

    Parameters are filled by annotation. A frame of Spark, pandas, Polars or Arrow is the upstream asset of that name: `ins`
    changes its key or partition mapping, and `AssetIn(metadata={"where": "carrier = 'AA'"})` reads only the rows that meet a
    condition in Spark SQL. `SparkSession`, `BuildContext`, a `ConfigurableResource` and `config: MyConfig` are what
    they say. Assets in `deps` must be live and are not read. The function returns a frame or `EMPTY`, or raises
    `DepMiss`, `Transient`, or anything else as a failure.

    Batched, inputs whose partitions depend on the output's key have the column `partition_key`, the output's key. The
    result must have it too; it is removed before writing. `blocking_checks` are functions from the new rows to a bool,
    an `AssetCheckResult` or the wrong rows; an instance that does not pass never becomes live. Columns may be added and
    widened from one instance to the next; with `allow_schema_change` they may change freely.

    `subscribe` names the sources whose new live partitions create wants for this asset: inputs, which all have to be
    live, or other assets, which only wake it. With `follow_late` a source's new instance rebuilds the live partitions
    made of it. With `skip_empty` a partition whose sources (or else inputs) are all empty is empty too, without a call.

    With `parts`, `ByFile(…)` or `ByKey(…)`, several calls build a partition, each from a part of one input. A failed
    call fails the partition, the results of the others are kept, and the retry repeats only the failed calls.

    `publish`, `Iceberg(…)` or `Delta(…)`, keeps a table of the live partitions for other engines; False makes none where
    `build_definitions` has a default.

    With `sample`, the pages may show a few rows of a partition to people who ask for them.

    The arguments of Dagster's `@asset` mean what they mean there; those of a step are for all partitions that it builds.

    Raises `InvalidAsset` for options that do not fit together, and for an argument of `@asset` that means nothing here.
    """
    #: The names of the scope the asset is written in, for annotations that are strings; frame 1 is the wrapper.
    local_names = dict(sys._getframe(2).f_locals)

    def decorate(function: Callable[..., Any]) -> DatabuildAsset:
        asset_name = function.__name__ if name is None else name
        given = cast(dict[str, Any], dict(options))
        of_features = taken_out(given)
        refuse_options(asset_name, given, REFUSED, [*inspect.signature(databuild_asset).parameters, *asset_settings()])
        if batched and partitions_def is None:
            raise InvalidAsset(f"Asset {asset_name!r} has no partitions, so batched=True means nothing; leave it out.")
        own_key = _own_key(asset_name, key=key, name=name, key_prefix=key_prefix)
        parameters = parameters_of(function, local_names)
        upstreams = upstreams_of(asset_name, parameters, ins or {})
        all_deps = deps_of(asset_name, upstreams, ins or {}, list(deps or ()))
        spec = AssetSpec(
            own_key,
            deps=all_deps,
            skippable=True,
            description=description or function.__doc__,
            group_name=group_name,
            owners=owners,
            tags=tags,
            kinds=kinds,
            metadata={**(metadata or {}), **metadata_of(asset_name, of_features)},
            code_version=code_version,
            automation_condition=automation_condition,
            partitions_def=partitions_def,
            freshness_policy=freshness_policy,
        ).with_io_manager_key(IO_MANAGER)
        body = AssetBody(
            function=function,
            parameters=parameters,
            upstreams=upstreams,
            filters=filters_of(asset_name, ins or {}, parameters),
            outputs={None: output_name(own_key)},
            is_batched=batched,
            gates={None: gates_of(asset_name, blocking_checks, local_names)},
            allow_schema_change=allow_schema_change,
            max_partitions_per_launch=at_least_one(asset_name, "max_partitions_per_launch", max_partitions_per_launch),
            concurrency=None if concurrency is None else at_least_one(asset_name, "concurrency", concurrency),
            subscriptions=subscriptions_of(
                asset_name, subscribe, upstreams, all_deps, [own_key], follow_late=follow_late, skip_empty=skip_empty
            ),
            follow_late=follow_late,
            skip_empty=skip_empty,
            split=split_of(asset_name, of_features, parameters, batched=batched),
        )
        of_the_step = OfTheStep(output_name(own_key), backfill_policy, pool, op_tags, required_resource_keys, hooks)
        return as_dagster_asset([spec], body, of_the_step)

    return decorate


def databuild_multi_asset(
    *,
    outs: Mapping[str, AssetSpec] | None = None,
    name: str | None = None,
    partitions_def: PartitionsDefinition[Any] | None = None,
    ins: Mapping[str, AssetIn] | None = None,
    deps: Iterable[Any] | None = None,
    backfill_policy: BackfillPolicy | None = None,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
    required_resource_keys: Iterable[str] | None = None,
    hooks: Iterable[HookDefinition] | None = None,
    max_partitions_per_launch: int = DEFAULT_MAX_PARTITIONS_PER_LAUNCH,
    concurrency: int | None = None,
    batched: bool = False,
    blocking_checks: Mapping[str, Sequence[Callable[..., Any]]] | None = None,
    allow_schema_change: bool = False,
    subscribe: Source | Sequence[Source] | None = None,
    follow_late: bool = False,
    skip_empty: bool = False,
    **options: Unpack[MultiAssetOptions],
) -> _Decorate:
    """Declare several assets that one function builds together (rule 6.2).

    `outs` names the outputs. Each spec may have its own group, description, owners, code version and so on, and deps
    that must be live for that output alone. The function returns a dict with a frame or `EMPTY` for each output. The
    result for an output that is not wanted, or is live, is discarded, and the output keeps its instance.
    `blocking_checks` are by output, and so are `publish` and `sample` as dicts. All other options are as for `databuild_asset`. Raises
    `InvalidAsset`.
    """
    #: The names of the scope the asset is written in, for annotations that are strings.
    local_names = dict(sys._getframe(1).f_locals)

    def decorate(function: Callable[..., Any]) -> DatabuildAsset:
        own_name = function.__name__ if name is None else name
        given = cast(dict[str, Any], dict(options))
        of_features = taken_out(given)
        known = [*inspect.signature(databuild_multi_asset).parameters, *asset_settings()]
        refuse_options(own_name, given, REFUSED_OF_MULTI, known)
        if outs is None:
            raise InvalidAsset(f"Multi-asset {own_name!r} has no outs; {REFUSED_OF_MULTI['specs']}.")
        _check_outs(own_name, outs, partitions_def, blocking_checks or {})
        if batched and partitions_def is None:
            raise InvalidAsset(f"Asset {own_name!r} has no partitions, so batched=True means nothing; leave it out.")
        parameters = parameters_of(function, local_names, Returns.DICT)
        upstreams = upstreams_of(own_name, parameters, ins or {})
        shared = deps_of(own_name, upstreams, ins or {}, list(deps or ()))
        read = {dep.asset_key for dep in shared}
        _refuse_second_mappings(own_name, outs, read)
        metadata = metadata_by_output(own_name, outs, of_features)
        specs = [
            spec.replace_attributes(
                metadata={**spec.metadata, **metadata[out]},
                deps=[*shared, *(dep for dep in spec.deps if dep.asset_key not in read)],
                skippable=True,
                description=spec.description or function.__doc__,
                partitions_def=partitions_def,
            ).with_io_manager_key(IO_MANAGER)
            for out, spec in outs.items()
        ]
        body = AssetBody(
            function=function,
            parameters=parameters,
            upstreams=upstreams,
            filters=filters_of(own_name, ins or {}, parameters),
            outputs={out: output_name(spec.key) for out, spec in outs.items()},
            is_batched=batched,
            gates={out: gates_of(out, given, local_names) for out, given in (blocking_checks or {}).items()},
            allow_schema_change=allow_schema_change,
            max_partitions_per_launch=at_least_one(own_name, "max_partitions_per_launch", max_partitions_per_launch),
            concurrency=None if concurrency is None else at_least_one(own_name, "concurrency", concurrency),
            subscriptions=subscriptions_of(
                own_name,
                subscribe,
                upstreams,
                shared,
                [spec.key for spec in outs.values()],
                follow_late=follow_late,
                skip_empty=skip_empty,
            ),
            follow_late=follow_late,
            skip_empty=skip_empty,
        )
        of_the_step = OfTheStep(own_name, backfill_policy, pool, op_tags, required_resource_keys, hooks)
        return as_dagster_asset(specs, body, of_the_step)

    return decorate


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


def _check_outs(
    name: str,
    outs: Mapping[str, AssetSpec],
    partitions_def: PartitionsDefinition[Any] | None,
    blocking_checks: Mapping[str, Sequence[Callable[..., Any]]],
) -> None:
    if not outs:
        raise InvalidAsset(
            f"Multi-asset {name!r} has no outs; name each output, for example outs={{'x': AssetSpec('x')}}."
        )
    kinds: Mapping[str, type] = {out: type(spec) for out, spec in outs.items()}
    if other := [out for out, kind in kinds.items() if not issubclass(kind, AssetSpec)]:
        raise InvalidAsset(
            f"Output {other[0]!r} of multi-asset {name!r} is no AssetSpec but {kinds[other[0]].__name__}; "
            f"write AssetSpec({other[0]!r}, …) there."
        )
    own_keys = {spec.key for spec in outs.values()}
    if len(own_keys) < len(outs):
        raise InvalidAsset(f"Multi-asset {name!r} gives two outputs the same asset key.")
    if len({spec.code_version for spec in outs.values()}) > 1:
        raise InvalidAsset(f"Multi-asset {name!r} gives its outputs several code versions; one function has one.")
    for out, spec in outs.items():
        asset_text(spec.key)
        if spec.partitions_def not in (None, partitions_def):
            raise InvalidAsset(
                f"Output {out!r} of multi-asset {name!r} has partitions of its own; "
                "give partitions_def to the decorator, for all outputs."
            )
        if inside := [dep.asset_key for dep in spec.deps if dep.asset_key in own_keys]:
            raise InvalidAsset(
                f"Output {out!r} of multi-asset {name!r} depends on {inside[0].to_user_string()!r}, "
                "which the same function builds; make it an asset of its own."
            )
    if unknown := [out for out in blocking_checks if out not in outs]:
        raise InvalidAsset(f"blocking_checks of multi-asset {name!r} names {unknown[0]!r}, which is none of its outs.")


def _refuse_second_mappings(name: str, outs: Mapping[str, AssetSpec], read: Collection[AssetKey]) -> None:
    """A dependency that all outputs share has one mapping. Raises `InvalidAsset`."""
    for out, spec in outs.items():
        for dep in spec.deps:
            if dep.asset_key in read and dep.partition_mapping is not None:
                raise InvalidAsset(
                    f"Output {out!r} of multi-asset {name!r} maps {dep.asset_key.to_user_string()!r} once more; "
                    "give the mapping in ins= or deps= of the decorator."
                )
