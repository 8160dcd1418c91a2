"""Lots that arrive as files, arcs, parts, gap reports, and the copies that other tools read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from databuild_dagster.feature import Feature

if TYPE_CHECKING:
    from databuild_dagster.bindings.authoring.definers import Definer
    from databuild_dagster.bindings.declare.settings import AssetSetting


def _asset_settings() -> tuple[AssetSetting, ...]:
    from databuild_dagster.features.lots.settings import ASSET_SETTINGS

    return ASSET_SETTINGS


def _definers() -> tuple[Definer, ...]:
    from databuild_dagster.features.lots.settings import DEFINERS

    return DEFINERS


FEATURE = Feature(
    name="lots",
    summary="Files of other programs become lots; gap reports; lots in parts; copies for other tools.",
    asset_settings=_asset_settings,
    definers=_definers,
)
