"""Iceberg and Delta tables of the live partitions, for other engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from databuild_dagster.feature import Feature

if TYPE_CHECKING:
    from databuild_dagster.bindings.authoring.definers import Definer
    from databuild_dagster.bindings.declare.settings import AssetSetting, Setting


def _settings() -> tuple[Setting[object], ...]:
    from databuild_dagster.features.tables.settings import SETTINGS

    return SETTINGS


def _asset_settings() -> tuple[AssetSetting, ...]:
    from databuild_dagster.features.tables.settings import ASSET_SETTINGS

    return ASSET_SETTINGS


def _definers() -> tuple[Definer, ...]:
    from databuild_dagster.features.tables.settings import DEFINERS

    return DEFINERS


FEATURE = Feature(
    name="tables",
    summary="Datasets are published as Iceberg and Delta tables.",
    settings=_settings,
    asset_settings=_asset_settings,
    definers=_definers,
)
