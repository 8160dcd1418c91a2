"""`same_data="keep"`: the builds of an asset record the content hash of their rows (rule 4.8). `deterministic=True`: an earlier
instance may come back in place of a build (rule 4.9).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.bindings.declare.settings import AssetSetting

if TYPE_CHECKING:
    from databuild_dagster.model.datasets import DatasetSpec
    from databuild_dagster.warehouse.layout import Warehouse
    from databuild_dagster.warehouse.manifest import Manifest

#: The metadata of an asset with the option.
SAME_DATA: Final = "databuild/same_data"
KEEP: Final = "keep"
DETERMINISTIC: Final = "databuild/deterministic"


def same_data_metadata(asset: str, given: object) -> dict[str, Any]:
    """The metadata of an asset with this option. Raises `InvalidAsset`."""
    if given is None:
        return {}
    if given != KEEP:
        raise InvalidAsset(f"same_data of asset {asset!r} is {given!r}; write {KEEP!r}, or leave it out.")
    return {SAME_DATA: KEEP}


def deterministic_metadata(asset: str, given: object) -> dict[str, Any]:
    """The metadata of an asset with this option. Raises `InvalidAsset`."""
    if not isinstance(given, bool):
        raise InvalidAsset(f"deterministic of asset {asset!r} is {given!r}; write True, or leave it out.")
    return {DETERMINISTIC: True} if given else {}


def _registered_deterministic(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    found = metadata.get(DETERMINISTIC)
    return {"deterministic": True} if getattr(found, "value", found) is True else {}


def _registered(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    found = metadata.get(SAME_DATA)
    return {"same_data": True} if getattr(found, "value", found) == KEEP else {}


def _content_hash(dataset: DatasetSpec, warehouse: Warehouse, manifest: Manifest) -> str | None:
    """Without the option no file is opened, and numpy stays unloaded."""
    if dataset.same_data is not True:
        return None
    from databuild_dagster.features.same_data.written_rows import hash_of_written

    return hash_of_written(warehouse, manifest)


ASSET_SETTINGS: Final = (
    AssetSetting(
        name="same_data",
        metadata=same_data_metadata,
        keys=(SAME_DATA,),
        registered=_registered,
        content_hash=_content_hash,
    ),
    AssetSetting(
        name="deterministic",
        metadata=deterministic_metadata,
        keys=(DETERMINISTIC,),
        registered=_registered_deterministic,
        needs_inputs=True,
    ),
)
