"""The IO manager by which plain Dagster assets and asset checks read databuild assets: a frame of canonical instances, no writes.

A partition or many come as a single frame, of the kind that the parameter is annotated with. databuild assets do not use it:
they read exactly the instances that their job run pinned.
"""

from typing import Any

import dagster as dg

from databuild_dagster.bindings.adapter.keys import DEPLOYMENT, SPARK, asset_text
from databuild_dagster.bindings.adapter.run_tags import partition_keys_of
from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.reading.frames import Frames, How
from databuild_dagster.bindings.registry.instance import engine_for, warehouse_of
from databuild_dagster.data.read_plan import Moment, check_state
from databuild_dagster.model.redaction import errors_without_secrets
from databuild_dagster.model.refs import Ref, make_ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.spark.memory_frames import FrameKind, frame_kind
from databuild_dagster.store.queries.canonical import Canonical


class DatabuildIOManager(dg.IOManager):
    """Reads canonical instances; the step of each asset writes."""

    def __init__(self, instance: dg.DagsterInstance, deployment: Deployment, spark_resource: Any) -> None:
        self._instance = instance
        self._frames = Frames(
            spark_resource=spark_resource, warehouse=deployment.warehouse or warehouse_of(instance), instance=instance
        )

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        if obj is None:
            # Our own step yields no value; its data is in place.
            return
        raise NotImplementedError(
            f"{context.asset_key.to_user_string()} is written by its own step, not through its IO manager."
        )

    @errors_without_secrets()
    def load_input(self, context: dg.InputContext) -> Any:
        asset = asset_text(context.asset_key)
        canonical = self._canonical(asset, context)
        for instance in canonical.values():
            check_state(engine_for(self._instance).queries, instance, Moment(), allow_tainted=False)
        annotated = context.dagster_type.typing_type
        kind = frame_kind(annotated) if isinstance(annotated, type) else None
        return self._frames.read(list(canonical.values()), asset, How(kind or FrameKind.SPARK))

    def _canonical(self, asset: str, context: dg.InputContext) -> dict[Ref, Canonical]:
        keys: list[str | None] = list(context.asset_partition_keys) if context.has_asset_partitions else [None]
        if is_check := context.has_asset_partitions and _is_for_a_check(context):
            tags = context.step_context.dagster_run.tags
            keys = [*partition_keys_of(tags, context.asset_partitions_def, context.instance)] or keys
        canonical = engine_for(self._instance).queries.canonical.of([make_ref(asset, key) for key in keys])
        if is_check:
            # A check has no partitions; it reads all live ones.
            return {ref: instance for ref, instance in canonical.items() if instance.state is InstanceState.LIVE}
        return canonical


def _is_for_a_check(context: dg.InputContext) -> bool:
    try:
        step = context.step_context
    except dg.DagsterInvariantViolationError:
        # Loaded by hand, outside of a run.
        return False
    assets_def = step.job_def.asset_layer.get_assets_def_for_node(step.node_handle)
    return assets_def is not None and not assets_def.keys


@dg.io_manager(required_resource_keys={DEPLOYMENT, SPARK}, description="Reads what databuild built; writes nothing.")
def databuild_io_manager(context: dg.InitResourceContext) -> DatabuildIOManager:
    assert context.instance is not None, "an IO manager is only made for a run"
    return DatabuildIOManager(
        context.instance, getattr(context.resources, DEPLOYMENT), getattr(context.resources, SPARK)
    )
