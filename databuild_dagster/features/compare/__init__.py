"""Receipts of instances, the differences of two, and samples of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from databuild_dagster.feature import Feature

if TYPE_CHECKING:
    from databuild_dagster.bindings.declare.settings import AssetSetting


def _asset_settings() -> tuple[AssetSetting, ...]:
    from databuild_dagster.features.compare.settings import ASSET_SETTINGS

    return ASSET_SETTINGS


FEATURE = Feature(
    name="compare",
    summary="Receipts, differences of two instances, samples of rows.",
    asset_settings=_asset_settings,
)
