"""Dagster's asset keys to the asset names of refs, and back."""

from collections.abc import Sequence
from typing import Any

from dagster import AssetKey, AssetsDefinition, AssetSpec

from databuild_dagster.model.refs import PartitionRef


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
    return list(asset.specs) if isinstance(asset, AssetsDefinition) else [asset] if isinstance(asset, AssetSpec) else []
