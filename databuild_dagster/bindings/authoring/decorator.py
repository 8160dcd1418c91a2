"""`@databuild_asset`: a function from frames to a frame becomes a Dagster asset."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, overload

from dagster import (
    AssetIn,
    AssetKey,
    AssetSpec,
    AutomationCondition,
    BackfillPolicy,
    PartitionsDefinition,
)

from databuild_dagster.bindings.adapter.asset_keys import asset_text
from databuild_dagster.bindings.adapter.resource_keys import IO_MANAGER
from databuild_dagster.bindings.authoring.asset_factory import (
    DatabuildAsset,
    as_dagster_asset,
    at_least_one,
    deps_of,
    output_name,
    refuse_options,
    upstreams_of,
)
from databuild_dagster.bindings.declare.asset_spec import DEFAULT_MAX_PARTITIONS_PER_LAUNCH, AssetBody
from databuild_dagster.bindings.declare.gates import gates_of
from databuild_dagster.bindings.declare.input_filters import filters_of
from databuild_dagster.bindings.declare.lot_parts import Split, split_of
from databuild_dagster.bindings.declare.parameters import InvalidAsset, parameters_of
from databuild_dagster.bindings.declare.subscriptions import Source, subscriptions_of


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
    parts: Split | None = None,
    blocking_checks: Sequence[Callable[..., Any]] = (),
    allow_schema_change: bool = False,
    subscribe: Source | Sequence[Source] | None = None,
    follow_late: bool = False,
    skip_empty: bool = False,
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
    parts: Split | None = None,
    blocking_checks: Sequence[Callable[..., Any]] = (),
    allow_schema_change: bool = False,
    subscribe: Source | Sequence[Source] | None = None,
    follow_late: bool = False,
    skip_empty: bool = False,
    check_specs: Any = None,
    retry_policy: Any = None,
) -> DatabuildAsset | Callable[[Callable[..., Any]], DatabuildAsset]:
    """Declare an asset that Spark builds, one partition at a time or `batched`, all of a launch at once.

    Parameters are filled by annotation: a Spark or pandas `DataFrame` is the upstream asset of that name
    (`ins` changes its key or partition mapping, and `AssetIn(metadata={"where": "carrier = 'AA'"})` has only the rows read
    that a condition of Spark's SQL lets through; `deps` must be live but is not read), and `SparkSession`,
    `BuildContext`, a `ConfigurableResource` or `config: MyConfig` are what they say. The function returns a
    frame, `EMPTY`, or raises (`DepMiss`, `Transient`, anything else is a failure).

    Batched, inputs whose partitions depend on the output's key have the column `partition_key`, the output's
    key, and the result must have it too; it is taken out before writing. `blocking_checks` are functions from
    the new rows to a bool, an `AssetCheckResult` or the rows that are wrong; what does not pass never becomes
    live. Columns may be added and widened from one instance to the next, and with `allow_schema_change` do
    anything.

    `subscribe` names the sources whose new live partitions have this asset's wanted by itself: inputs, which all
    have to be live, or other assets, which only wake it. With `follow_late` a source's new instance has what is
    live built anew. With `skip_empty` a partition whose sources (or else inputs) are all empty is empty too, and the
    function is not called.

    With `parts`, `ByFile(…)` or `ByKey(…)`, a partition is built by several calls, each with a part of one input: a
    failed one fails the partition, the others' results are kept, and the retry calls for what failed. Raises
    `InvalidAsset` for what cannot work.
    """
    #: The names of the scope the asset is written in, for annotations that are strings.
    local_names = dict(sys._getframe(1).f_locals)

    def decorate(function: Callable[..., Any]) -> DatabuildAsset:
        asset_name = function.__name__ if name is None else name
        refuse_options(asset_name, check_specs=check_specs, retry_policy=retry_policy)
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
            metadata=metadata,
            code_version=code_version,
            automation_condition=automation_condition,
            partitions_def=partitions_def,
        ).with_io_manager_key(IO_MANAGER)
        body = AssetBody(
            function=function,
            parameters=parameters,
            upstreams=upstreams,
            filters=filters_of(asset_name, ins or {}),
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
            parts=split_of(asset_name, parts, parameters, batched=batched),
        )
        return as_dagster_asset([spec], body, name=output_name(own_key), backfill_policy=backfill_policy, pool=pool)

    return decorate if function is None else decorate(function)


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
