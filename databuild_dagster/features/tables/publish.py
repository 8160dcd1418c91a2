"""`publish=Iceberg(…)` and `publish=Delta(…)`: the open table that a dataset is published as (rule 10.10).

The author's options are in the metadata of the asset, where Dagster keeps them through every copy of it. `table_spec` makes of
them the registration of the table. Everything that the asset alone shows to be wrong is refused at import.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final, Literal

import dagster as dg
import msgspec

from databuild_dagster.bindings.adapter.dagster_private import quiet_beta_warnings
from databuild_dagster.bindings.adapter.keys import asset_text, specs_of
from databuild_dagster.bindings.authoring.definers import Assets, Definer
from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.declare.asset_spec import body_of
from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.bindings.declare.settings import AssetSetting, Setting, described
from databuild_dagster.features.tables.opening import check_can_publish
from databuild_dagster.features.tables.port import Place
from databuild_dagster.features.tables.table_publishing import table_entries
from databuild_dagster.model.datasets import PartitionColumn, PartitionType, TableFormat, TableSpec
from databuild_dagster.model.refs import PARTITION_KEY
from databuild_dagster.warehouse.layout import Warehouse

#: The metadata with the options of an asset's table, as its author wrote them; and with its registration.
PUBLISH: Final = "databuild/publish"
TABLE: Final = "databuild/table"
#: The namespace of tables whose author names none.
DEFAULT_NAMESPACE: Final = "databuild"

_A_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_A_TABLE = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)+")
_A_NAMESPACE = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
_A_CATALOG = re.compile(r"[A-Za-z0-9_-]*")
#: Names of Dagster's types of schedules; a cron schedule has none.
_DAYS = ("DAILY", "WEEKLY", "MONTHLY")

Tainted = Literal["keep", "remove"]
OnConflict = Literal["refuse", "rebase"]
ColumnType = Literal["date", "timestamp", "string"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Published:
    """The options that both formats have."""

    #: The column with the partition key. A multi-partition key has a column per dimension, named for it.
    partition_column: str = PARTITION_KEY
    #: By default a date for days, weeks and months, a timestamp for other times, and text.
    partition_type: ColumnType | None = None
    #: Whether tainted instances stay in the table.
    tainted: Tainted = "remove"
    #: Whether snapshots of other writers are refused, or replaced by what the log says.
    on_conflict: OnConflict = "refuse"

    def __post_init__(self) -> None:
        _one_of(self, "tainted", self.tainted, ("keep", "remove"))
        _one_of(self, "on_conflict", self.on_conflict, ("refuse", "rebase"))
        _one_of(self, "partition_type", self.partition_type, (None, *(kind.value for kind in PartitionType)))
        _matches(self, "partition_column", self.partition_column, _A_COLUMN, "a name of letters, digits and _")


@dataclass(frozen=True, slots=True, kw_only=True)
class Iceberg(_Published):
    """Publish a dataset as an Iceberg table: `publish=Iceberg(table="shop.sales")`.

    `table` is the namespace and the name; without it `namespace` and the asset's key make them. `catalog` is a name in pyiceberg's
    own configuration (`.pyiceberg.yaml`, or PYICEBERG_CATALOG__<NAME>__… in the environment), which has the address and the
    credentials; without it the catalog is the SQLite file `iceberg.db` in the warehouse. `partition_column` names the column with the
    partition key, `partition_type` its type: `date`, `timestamp` or `string`. `tainted="keep"` leaves tainted
    partitions in the table. `on_conflict="rebase"` replaces snapshots of other writers, which are refused otherwise.

    Raises `InvalidAsset` for a name or a value that cannot work. Needs the extra `iceberg`.
    """

    table: str | None = None
    catalog: str = ""
    namespace: str = DEFAULT_NAMESPACE

    def __post_init__(self) -> None:
        # `super()` does not find its class in a dataclass with slots.
        _Published.__post_init__(self)
        if self.table is not None:
            why = "a namespace and a name, with a dot between, such as 'shop.sales'"
            _matches(self, "table", self.table, _A_TABLE, why)
        _matches(self, "namespace", self.namespace, _A_NAMESPACE, "a name of letters, digits and _")
        if not _A_CATALOG.fullmatch(self.catalog):
            # Not shown: an address may hold a password.
            raise InvalidAsset(
                "catalog of Iceberg(…) is no name; put the catalog's address into pyiceberg's configuration, and its name here."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta(_Published):
    """Publish a dataset as a Delta table, whose root is the folder of the dataset: `publish=Delta()`.

    All options are as for `Iceberg`. Files that were adopted from outside of the warehouse cannot be in it. Raises `InvalidAsset`.
    Needs the extra `delta`.
    """


#: What `publish=` takes: False is no table, also where `build_definitions` has a default.
Publish = Iceberg | Delta | Literal[False] | None

_FORMATS: Final[Mapping[TableFormat, type[Iceberg | Delta]]] = {TableFormat.ICEBERG: Iceberg, TableFormat.DELTA: Delta}


def publish_metadata(asset: str, publish: Publish) -> dict[str, Any]:
    """The metadata of an asset with this option. Raises `InvalidAsset`."""
    if publish is None:
        return {}
    check_publish(f"asset {asset!r}", publish)
    if publish is False:
        return {PUBLISH: dg.MetadataValue.json({"format": None})}
    format = next(name for name, kind in _FORMATS.items() if isinstance(publish, kind))
    return {PUBLISH: dg.MetadataValue.json({"format": format.value, **asdict(publish)})}


def check_publish(place: str, publish: object) -> None:
    """Raises `InvalidAsset` for a value that is no option."""
    if publish not in (None, False) and not isinstance(publish, Iceberg | Delta):
        raise InvalidAsset(f"publish of {place} is {publish!r}; write Iceberg(…), Delta(…) or False.")


def publish_of(spec: dg.AssetSpec) -> Publish:
    """The option of an asset, as its author wrote it."""
    options = _json(spec.metadata.get(PUBLISH))
    if options is None:
        return None
    format = options.pop("format")
    return False if format is None else _FORMATS[TableFormat(format)](**options)


def table_spec(
    asset: str, partitions: dg.PartitionsDefinition | None, publish: Iceberg | Delta, warehouse: str | None
) -> TableSpec:
    """The registration of an asset's table. Raises `InvalidAsset` for a type that its partitions cannot have."""
    facts: dict[str, Any] = {
        "columns": _columns(asset, partitions, publish),
        "keep_tainted": publish.tainted == "keep",
        "rebase": publish.on_conflict == "rebase",
        "warehouse": warehouse or "",
    }
    if isinstance(publish, Delta):
        return TableSpec(format=TableFormat.DELTA, **facts)
    name = publish.table or f"{publish.namespace}.{re.sub(r'[^A-Za-z0-9_]', '_', asset)}"
    return TableSpec(format=TableFormat.ICEBERG, name=name, catalog=publish.catalog, **facts)


def table_metadata(asset: str, table: TableSpec) -> dict[str, Any]:
    """The metadata of an asset with this table: its registration, and its name and place for Dagster's pages.

    A definition does not know the home, so a place in the home's own warehouse is with the materializations alone.
    """
    uri = Place(asset, table, Warehouse(table.warehouse)).uri if table.warehouse else None
    shown = {"dagster/table_name": table.name or None, "dagster/uri": uri}
    named = {name: value for name, value in shown.items() if value is not None}
    return {TABLE: dg.MetadataValue.json(msgspec.to_builtins(table)), **named}


def table_of(metadata: Mapping[str, Any]) -> TableSpec | None:
    """The registration in an asset's metadata."""
    found = _json(metadata.get(TABLE))
    return None if found is None else msgspec.convert(found, TableSpec)


def _json(value: Any) -> dict[str, Any] | None:
    found = getattr(value, "data", value)
    return dict(found) if found is not None else None


def _columns(
    asset: str, partitions: dg.PartitionsDefinition | None, publish: Iceberg | Delta
) -> tuple[PartitionColumn, ...]:
    if partitions is None:
        if publish.partition_type is not None:
            raise InvalidAsset(
                f"partition_type of asset {asset!r} is given, and the asset has no partitions; leave it out."
            )
        return ()
    if isinstance(partitions, dg.MultiPartitionsDefinition):
        for dimension in partitions.partitions_defs:
            if not _A_COLUMN.fullmatch(dimension.name):
                raise InvalidAsset(
                    f"Dimension {dimension.name!r} of asset {asset!r} is a column of its table; name it by letters, digits and _."
                )
        return tuple(
            _column(asset, dimension.name, dimension.partitions_def, publish.partition_type, is_alone=False)
            for dimension in partitions.partitions_defs
        )
    return (_column(asset, publish.partition_column, partitions, publish.partition_type, is_alone=True),)


def _column(
    asset: str, name: str, partitions: dg.PartitionsDefinition, asked: str | None, *, is_alone: bool
) -> PartitionColumn:
    """A type given for all dimensions applies to dimensions in time; a text dimension beside them stays text."""
    if not isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        if is_alone and asked not in (None, PartitionType.STRING):
            raise InvalidAsset(
                f"partition_type of asset {asset!r} is {asked!r}, and {type(partitions).__name__} has keys that are no times; "
                "leave it out, or write 'string'."
            )
        return PartitionColumn(name)
    is_days = getattr(partitions.schedule_type, "name", None) in _DAYS
    by_itself = PartitionType.DATE if is_days else PartitionType.TIMESTAMP
    kind = PartitionType(asked) if asked else by_itself
    if kind is PartitionType.STRING:
        return PartitionColumn(name)
    if kind is PartitionType.DATE and not is_days:
        raise InvalidAsset(
            f"partition_type of asset {asset!r} is 'date', and several of its partitions may have one date; write 'timestamp'."
        )
    return PartitionColumn(name, kind, partitions.fmt, str(partitions.timezone))


def _one_of(publish: object, option: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        listed = ", ".join(map(repr, allowed))
        raise InvalidAsset(f"{option} of {type(publish).__name__}(…) is {value!r}; it is one of {listed}.")


def _matches(publish: object, option: str, value: object, pattern: re.Pattern[str], why: str) -> None:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise InvalidAsset(f"{option} of {type(publish).__name__}(…) is {value!r}; it has to be {why}.")


def with_tables(assets: Iterable[Any], by_default: Publish, warehouse: str | None) -> list[Any]:
    """The assets with the registrations of their tables in their metadata.

    Raises `InvalidAsset` for a type that an asset's partitions cannot have, and if two assets have the same table.
    """
    given = list(assets)
    tables: dict[str, TableSpec] = {}
    for asset in given:
        for spec in specs_of(asset):
            if (table := _table(asset, spec, by_default, warehouse)) is not None:
                tables[asset_text(spec.key)] = table
    _refuse_one_table_of_two(tables)
    return [_with_tables(asset, tables) for asset in given] if tables else given


def _table(asset: Any, spec: dg.AssetSpec, by_default: Publish, warehouse: str | None) -> TableSpec | None:
    publish = publish_of(spec)
    is_ours = isinstance(asset, dg.AssetsDefinition) and body_of(asset) is not None
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

    def with_table(spec: dg.AssetSpec) -> dg.AssetSpec:
        asset = asset_text(spec.key)
        if asset not in tables:
            return spec
        # The author's own names of the table come first in Dagster's pages.
        return spec.replace_attributes(metadata={**table_metadata(asset, tables[asset]), **spec.metadata})

    if isinstance(asset, dg.AssetSpec):
        return with_table(asset)
    with quiet_beta_warnings():
        return asset.map_asset_specs(with_table)


class PublishAttributes(dg.Model, dg.Resolvable):
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
