"""Dagster's asset keys to the asset names of refs, and back; and the keys of a deployment's parts among its resources."""

from collections.abc import Sequence
from typing import Any, Final

from dagster import AssetKey, AssetsDefinition, AssetSpec

from databuild_dagster.model.refs import PartitionRef

#: The deployment: location, datasets, warehouse.
DEPLOYMENT: Final = "databuild"
#: The name of the location in the store. Definitions of two locations do not merge, and Dagster's error has this key.
LOCATION: Final = "databuild_location"
#: The resource with the Spark session.
SPARK: Final = "databuild_spark"
#: The read-only IO manager.
IO_MANAGER: Final = "databuild_io_manager"
#: The metadata that makes an external asset a boundary, whose lots are files of other programs.
BOUNDARY: Final = "databuild/boundary"
#: The resource by which sensors and schedules create wants.
WANTS: Final = "wants"
#: The sensor that ticks.
ORCHESTRATOR: Final = "databuild_orchestrator"


def asset_text(key: AssetKey) -> str:
    """`path/of/asset`. Raises `InvalidRef` for a key that no ref can name."""
    if any("/" in segment for segment in key.path):
        # Dagster allows it, and cannot distinguish a/b from [a, b] in its own texts either.
        return PartitionRef("/".join(["", *key.path])).asset
    return PartitionRef("/".join(key.path)).asset


def asset_key(asset: str) -> AssetKey:
    return AssetKey(asset.split("/"))


def specs_of(asset: Any) -> Sequence[AssetSpec]:
    """The specs of an assets definition or of a spec; any other asset, such as a SourceAsset, has none."""
    if isinstance(asset, AssetsDefinition):
        return list(asset.specs)
    return [asset] if isinstance(asset, AssetSpec) else []
