"""Dagster's asset keys to the asset names of refs, and back."""

from dagster import AssetKey

from databuild_dagster.model.refs import PartitionRef


def asset_text(key: AssetKey) -> str:
    """`path/of/asset`. Raises `InvalidRef` for a key that no ref can name."""
    if any("/" in segment for segment in key.path):
        # Dagster allows it, and cannot distinguish a/b from [a, b] in its own texts either.
        return PartitionRef("/".join(["", *key.path])).asset
    return PartitionRef("/".join(key.path)).asset


def asset_key(asset: str) -> AssetKey:
    return AssetKey(asset.split("/"))
