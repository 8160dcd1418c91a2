"""Columns of manifests and of Spark, of many instances together, and whether new columns fit.

New columns and wider types fit, and decimals of any width, since frames in memory give them the width of their largest value.
A missing column, a narrower type or a different type does not fit, because readers read new and old instances together.

A column, or a part of a column, without any value may have no type: Spark calls it void, and it fits every type. Spark has no files
of it, so manifests name the type that the column is read with, and its own type in the metadata of the field."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from databuild_dagster.model.refs import Ref
from databuild_dagster.spark.errors import ColumnsAlike, NoSchema, SchemaChanged, SchemasDiffer, UnreadableColumn
from databuild_dagster.warehouse.files import VOID, as_spark_writes, parts_of, schema_from_spark, table_schema
from databuild_dagster.warehouse.manifest import Manifest, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructField, StructType

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
    # A year of days has few different schemas, and parsing takes time.
    first_with: dict[TableSchema, Manifest] = {}
    for manifest in manifests:
        first_with.setdefault(manifest.schema, manifest)
    if len(first_with) == 1:
        return spark_schema(manifests[0].schema)
    fields: dict[str, StructField] = {}
    shown: dict[str, DataType] = {}
    first_seen: dict[str, Manifest] = {}
    for manifest in first_with.values():
        read = spark_schema(manifest.schema)
        for found in typed_schema(manifest.schema):
            known = fields.get(found.name)
            data_type = found.dataType if known is None else united_type(known.dataType, found.dataType)
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
            shown.setdefault(found.name, read[found.name].dataType)
    return StructType(
        [StructField(field.name, without_void(field.dataType, shown[field.name])) for field in fields.values()]
    )


def spark_schema(schema: TableSchema) -> StructType:
    """A manifest's columns as Spark reads them. Raises `NoSchema` if databuild did not write the files."""
    return _struct(schema, typed=False)


def typed_schema(schema: TableSchema) -> StructType:
    """A manifest's columns with void for what has no value. Raises `NoSchema`."""
    return _struct(schema, typed=True)


def _struct(schema: TableSchema, *, typed: bool) -> StructType:
    from pyspark.sql.types import StructType

    if schema.spark is None:
        raise NoSchema(what="files that were not written by databuild")
    found = _nullable(json.loads(schema.spark))
    for field in found["fields"] if VOID in schema.spark else ():
        own = field["metadata"].pop(VOID, field["type"])
        field["type"] = own if typed else field["type"]
    return StructType.fromJson(found)


def field_of(name: str, data_type: DataType, shown: DataType | None = None) -> StructField:
    """A field of a manifest for a type that may have void in it; a void has the type `shown`, by default text."""
    from pyspark.sql.types import StructField

    read = without_void(data_type, shown)
    return StructField(name, read, nullable=True, metadata={VOID: data_type.jsonValue()} if read != data_type else None)


def without_void(data_type: DataType, shown: DataType | None = None) -> DataType:
    """A type with `shown` in place of a void, by default text, and text in place of a void inside of it."""
    from pyspark.sql.types import ArrayType, MapType, NullType, StringType, StructField, StructType

    match data_type:
        case NullType():
            return StringType() if shown is None else shown
        case ArrayType():
            return ArrayType(without_void(data_type.elementType))
        case MapType():
            return MapType(without_void(data_type.keyType), without_void(data_type.valueType))
        case StructType():
            return StructType([StructField(field.name, without_void(field.dataType)) for field in data_type])
        case _:
            return data_type


def typed_fields(
    schema: StructType, known: Callable[[], TableSchema | None], blank: Collection[str] = ()
) -> list[StructField]:
    """The fields of a manifest for the columns of a frame: void takes the type that `known` columns have.

    Columns that are `blank` have a type that says nothing: pandas' floats without a number.
    """
    from pyspark.sql.types import NullType

    fields = list(schema)
    voids = [field for field in fields if field.name in blank or without_void(field.dataType) != field.dataType]
    if not voids:
        return fields
    before = known()
    types = {} if before is None or before.spark is None else {one.name: one.dataType for one in typed_schema(before)}
    for field in voids:
        found = NullType() if field.name in blank else field.dataType
        data_type = united_type(types.get(field.name, found), found) or found
        # Without any other column the file has these, and Spark makes any type of a text.
        shown = field.dataType if field.name in blank and len(voids) < len(fields) else None
        fields[fields.index(field)] = field_of(field.name, data_type, shown)
    return fields


def absent_columns(schema: TableSchema) -> frozenset[str]:
    """The columns that databuild's own files do not have, because they have no type; none if no column has a type."""
    if schema.spark is None or VOID not in schema.spark:
        return frozenset()
    found = {field.name: field.dataType.typeName() for field in typed_schema(schema)}
    voids = frozenset(name for name, kind in found.items() if kind == "void")
    return voids if len(voids) < len(found) else frozenset()


def alike_columns(fields: Iterable[pa.Field]) -> tuple[str, str] | None:
    """The first two columns, or members of the same struct, whose names differ at most by case: Spark reads neither of them."""
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
    from pyspark.sql.types import StructType

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
        fields.append(field_of(field.name, found))
    return schema_from_spark(StructType(fields).json())


def _why_unreadable(data_type: pa.DataType) -> str | None:
    """The reason for types that Spark has, but does not read, or reads as a different value, from a file of another program."""
    import pyarrow as pa

    if pa.types.is_timestamp(data_type) and data_type.unit == "ns":
        return "Spark reads no nanoseconds"
    if pa.types.is_decimal(data_type) and data_type.precision > 38:
        return "Spark's decimals have at most 38 digits"
    if pa.types.is_float16(data_type):
        return "Spark has no number of 2 bytes with a fraction"
    if has_times_of_day(data_type) or pa.types.is_duration(data_type):
        return "Spark does not read it from files"
    inner = (data_type.field(place).type for place in range(data_type.num_fields))
    return next((why for inner_type in inner if (why := _why_unreadable(inner_type))), None)


def has_times_of_day(data_type: pa.DataType) -> bool:
    """Whether a type has Spark's `time` in it, which no Spark reads from files."""
    import pyarrow as pa

    return any(map(pa.types.is_time, parts_of(data_type)))


def quoted(column: str) -> str:
    """Any column's name as SQL takes it."""
    return f"`{column.replace('`', '``')}`"


class Columns(NamedTuple):
    """The columns of an instance of a ref."""

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


def united_columns(one: TableSchema, other: TableSchema) -> TableSchema:
    """The columns of two schemas that fit each other, in the order of the first."""
    from pyspark.sql.types import StructType

    if one == other:
        return one
    types = {field.name: field.dataType for field in typed_schema(other)}
    found = [(name, united_type(field.dataType, types[name])) for field in typed_schema(one) if (name := field.name)]
    return as_written(StructType([field_of(name, kind) for name, kind in found if kind is not None]))


def why_not_fitting(schema: TableSchema, before: TableSchema) -> str | None:
    """The first change of the columns that earlier readers cannot take; None if they fit."""
    now = {field.name: field.dataType for field in typed_schema(schema)}
    for field in typed_schema(before):
        if field.name not in now:
            return f"it has no column {field.name!r}"
        found, known = now[field.name], field.dataType
        if united_type(known, found, grows=True) is None:
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


def united_type(one: DataType, other: DataType, *, grows: bool = False) -> DataType | None:
    """A type that holds every value of both types; None if no type does.

    With `grows`, the type `other` itself has to hold every value of the type `one`, else None.

    Void and decimals may get narrower nevertheless: frames in memory give decimals the width of their largest value.
    """
    from pyspark.sql.types import ArrayType, DecimalType, MapType, NullType, StructField, StructType

    def inner(one: DataType, other: DataType) -> DataType | None:
        return united_type(one, other, grows=grows)

    match one, other:
        case _ if one == other:
            return one
        case (NullType(), found) | (found, NullType()):
            return found
        case DecimalType(), DecimalType():
            scale = max(one.scale, other.scale)
            precision = max(one.precision - one.scale, other.precision - other.scale) + scale
            return DecimalType(precision, scale) if precision <= 38 else None  # Digits of Spark's widest decimal.
        case ArrayType(), ArrayType():
            element = inner(one.elementType, other.elementType)
            return None if element is None else ArrayType(element)
        case MapType(), MapType():
            key, value = inner(one.keyType, other.keyType), inner(one.valueType, other.valueType)
            return None if key is None or value is None else MapType(key, value)
        case StructType(), StructType() if one.names == other.names:
            types = [inner(left.dataType, right.dataType) for left, right in zip(one, other, strict=True)]
            known = [StructField(name, kind) for name, kind in zip(one.names, types, strict=True) if kind is not None]
            return StructType(known) if len(known) == len(types) else None
    for order in _WIDENINGS:
        if one.typeName() in order and other.typeName() in order:
            wider = max(one, other, key=lambda data_type: order.index(data_type.typeName()))
            return None if grows and wider != other else wider
    return None


def is_widened(one: DataType, other: DataType) -> bool:
    """Whether Spark's reader converts the type `one` to `other`."""
    return one == other or any({one.typeName(), other.typeName()} <= set(order) for order in _WIDENINGS)
