"""The value of an asset in the result of `materialize()`: `result.asset_value("orders")`, as tests of Dagster read it.

The step yields no value, so it is read from the instances after the asset is live. A frame of Spark is read only when it is
used. Other frames are in memory at once, so that large ones are left to `read`."""

import typing
from collections.abc import Callable, Sequence
from typing import Any

from dagster import AssetExecutionContext

from databuild_dagster.bindings.adapter.dagster_private import put_result
from databuild_dagster.bindings.adapter.keys import asset_key
from databuild_dagster.bindings.declare.asset_spec import AssetBody
from databuild_dagster.bindings.declare.parameters import kind_of
from databuild_dagster.bindings.reading.frames import Frames, How
from databuild_dagster.spark.memory_frames import FrameKind
from databuild_dagster.store.queries.canonical import Canonical

#: Data of more partitions or bytes is no value of a result.
MAX_PARTITIONS = 100
MAX_BYTES = 64 * 1024 * 1024


def put_asset_value(
    context: AssetExecutionContext, body: AssetBody, frames: Frames, asset: str, instances: Sequence[Canonical]
) -> None:
    """Put the rows of live instances into the result, as one frame of the kind that the function is annotated to return."""
    n_bytes = sum(instance.bytes or 0 for instance in instances)
    if len(instances) > MAX_PARTITIONS or n_bytes > MAX_BYTES:
        context.log.info(
            f"result.asset_value({asset!r}) is None: {len(instances)} partitions and {n_bytes:,} bytes are too many. "
            "Read them with databuild_dagster.table or read."
        )
        return
    output = context.assets_def.get_output_name_for_asset_key(asset_key(asset))
    put_result(context, output, frames.read(instances, asset, How(_returned_kind(body))))


def _returned_kind(body: AssetBody) -> FrameKind:
    """As annotated; without an annotation Spark's where the function uses Spark, else pandas'."""
    annotation = _return_annotation(body.function)
    for option in (annotation, *typing.get_args(annotation)):
        kind = kind_of(option)
        if kind is not None and kind.frame is not None:
            return kind.frame
    return FrameKind.SPARK if body.uses_spark else FrameKind.PANDAS


def _return_annotation(function: Callable[..., Any]) -> Any:
    try:
        return typing.get_type_hints(function).get("return")
    except NameError:  # A name that only the scope of the function has.
        return None
