"""The tables of a location's assets: each asset's own option, or else the location's default, becomes a registration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dagster import AssetsDefinition, AssetSpec

from databuild_dagster.bindings.adapter.dagster_private import quiet_beta_warnings
from databuild_dagster.bindings.adapter.keys import asset_text, specs_of
from databuild_dagster.bindings.declare.asset_spec import body_of
from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.features.tables.publish import Publish, publish_of, table_metadata, table_spec
from databuild_dagster.model.datasets import TableSpec


def with_tables(assets: Iterable[Any], by_default: Publish, warehouse: str | None) -> list[Any]:
    """The assets with the registrations of their tables in their metadata.

    Raises `InvalidAsset` for a type that an asset's partitions cannot have, and for one table of two assets.
    """
    given = list(assets)
    tables: dict[str, TableSpec] = {}
    for asset in given:
        for spec in specs_of(asset):
            if (table := _table(asset, spec, by_default, warehouse)) is not None:
                tables[asset_text(spec.key)] = table
    _refuse_one_table_of_two(tables)
    return [_with_tables(asset, tables) for asset in given] if tables else given


def _table(asset: Any, spec: AssetSpec, by_default: Publish, warehouse: str | None) -> TableSpec | None:
    publish = publish_of(spec)
    is_ours = isinstance(asset, AssetsDefinition) and body_of(asset) is not None
    if publish is None and is_ours:
        publish = by_default
    if not publish:
        return None
    return table_spec(asset_text(spec.key), spec.partitions_def, publish, warehouse)


def _refuse_one_table_of_two(tables: dict[str, TableSpec]) -> None:
    first: dict[tuple[str, str], str] = {}
    for asset, table in tables.items():
        if table.name and (other := first.setdefault((table.catalog, table.name), asset)) != asset:
            raise InvalidAsset(f"Assets {other!r} and {asset!r} have one table, {table.name!r}; give each its own.")


def _with_tables(asset: Any, tables: dict[str, TableSpec]) -> Any:
    if not any(asset_text(spec.key) in tables for spec in specs_of(asset)):
        return asset

    def with_table(spec: AssetSpec) -> AssetSpec:
        asset = asset_text(spec.key)
        if asset not in tables:
            return spec
        # The author's own names of the table come first in Dagster's pages.
        return spec.replace_attributes(metadata={**table_metadata(asset, tables[asset]), **spec.metadata})

    if isinstance(asset, AssetSpec):
        return with_table(asset)
    with quiet_beta_warnings():
        return asset.map_asset_specs(with_table)
