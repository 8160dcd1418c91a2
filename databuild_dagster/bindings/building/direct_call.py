"""A `BuildContext` for direct calls of asset functions in tests.

Nothing is recorded and no Dagster run exists; a question that needs either is refused with a sentence. Builds use the
same class of context.
"""

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

from dagster import AssetsDefinition, DagsterInstance, DagsterRun, build_resources, get_dagster_logger
from dagster._config.pythonic_config import ConfigurableResourceFactory

from databuild_dagster.bindings.adapter.keys import asset_text
from databuild_dagster.bindings.declare.asset_spec import body_of
from databuild_dagster.bindings.declare.build_context import BuildContext, HostedRun
from databuild_dagster.bindings.declare.outcomes import DepMiss
from databuild_dagster.bindings.reading.spark_resource import temporary_session
from databuild_dagster.engine.holders import new_id
from databuild_dagster.model.refs import AnyRef, Ref, make_ref, parse_ref
from databuild_dagster.spark.frames import united

T = TypeVar("T")
#: The asset's name where none is given.
UNNAMED = "asset"


def build_context(
    asset: AssetsDefinition | None = None,
    *,
    partition_key: str | None = None,
    partition_keys: Sequence[str] | None = None,
    inputs: Mapping[AnyRef, Any] | None = None,
    resources: Mapping[str, Any] | None = None,
    spark: Any = None,
    instance: DagsterInstance | None = None,
) -> BuildContext:
    """The context to call an asset's function with, in a test: `orders(build_context(partition_key="2024-01-29"))`.

    `partition_keys` are the keys of a batch. With `asset`, the context also has its refs, outputs and time windows.
    `inputs` are the frames, by ref, that `context.read` returns: several are united, a missing frame is a `DepMiss`, as
    in a build. `context.resources` are `resources`; `context.spark` is `spark`, or the session of `materialize()`;
    `context.instance` is `instance`, or an ephemeral instance. Read metadata that the function adds with
    `context.output_metadata(ref)`.

    Raises ValueError for keys that do not fit the asset.
    """
    if partition_key is not None and partition_keys is not None:
        raise ValueError("build_context was given partition_key= and partition_keys=; give one of them.")
    keys: list[str | None] = list(partition_keys) if partition_keys is not None else [partition_key]
    if not keys:
        raise ValueError("build_context was given no partition_keys; a batch has at least one.")
    names = {UNNAMED: None} if asset is None else _output_names(asset, keys)
    body = None if asset is None else body_of(asset)
    frames = {parse_ref(ref): frame for ref, frame in (inputs or {}).items()}
    return BuildContext(
        dagster_context=_NoRun(asset, resources or {}, instance),  # type: ignore[arg-type]
        runs=[HostedRun(new_id(), tuple(make_ref(name, key) for name in names)) for key in keys],
        output_names=names,
        is_batched=partition_keys is not None if body is None else body.is_batched,
        session=temporary_session if spark is None else lambda: spark,
        read=lambda refs: _read(frames, refs),
    )


def with_resources(function: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> T:
    """The result of a function; the resources among its arguments are set up for the call, and torn down after it.

    Raises what the function and its resources raise.
    """
    if not any(isinstance(value, ConfigurableResourceFactory) for value in (*args, *kwargs.values())):
        return function(*args, **kwargs)
    given = inspect.signature(function).bind(*args, **kwargs)
    named = {name: value for name, value in given.arguments.items() if isinstance(value, ConfigurableResourceFactory)}
    with build_resources(named) as resources:
        given.arguments.update({name: getattr(resources, name) for name in named})
        return function(*given.args, **given.kwargs)


class _NoRun:
    """The part of Dagster's own context that a build reads, without a Dagster run."""

    def __init__(
        self, asset: AssetsDefinition | None, resources: Mapping[str, Any], instance: DagsterInstance | None
    ) -> None:
        self._asset = asset
        self._instance = instance
        self.resources = SimpleNamespace(**resources)
        self.log: logging.Logger = get_dagster_logger()

    @property
    def assets_def(self) -> AssetsDefinition:
        if self._asset is None:
            raise ValueError("Only the asset knows its time windows; give it: build_context(asset, …).")
        return self._asset

    @property
    def instance(self) -> DagsterInstance:
        if self._instance is None:
            self._instance = DagsterInstance.ephemeral()
        return self._instance

    @property
    def run(self) -> DagsterRun:
        raise ValueError("A function that is called directly has no Dagster run; dg.materialize([…]) makes one.")


def _output_names(asset: AssetsDefinition, keys: Sequence[str | None]) -> dict[str, str | None]:
    """Asset to output name. Raises ValueError for keys that do not fit the asset."""
    body = body_of(asset)
    if body is None:
        raise ValueError(f"{asset} is not an asset of databuild, so its function takes no BuildContext.")
    name = asset.node_def.name
    partitions = next(iter(asset.specs)).partitions_def
    if partitions is None and keys != [None]:
        raise ValueError(f"{name} has no partitions, so build_context takes no partition key for it.")
    if partitions is not None and None in keys:
        raise ValueError(f"{name} is partitioned; give build_context its partition_key or partition_keys.")
    if len(keys) > 1 and not body.is_batched:
        raise ValueError(f"{name} is not batched, so it is called with one partition_key at a time.")
    outputs = body.outputs.items()
    return {asset_text(asset.keys_by_output_name[output]): own_name for own_name, output in outputs}


def _read(frames: Mapping[Ref, Any], refs: Sequence[Ref]) -> Any:
    if missing := [ref for ref in refs if ref not in frames]:
        raise DepMiss(*missing)
    return united([frames[ref] for ref in refs])
