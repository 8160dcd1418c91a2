"""`@databuild_multi_asset`: a function from frames to several frames becomes one Dagster asset per frame."""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from dagster import AssetIn, AssetKey, AssetSpec, BackfillPolicy, PartitionsDefinition

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
from databuild_dagster.bindings.declare.lot_parts import refuse_parts
from databuild_dagster.bindings.declare.parameters import InvalidAsset, Returns, parameters_of
from databuild_dagster.bindings.declare.subscriptions import Source, subscriptions_of


def databuild_multi_asset(
    *,
    outs: Mapping[str, AssetSpec],
    name: str | None = None,
    partitions_def: PartitionsDefinition[Any] | None = None,
    ins: Mapping[str, AssetIn] | None = None,
    deps: Iterable[Any] | None = None,
    backfill_policy: BackfillPolicy | None = None,
    pool: str | None = None,
    max_partitions_per_launch: int = DEFAULT_MAX_PARTITIONS_PER_LAUNCH,
    concurrency: int | None = None,
    batched: bool = False,
    parts: None = None,
    blocking_checks: Mapping[str, Sequence[Callable[..., Any]]] | None = None,
    allow_schema_change: bool = False,
    subscribe: Source | Sequence[Source] | None = None,
    follow_late: bool = False,
    skip_empty: bool = False,
    check_specs: Any = None,
    retry_policy: Any = None,
) -> Callable[[Callable[..., Any]], DatabuildAsset]:
    """Declare several assets that one function builds together (SPEC 6.2).

    `outs` names the outputs; each spec may have its own group, description, owners, code version and so on, and
    deps of its own that must be live for that output alone. The function returns a dict with a frame or `EMPTY`
    for each output. An output that nobody wants, or that is live, keeps its instance, and what was computed for
    it is not kept. Everything else is as for `databuild_asset`; `blocking_checks` are by output. Raises
    `InvalidAsset`.
    """
    #: The names of the scope the asset is written in, for annotations that are strings.
    local_names = dict(sys._getframe(1).f_locals)

    def decorate(function: Callable[..., Any]) -> DatabuildAsset:
        own_name = function.__name__ if name is None else name
        refuse_options(own_name, check_specs=check_specs, retry_policy=retry_policy)
        refuse_parts(own_name, parts)
        _check_outs(own_name, outs, partitions_def, blocking_checks or {})
        if batched and partitions_def is None:
            raise InvalidAsset(f"Asset {own_name!r} has no partitions, so batched=True means nothing; leave it out.")
        parameters = parameters_of(function, local_names, Returns.DICT)
        upstreams = upstreams_of(own_name, parameters, ins or {})
        shared = deps_of(own_name, upstreams, ins or {}, list(deps or ()))
        read = {dep.asset_key for dep in shared}
        _refuse_second_mappings(own_name, outs, read)
        specs = [
            spec.replace_attributes(
                deps=[*shared, *(dep for dep in spec.deps if dep.asset_key not in read)],
                skippable=True,
                description=spec.description or function.__doc__,
                partitions_def=partitions_def,
            ).with_io_manager_key(IO_MANAGER)
            for spec in outs.values()
        ]
        body = AssetBody(
            function=function,
            parameters=parameters,
            upstreams=upstreams,
            filters=filters_of(own_name, ins or {}),
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
        return as_dagster_asset(specs, body, name=own_name, backfill_policy=backfill_policy, pool=pool)

    return decorate


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
    """What all outputs depend on already is mapped once, for all of them."""
    for out, spec in outs.items():
        for dep in spec.deps:
            if dep.asset_key in read and dep.partition_mapping is not None:
                raise InvalidAsset(
                    f"Output {out!r} of multi-asset {name!r} maps {dep.asset_key.to_user_string()!r} once more; "
                    "give the mapping in ins= or deps= of the decorator."
                )
