"""How plain Dagster assets and asset checks read ours: one frame of the canonical instances, and never a write.

One partition or many come as one frame, of Spark or pandas as the parameter is annotated. Ours do not pass here: they
read exactly the instances that their job run was given.
"""

from typing import Any

from dagster import DagsterInstance, InitResourceContext, InputContext, IOManager, OutputContext, io_manager

from databuild_dagster.bindings.deployment import Deployment
from databuild_dagster.bindings.frames import Frames
from databuild_dagster.bindings.instance import engine_for, warehouse_of
from databuild_dagster.bindings.keys import asset_text, ref_of
from databuild_dagster.bindings.parameters import ParameterKind, kind_of
from databuild_dagster.bindings.resource_keys import DEPLOYMENT, SPARK
from databuild_dagster.model.states import InstanceState

#: Refs named in one message.
MAX_NAMED = 5


class NotLive(Exception):
    """What is to be read is not live; the message names it and says what to do."""


class DatabuildIOManager(IOManager):
    """Reads canonical instances; writing is the step's own business."""

    def __init__(self, instance: DagsterInstance, deployment: Deployment, spark_resource: Any) -> None:
        self._instance = instance
        self._frames = Frames(
            spark_resource=spark_resource,
            warehouse=deployment.warehouse or warehouse_of(instance),
            instance=instance,
        )

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        if obj is None:
            # Our own step says that it is done; the data is where it belongs.
            return
        raise NotImplementedError(
            f"{context.asset_key.to_user_string()} cannot be written through its IO manager; only its own step writes it."
        )

    def load_input(self, context: InputContext) -> Any:
        asset = asset_text(context.asset_key)
        keys = list(context.asset_partition_keys) if context.has_asset_partitions else [None]
        refs = [ref_of(asset, key) for key in keys]
        canonical = engine_for(self._instance).queries.canonical(refs)
        if absent := [ref for ref in refs if canonical[ref].state is not InstanceState.LIVE]:
            more = f" and {len(absent) - MAX_NAMED} more" if len(absent) > MAX_NAMED else ""
            raise NotLive(
                f"{', '.join(absent[:MAX_NAMED])}{more} cannot be read, because it is not live; "
                f"build it first: databuild build {absent[0]}"
            )
        pandas = kind_of(context.dagster_type.typing_type) is ParameterKind.PANDAS_FRAME
        return self._frames.read([canonical[ref] for ref in refs], asset, pandas=pandas)


@io_manager(
    required_resource_keys={DEPLOYMENT, SPARK}, description="Reads what databuild built; writes nothing."
)
def databuild_io_manager(context: InitResourceContext) -> DatabuildIOManager:
    assert context.instance is not None, "an IO manager is only made for a run"
    return DatabuildIOManager(
        context.instance, getattr(context.resources, DEPLOYMENT), getattr(context.resources, SPARK)
    )
