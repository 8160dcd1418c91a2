"""`@databuild_asset` and `@databuild_multi_asset`: a function from frames to a frame, or several, becomes Dagster assets."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import WRAPPER_ASSIGNMENTS, cache, update_wrapper, wraps
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

import dagster as dg

from databuild_dagster.bindings.adapter.dagster_private import quiet_beta_warnings
from databuild_dagster.bindings.adapter.keys import DEPLOYMENT, IO_MANAGER, SPARK, asset_text
from databuild_dagster.bindings.authoring.dagster_options import REFUSED, REFUSED_OF_MULTI, check_kinds, refuse_options
from databuild_dagster.bindings.building.deployment import Deployment, DeploymentResource
from databuild_dagster.bindings.building.direct_call import with_resources
from databuild_dagster.bindings.building.io_manager import databuild_io_manager
from databuild_dagster.bindings.building.step import run_step
from databuild_dagster.bindings.declare import settings
from databuild_dagster.bindings.declare.asset_spec import (
    BODY_ATTRIBUTE,
    DEFAULT_MAX_PARTITIONS_PER_LAUNCH,
    AssetBody,
    body_of,
)
from databuild_dagster.bindings.declare.gates import gates_of
from databuild_dagster.bindings.declare.inputs import Source, filters_of, subscriptions_of
from databuild_dagster.bindings.declare.parameters import (
    InvalidAsset,
    Parameter,
    ParameterKind,
    Returns,
    name_of,
    parameters_of,
    why_out_of_bounds,
)
from databuild_dagster.bindings.display.checks import selected_taint_checks, taint_check_spec
from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark
from databuild_dagster.model.wording import number_in_words

if TYPE_CHECKING:
    from databuild_dagster.features.settings import AssetOptions, MultiAssetOptions
else:
    # `typing.get_type_hints` evaluates the annotation.
    AssetOptions = MultiAssetOptions = dict


_P = ParamSpec("_P")
_R_co = TypeVar("_R_co", covariant=True)


class DatabuildAsset(dg.AssetsDefinition, Generic[_P, _R_co]):
    """The result of the decorators: a Dagster asset with the signature and the docstring of its function.

    A call of the asset calls the function, and sets up resources among the arguments, as Dagster does.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        if (body := body_of(self)) is not None:
            update_wrapper(self, body.function, [name for name in WRAPPER_ASSIGNMENTS if name != "__name__"], ())

    @property
    def __name__(self) -> str:
        # Dagster's decorators ask for the name of what they decorate.
        if str(sys._getframe(1).f_globals.get("__name__")).startswith("dagster._core.definitions.decorators"):
            name_of(self, None)
        return self.node_def.name

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co:  # type: ignore[override]
        body = body_of(self)
        assert body is not None, "a DatabuildAsset is made by the decorators only"
        return cast("_R_co", with_resources(body.function, args, kwargs))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(sorted(map(asset_text, self.keys)))}>"


_Options = ParamSpec("_Options")


class _Decorate(Protocol):
    """Decorates a function."""

    def __call__(self, function: Callable[_P, _R_co], /) -> DatabuildAsset[_P, _R_co]: ...


class _Decorator(Protocol[_Options]):
    """Decorates a function directly, or takes options first."""

    @overload
    def __call__(self, function: Callable[_P, _R_co], /) -> DatabuildAsset[_P, _R_co]: ...  # type: ignore[overload-overlap]

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
    key: dg.AssetKey | str | Sequence[str] | None = None,
    key_prefix: str | Sequence[str] | None = None,
    partitions_def: dg.PartitionsDefinition[Any] | None = None,
    ins: Mapping[str, dg.AssetIn] | None = None,
    deps: Iterable[Any] | None = None,
    description: str | None = None,
    group_name: str | None = None,
    owners: Sequence[str] | None = None,
    tags: Mapping[str, str] | None = None,
    kinds: set[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    code_version: str | None = None,
    automation_condition: dg.AutomationCondition[Any] | None = None,
    freshness_policy: dg.FreshnessPolicy | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
    required_resource_keys: Iterable[str] | None = None,
    hooks: Iterable[dg.HookDefinition] | None = None,
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
    condition in Spark SQL; `**inputs: DataFrame` gets the further inputs that `ins` names. `SparkSession`, `BuildContext`, a
    `ConfigurableResource` and `config: MyConfig` are what they say. Assets in `deps` must be live and are not read. The
    function returns a frame or `EMPTY`, or raises `DepMiss`, `Transient`, or anything else as a failure.

    Batched, inputs whose partitions depend on the output's key have the column `partition_key`, the output's key. The
    result must have it too; it is removed before writing. `blocking_checks` are functions from the new rows to a bool,
    an `AssetCheckResult` or the wrong rows; an instance that does not pass never becomes live. Each instance may add and
    widen columns; with `allow_schema_change` columns may change freely.

    `subscribe` names the sources whose new live partitions create wants for this asset: inputs, which all have to be
    live, or further assets, which only wake it. With `follow_late` a source's new instance rebuilds the live partitions
    made of it. With `skip_empty` a partition whose sources (or else inputs) are all empty is empty too, without a call.

    With `parts`, `ByFile(…)` or `ByKey(…)`, several calls build a partition, each from a part of the same input. A failed
    call fails the partition, the results of successful calls are kept, and the retry repeats only the failed calls.

    `publish`, `Iceberg(…)` or `Delta(…)`, keeps a table of the live partitions for other engines; False makes none where
    `build_definitions` has a default.

    With `same_data="keep"`, rows that are built again equally make nothing stale. With `deterministic=True` equal inputs give equal
    rows, so an earlier instance of the same code and inputs may come back in place of a build.

    With `sample`, the pages may show a few rows of a partition to people who ask for them.

    The arguments of Dagster's `@asset` mean what they mean there; a step's arguments are for all partitions that it builds.

    Raises `InvalidAsset` for options that do not fit together, and for an argument of `@asset` that means nothing here.
    """
    #: The names of the scope the asset is written in, for annotations that are strings; frame 1 is the wrapper.
    local_names = dict(sys._getframe(2).f_locals)

    def decorate(function: Callable[_P, _R_co]) -> DatabuildAsset[_P, _R_co]:
        asset_name = name_of(function, name)
        given = cast(dict[str, Any], dict(options))
        of_features = settings.taken_out(given)
        refuse_options(asset_name, given, REFUSED, options_of(databuild_asset))
        check_kinds(asset_name, ins=ins, deps=deps, partitions_def=partitions_def, blocking_checks=blocking_checks)
        if batched and partitions_def is None:
            raise InvalidAsset(f"Asset {asset_name!r} has no partitions, so batched=True means nothing; leave it out.")
        own_key = _own_key(asset_name, key=key, name=name, key_prefix=key_prefix)
        parameters = parameters_of(function, local_names, name=asset_name, ins=ins)
        upstreams = upstreams_of(asset_name, parameters, ins or {})
        all_deps = deps_of(asset_name, upstreams, ins or {}, list(deps or ()))
        settings.check_inputs(asset_name, of_features, all_deps)
        spec = dg.AssetSpec(
            own_key,
            deps=all_deps,
            skippable=True,
            description=description or function.__doc__,
            group_name=group_name,
            owners=owners,
            tags=tags,
            kinds=kinds,
            metadata={**(metadata or {}), **settings.metadata_of(asset_name, of_features)},
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
            split=settings.split_of(asset_name, of_features, parameters, batched=batched),
        )
        of_the_step = OfTheStep(output_name(own_key), backfill_policy, pool, op_tags, required_resource_keys, hooks)
        return cast("DatabuildAsset[_P, _R_co]", as_dagster_asset([spec], body, of_the_step))

    return decorate


def databuild_multi_asset(
    *,
    outs: Mapping[str, dg.AssetSpec] | None = None,
    name: str | None = None,
    partitions_def: dg.PartitionsDefinition[Any] | None = None,
    ins: Mapping[str, dg.AssetIn] | None = None,
    deps: Iterable[Any] | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
    required_resource_keys: Iterable[str] | None = None,
    hooks: Iterable[dg.HookDefinition] | None = None,
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
    """Declare several assets that a function builds together (rule 6.2).

    `outs` names the outputs. Each spec may have its own group, description, owners, code version and so on, and deps
    that must be live for that output alone. The function returns a dict with a frame or `EMPTY` for each output. The
    result for an output that is not wanted, or is live, is discarded, and the output keeps its instance.
    `blocking_checks` are by output, and so are `publish` and `sample` as dicts. All other options are as for `databuild_asset`. Raises
    `InvalidAsset`.
    """
    #: The names of the scope the asset is written in, for annotations that are strings.
    local_names = dict(sys._getframe(1).f_locals)

    def decorate(function: Callable[_P, _R_co]) -> DatabuildAsset[_P, _R_co]:
        own_name = name_of(function, name)
        given = cast(dict[str, Any], dict(options))
        of_features = settings.taken_out(given)
        known = options_of(databuild_multi_asset)
        refuse_options(own_name, given, REFUSED_OF_MULTI, known)
        if outs is None:
            raise InvalidAsset(f"Multi-asset {own_name!r} has no outs; {REFUSED_OF_MULTI['specs']}.")
        by_output = {"blocking_checks by output": blocking_checks}
        check_kinds(own_name, outs=outs, ins=ins, deps=deps, partitions_def=partitions_def, **by_output)
        _check_outs(own_name, outs, partitions_def, blocking_checks or {})
        if batched and partitions_def is None:
            raise InvalidAsset(f"Asset {own_name!r} has no partitions, so batched=True means nothing; leave it out.")
        parameters = parameters_of(function, local_names, Returns.DICT, name=own_name, ins=ins)
        upstreams = upstreams_of(own_name, parameters, ins or {})
        shared = deps_of(own_name, upstreams, ins or {}, list(deps or ()))
        read = {dep.asset_key for dep in shared}
        _refuse_second_mappings(own_name, outs, read)
        metadata = settings.metadata_by_output(own_name, outs, of_features, shared)
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
        return cast("DatabuildAsset[_P, _R_co]", as_dagster_asset(specs, body, of_the_step))

    return decorate


def options_of(decorator: Callable[..., Any]) -> list[str]:
    """The options that a decorator takes, including the options of features."""
    return [
        *(name for name in inspect.signature(decorator).parameters if name != "options"),
        *settings.asset_settings(),
    ]


def _own_key(
    asset_name: str,
    *,
    key: dg.AssetKey | str | Sequence[str] | None,
    name: str | None,
    key_prefix: str | Sequence[str] | None,
) -> dg.AssetKey:
    if key is not None:
        if name is not None or key_prefix is not None:
            raise InvalidAsset(f"Asset {asset_name!r} gives key and also name or key_prefix; the key says both.")
        own_key = dg.AssetKey.from_coercible(key)
    else:
        prefix = [key_prefix] if isinstance(key_prefix, str) else list(key_prefix or ())
        own_key = dg.AssetKey([*prefix, asset_name])
    asset_text(own_key)
    return own_key


def _check_outs(
    name: str,
    outs: Mapping[str, dg.AssetSpec],
    partitions_def: dg.PartitionsDefinition[Any] | None,
    blocking_checks: Mapping[str, Sequence[Callable[..., Any]]],
) -> None:
    if not outs:
        raise InvalidAsset(
            f"Multi-asset {name!r} has no outs; name each output, for example outs={{'x': AssetSpec('x')}}."
        )
    kinds: Mapping[str, type] = {out: type(spec) for out, spec in outs.items()}
    if other := [out for out, kind in kinds.items() if not issubclass(kind, dg.AssetSpec)]:
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


def _refuse_second_mappings(name: str, outs: Mapping[str, dg.AssetSpec], read: Collection[dg.AssetKey]) -> None:
    """A dependency that all outputs share has a single mapping. Raises `InvalidAsset`."""
    for out, spec in outs.items():
        for dep in spec.deps:
            if dep.asset_key in read and dep.partition_mapping is not None:
                raise InvalidAsset(
                    f"Output {out!r} of multi-asset {name!r} maps {dep.asset_key.to_user_string()!r} once more; "
                    "give the mapping in ins= or deps= of the decorator."
                )


# A function and its options become a Dagster asset whose every build passes our step. Dagster gets a generator
# `@multi_asset` with skippable outputs. Our inputs are deps of the specs, so the graph is right and no IO manager loads them.


@dataclass(frozen=True, slots=True)
class OfTheStep:
    """The options that Dagster keeps for the step of an asset, which builds any number of its partitions."""

    name: str
    backfill_policy: dg.BackfillPolicy | None = None
    pool: str | None = None
    op_tags: Mapping[str, Any] | None = None
    required_resource_keys: Iterable[str] | None = None
    hooks: Iterable[dg.HookDefinition] | None = None


def as_dagster_asset(specs: Sequence[dg.AssetSpec], body: AssetBody, step: OfTheStep) -> DatabuildAsset[..., Any]:
    """The asset with an output per spec, and a check per gate."""
    backfill_policy = step.backfill_policy
    if backfill_policy is None and specs[0].partitions_def is not None:
        # One Dagster run costs seconds and hosts any number of partitions, which fail separately.
        backfill_policy = dg.BackfillPolicy.single_run()
    keys = {output_name(spec.key): spec.key for spec in specs}
    checks = [taint_check_spec(spec.key) for spec in specs] + [
        # Not blocking in Dagster: an instance that does not pass never becomes live, which is enough.
        dg.AssetCheckSpec(gate.name, asset=keys[body.outputs[name]], description=gate.description)
        for name, gates in body.gates.items()
        for gate in gates
    ]
    resources = {parameter.name for parameter in body.parameters if parameter.kind is ParameterKind.RESOURCE}
    with quiet_beta_warnings():
        assets_def = dg.multi_asset(
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


def output_name(key: dg.AssetKey) -> str:
    """Dagster's name for the output of an asset."""
    return key.to_python_identifier()


def _step_function(body: AssetBody) -> Callable[..., Iterator[Any]]:
    """The generator Dagster runs: its signature has only context and config, which Dagster fills."""
    config = next((p.annotation for p in body.parameters if p.kind is ParameterKind.CONFIG), None)

    def with_config(context: dg.AssetExecutionContext, config: Any) -> Iterator[Any]:
        if not context.selected_asset_keys:
            # The run selects checks alone. Blocking checks run only with new data.
            yield from selected_taint_checks(context)
            return
        yield from run_step(context, body, config)

    def without_config(context: dg.AssetExecutionContext) -> Iterator[Any]:
        yield from with_config(context, None)

    step: Any = without_config if config is None else with_config
    # Dagster reads the classes, and the annotations of this module are texts.
    step.__annotations__["context"] = dg.AssetExecutionContext
    if config is not None:
        step.__annotations__["config"] = config
    step.__name__ = getattr(body.function, "__name__", "asset")
    setattr(step, BODY_ATTRIBUTE, body)
    return step  # type: ignore[no-any-return]


def upstreams_of(
    asset_name: str, parameters: Sequence[Parameter], ins: Mapping[str, dg.AssetIn]
) -> dict[str, dg.AssetKey]:
    """Parameter to its upstream asset. Raises `InvalidAsset`."""
    inputs = [parameter.name for parameter in parameters if parameter.kind.is_input]
    for unknown in [given for given in ins if given not in inputs]:
        raise InvalidAsset(f"ins of asset {asset_name!r} names {unknown!r}, which is not a DataFrame parameter of it.")
    return {parameter: _upstream_key(parameter, ins.get(parameter)) for parameter in inputs}


def _upstream_key(parameter: str, asset_in: dg.AssetIn | None) -> dg.AssetKey:
    if asset_in is None:
        return dg.AssetKey(parameter)
    if asset_in.key is not None:
        return dg.AssetKey.from_coercible(asset_in.key)
    prefix = asset_in.key_prefix
    return dg.AssetKey([*([prefix] if isinstance(prefix, str) else prefix or ()), parameter])


def deps_of(
    asset_name: str, upstreams: Mapping[str, dg.AssetKey], ins: Mapping[str, dg.AssetIn], deps: Sequence[Any]
) -> list[dg.AssetDep]:
    """Every asset that must be live, read or not, with its partition mapping. Raises `InvalidAsset`."""
    read: dict[dg.AssetKey, dg.AssetDep] = {}
    for parameter, upstream in upstreams.items():
        mapping = ins[parameter].partition_mapping if parameter in ins else None
        if upstream in read:
            raise InvalidAsset(f"Asset {asset_name!r} reads {upstream.to_user_string()!r} through two parameters.")
        read[upstream] = dg.AssetDep(upstream, partition_mapping=mapping)
    for given in deps:
        dep = dg.AssetDep.from_coercible(given)
        read.setdefault(dep.asset_key, dep)
    return list(read.values())


def at_least_one(asset_name: str, option: str, value: int) -> int:
    """The value. Raises `InvalidAsset`."""
    if why := why_out_of_bounds(value, 1):
        raise InvalidAsset(f"{option} of asset {asset_name!r} is {number_in_words(value)}; {why}.")
    return value
