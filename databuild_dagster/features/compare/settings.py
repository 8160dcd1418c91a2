"""`sample=True`: the option of an asset that lets the pages show a few of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from databuild_dagster.bindings.declare.settings import AssetSetting
from databuild_dagster.features.compare.sample_option import SAMPLE, is_sample_allowed, sample_metadata


def _registered(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"sample": True} if is_sample_allowed(metadata) else {}


ASSET_SETTINGS: Final = (AssetSetting(name="sample", metadata=sample_metadata, keys=(SAMPLE,), registered=_registered),)
