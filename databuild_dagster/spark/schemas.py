"""Columns of manifests and of Spark, of many instances together, and whether new ones fit.

New columns and wider types fit, and decimals of any width, since frames in memory give them the width of their largest value.
A missing column, another narrower type or another type does not fit, because readers read new and old instances together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from databuild_dagster.model.refs import Ref
from databuild_dagster.spark.errors import ColumnsAlike, NoSchema, SchemaChanged, SchemasDiffer, UnreadableColumn
from databuild_dagster.warehouse.files import as_spark_writes, schema_from_spark, table_schema
from databuild_dagster.warehouse.manifest import Manifest, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

#: Narrower to wider, as Spark's Parquet reader widens.
_WIDENINGS = (("byte", "short", "integer", "long"), ("float", "double"))


def as_written(schema: StructType, *, without: str | None = None) -> TableSchema:
    """The columns of a frame as its files have them: Spark writes each as nullable."""
    fields = [field for field in schema.jsonValue()["fields"] if field["name"] != without]
    return schema_from_spark(json.dumps({"type": "struct", "fields": _nullable(fields)}, separators=(",", ":")))


def united_schema(manifests: Sequence[Manifest]) -> StructType:
    """The columns of all instances, in the order in which they first appear; the widest type of each.

    Raises `NoSchema`, `SchemasDiffer`.
    """
    from pyspark.sql.types import StructField, StructType

    if not manifests:
        raise NoSchema(what="what is to be read")
    if len({manifest.schema for manifest in manifests}) == 1:
        # The common case: parsing a schema for each of a year's days takes time.
        return spark_schema(manifests[0].schema)
    fields: dict[str, StructField] = {}
    first_seen: dict[str, Manifest] = {}
    for manifest in manifests:
        for found in spark_schema(manifest.schema):
            known = fields.get(found.name)
            data_type = found.dataType if known is None else _wider(known.dataType, found.dataType)
            if data_type is None:
                assert known is not None
                earlier = first_seen[found.name]
                raise SchemasDiffer(
                    column=found.name,
                    one=known.dataType.simpleString(),
                    one_uuid=earlier.instance_uuid,
                    other=found.dataType.simpleString(),
                    other_uuid=manifest.instance_uuid,
                    asset=manifest.dataset,
                )
            fields[found.name] = StructField(found.name, data_type, nullable=True)
            first_seen.setdefault(found.name, manifest)
    return StructType(list(fields.values()))


def spark_schema(schema: TableSchema) -> StructType:
    """A manifest's columns as Spark reads them. Raises `NoSchema` if databuild did not write the files."""
    from pyspark.sql.types import StructType

    if schema.spark is None:
        raise NoSchema(what="files that were not written by databuild")
    return StructType.fromJson(_nullable(json.loads(schema.spark)))


def alike_columns(fields: Iterable[pa.Field]) -> tuple[str, str] | None:
    """The first two columns, or members of one struct, whose names differ at most by case: Spark reads neither of them."""
    seen: dict[str, str] = {}
    for field in fields:
        if (other := seen.get(field.name.casefold())) is not None:
            return other, field.name
        seen[field.name.casefold()] = field.name
        members = [field.type.field(place) for place in range(field.type.num_fields)]
        if (inner := alike_columns(members)) is not None:
            return inner
    return None


def columns_of(schema: pa.Schema) -> TableSchema:
    """The columns of any file as Spark reads them. Raises `UnreadableColumn`."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    if (known := table_schema(schema)).spark is not None:
        return known
    if (alike := alike_columns(schema)) is not None:
        raise UnreadableColumn(column=alike[1], type="there", why=f"so is {alike[0]!r}, which Spark takes for the same")
    fields = []
    for field in as_spark_writes(schema):
        if why := _why_unreadable(field.type):
            raise UnreadableColumn(column=field.name, type=field.type, why=why)
        try:
            found = from_arrow_type(field.type, prefer_timestamp_ntz=False)
        except (PySparkException, TypeError) as error:
            raise UnreadableColumn(column=field.name, type=field.type, why="Spark has no such type") from error
        fields.append(StructField(field.name, found))
    return schema_from_spark(StructType(fields).json())


def _why_unreadable(data_type: pa.DataType) -> str | None:
    """The reason for types that Spark has, but does not read from a file, or reads as another value."""
    import pyarrow as pa

    if pa.types.is_timestamp(data_type) and data_type.unit == "ns":
        return "Spark reads no nanoseconds"
    if pa.types.is_time(data_type) or pa.types.is_duration(data_type):
        return "Spark does not read it from files"
    inner = (data_type.field(place).type for place in range(data_type.num_fields))
    return next((why for inner_type in inner if (why := _why_unreadable(inner_type))), None)


def quoted(column: str) -> str:
    """Any column's name as SQL takes it."""
    return f"`{column.replace('`', '``')}`"


class Columns(NamedTuple):
    """The columns of one instance of a ref."""

    ref: Ref
    schema: TableSchema


def check_schema(schema: TableSchema, ref: Ref, before: Columns | None, *, may_change: bool = False) -> None:
    """Compare with an earlier instance; columns that `may_change` keep their case. Raises `ColumnsAlike`, `SchemaChanged`."""
    if before is None or not schema.columns or not before.schema.columns or schema == before.schema:
        return
    known = {column.name.casefold(): column.name for column in before.schema.columns}
    for column in schema.columns:
        if (other := known.get(column.name.casefold(), column.name)) != column.name:
            raise ColumnsAlike(ref=ref, one=column.name, other=other, of=f" of {before.ref}")
    if not may_change and (why := why_not_fitting(schema, before.schema)):
        raise SchemaChanged(ref=ref, why=why, other_ref=before.ref)


def why_not_fitting(schema: TableSchema, before: TableSchema) -> str | None:
    """The first change of the columns that earlier readers cannot take; None if they fit."""
    now = {field.name: field.dataType for field in spark_schema(schema)}
    for field in spark_schema(before):
        if field.name not in now:
            return f"it has no column {field.name!r}"
        found, known = now[field.name], field.dataType
        # Frames in memory give decimals the width of their largest value, so a day of small ones has a narrower type.
        if (wider := _wider(known, found)) is None or (wider != found and known.typeName() != "decimal"):
            return f"column {field.name!r} is {found.simpleString()}, not {known.simpleString()}"
    return None


def _nullable(schema: Any) -> Any:
    """The schema with every field nullable, as Spark sees every file; an instance without files has the same."""
    match schema:
        case dict():
            may_be_null = {key: True for key in ("nullable", "containsNull", "valueContainsNull") if key in schema}
            return {key: _nullable(value) for key, value in schema.items()} | may_be_null
        case list():
            return [_nullable(item) for item in schema]
        case _:
            return schema


def _wider(one: DataType, other: DataType) -> DataType | None:
    """The type that has every value of both; None if there is none."""
    from pyspark.sql.types import DecimalType

    if one == other:
        return one
    if isinstance(one, DecimalType) and isinstance(other, DecimalType):
        scale = max(one.scale, other.scale)
        precision = max(one.precision - one.scale, other.precision - other.scale) + scale
        return DecimalType(precision, scale) if precision <= 38 else None  # Digits of Spark's widest decimal.
    for order in _WIDENINGS:
        if one.typeName() in order and other.typeName() in order:
            return max(one, other, key=lambda data_type: order.index(data_type.typeName()))
    return None
