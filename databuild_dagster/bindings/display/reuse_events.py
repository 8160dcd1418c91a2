"""A live instance that answers for a ref, as Dagster is told of it: observed, or materialized again where that is needed."""

from typing import Any, NamedTuple

from dagster import AssetMaterialization, AssetObservation, MetadataValue

from databuild_dagster.bindings.adapter.asset_keys import asset_key
from databuild_dagster.bindings.display.materialization import version_tags


class Served(NamedTuple):
    """The live instance that answers for a ref, the job run that built it, and its Dagster run, where it was one."""

    uuid: str
    job_run: str
    dagster_run_id: str | None = None


def observation_of(asset: str, partition: str | None, served: Served) -> AssetObservation:
    """What readers of a partition see, without saying that it was made."""
    return AssetObservation(**_event(asset, partition, served))


def materialization_of(asset: str, partition: str | None, served: Served) -> AssetMaterialization:
    """Made before, and told once more to who takes nothing else for an answer."""
    return AssetMaterialization(**_event(asset, partition, served))


def _event(asset: str, partition: str | None, served: Served) -> dict[str, Any]:
    """Its data version is the instance's uuid, and it is linked to the Dagster run that built it."""
    metadata: dict[str, Any] = {
        "databuild/instance": served.uuid,
        "databuild/delegated": True,
        "databuild/job_run": served.job_run,
    }
    if served.dagster_run_id is not None:
        metadata["databuild/served_by"] = MetadataValue.dagster_run(served.dagster_run_id)
    return {
        "asset_key": asset_key(asset),
        "partition": partition,
        "metadata": metadata,
        "tags": version_tags(served.uuid, partition),
    }
