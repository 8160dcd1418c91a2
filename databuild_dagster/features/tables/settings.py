"""`publish=`: the setting of a code location and the option of an asset that make a dataset a table for other engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

from dagster import AssetsDefinition, AssetSpec, Model, Resolvable

from databuild_dagster.bindings.adapter.dagster_private import quiet_beta_warnings
from databuild_dagster.bindings.adapter.keys import asset_text, specs_of
from databuild_dagster.bindings.authoring.definers import Assets, Definer
from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.declare.asset_spec import body_of
from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.bindings.declare.settings import AssetSetting, Setting, described
from databuild_dagster.features.tables.opening import check_can_publish
from databuild_dagster.features.tables.publish import (
    PUBLISH,
    Delta,
    Iceberg,
    Publish,
    check_publish,
    publish_metadata,
    publish_of,
    table_metadata,
    table_of,
    table_spec,
)
from databuild_dagster.features.tables.table_snapshots import table_entries
from databuild_dagster.model.datasets import TableFormat, TableSpec


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


class PublishAttributes(Model, Resolvable):
    """The table that each asset is published as, as `Iceberg` and `Delta` take it."""

    format: Annotated[str, described(f"The format of the tables: {', '.join(TableFormat)}.")]
    namespace: Annotated[str | None, described("Iceberg: the namespace of the tables; databuild unless given.")] = None
    catalog: Annotated[str | None, described("Iceberg: a name in pyiceberg's own configuration.")] = None
    partition_column: Annotated[
        str | None, described("The column with the partition key; partition_key unless given.")
    ] = None
    partition_type: Annotated[str | None, described("The type of that column: date, timestamp or string.")] = None
    tainted: Annotated[
        str | None, described("Whether tainted partitions stay: keep or remove; remove unless given.")
    ] = None
    on_conflict: Annotated[
        str | None, described("What happens to snapshots of other writers: refuse or rebase; refuse unless given.")
    ] = None

    def publish(self, place: str) -> Iceberg | Delta:
        """Raises `InvalidAsset` for an unknown format, and for an option that it does not have."""
        given = {name: value for name, value in self.model_dump().items() if name != "format" and value is not None}
        if self.format not in set(TableFormat):
            listed = ", ".join(TableFormat)
            raise InvalidAsset(f"{place} publishes as {self.format!r}; the formats are {listed}.")
        if self.format == TableFormat.ICEBERG:
            return Iceberg(**given)
        if of_iceberg := given.keys() & {"namespace", "catalog"}:
            raise InvalidAsset(
                f"{place} gives {min(of_iceberg)} to Delta, whose table is the folder of its dataset; leave it out."
            )
        return Delta(**given)


def _checked(publish: Publish, place: str) -> Publish:
    """Raises `InvalidAsset`."""
    check_publish(place, publish)
    if isinstance(publish, Iceberg) and publish.table is not None:
        raise InvalidAsset(
            f"publish of {place} gives all assets one table, {publish.table!r}; write Iceberg(namespace=…) there."
        )
    return publish


def _check_several(name: str, n_outputs: int, publish: Publish) -> None:
    if isinstance(publish, Iceberg) and publish.table is not None and n_outputs > 1:
        raise InvalidAsset(
            f"publish of multi-asset {name!r} gives its outputs one table, {publish.table!r}; give each its own: publish={{…}}."
        )


def _registered(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    table = table_of(metadata)
    return {} if table is None else {"table": table}


def _assets(deployment: Deployment, assets: Assets) -> Assets:
    return with_tables(assets, PUBLISH_BY_DEFAULT.of(deployment), deployment.warehouse)


#: The table of the assets of a location that give no option of their own.
PUBLISH_BY_DEFAULT: Final = Setting[Publish](
    name="publish",
    default=lambda: None,
    checked=_checked,
    in_yaml=PublishAttributes | None,
    yaml_default=None,
    description="The table of each asset that gives no publish= of its own; none unless given.",
    from_yaml=lambda attributes, place: attributes.publish(place),
)
SETTINGS: Final = (PUBLISH_BY_DEFAULT,)
ASSET_SETTINGS: Final = (
    AssetSetting(
        name="publish",
        metadata=publish_metadata,
        keys=(PUBLISH,),
        registered=_registered,
        shown=table_entries,
        check_ready=check_can_publish,
        check_several=_check_several,
    ),
)
DEFINERS: Final = (Definer(assets=_assets),)
