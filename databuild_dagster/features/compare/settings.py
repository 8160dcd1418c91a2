"""`sample=True`: the option of an asset that lets the pages show a few of its rows."""

from collections.abc import Mapping
from typing import Any, Final

from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.bindings.declare.settings import AssetSetting

#: The metadata of an asset whose rows may be shown. The rows that `sample_rows` records have a different name.
SAMPLE: Final = "databuild/shows_rows"


def sample_metadata(asset: str, sample: object) -> dict[str, Any]:
    """The metadata of an asset with this option. Raises `InvalidAsset`."""
    if not isinstance(sample, bool):
        raise InvalidAsset(f"sample of asset {asset!r} is {sample!r}; write True or False.")
    return {SAMPLE: True} if sample else {}


def is_sample_allowed(metadata: Mapping[str, Any]) -> bool:
    """Whether an asset with this metadata allows it."""
    found = metadata.get(SAMPLE)
    return getattr(found, "value", found) is True


def _registered(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"sample": True} if is_sample_allowed(metadata) else {}


ASSET_SETTINGS: Final = (AssetSetting(name="sample", metadata=sample_metadata, keys=(SAMPLE,), registered=_registered),)
