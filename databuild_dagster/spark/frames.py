"""From manifests to a frame.

Files and columns come from manifests: no folder is listed, and no Spark job looks for the columns. Objects of an object
store are read from local copies, unless the session has Hadoop's own access. Thread-safe with one session."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from databuild_dagster.model.wording import few_of
from databuild_dagster.spark.errors import FilesOutOfReach
from databuild_dagster.spark.failures import explain_failure, is_lost
from databuild_dagster.spark.memory_frames import FrameKind, from_arrow, united_in_memory
from databuild_dagster.spark.plain_copies import plain_names, readable_paths
from databuild_dagster.spark.pyspark_names import arrow_schema_of
from databuild_dagster.spark.reach import in_place, places_read, told_as, why_not_read, without_wildcards
from databuild_dagster.spark.schemas import absent_columns, is_widened, quoted, spark_schema, united_schema
from databuild_dagster.spark.session import engine_name
from databuild_dagster.warehouse import errors, files, filters, formats, object_store_errors, storage
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest, file_paths, local_paths, missing_files_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from databuild_dagster.warehouse.manifest import TableSchema

#: A session with this setting has Hadoop's S3 classes, credentials and endpoint.
S3A_SETTING = "spark.hadoop.fs.s3a.impl"
_FILE = "__databuild_file"
#: Spark reads a file of at most so many bytes in one task; many files of that many bytes are read as if they were one.
ONE_TASK_BYTES = 4 * 1024 * 1024
#: To open a file takes a task some milliseconds.
ONE_TASK_FILES = 100
_S3 = frozenset({"s3", "s3a"})


def read_instances(
    spark: SparkSession,
    warehouse: Warehouse,
    manifests: Sequence[Manifest],
    *,
    schema: StructType | None = None,
) -> DataFrame:
    """A frame of the rows of all instances. `schema` is by default their columns united, by name.

    Raises `NoSchema` for no manifests without a schema, `SchemasDiffer` for columns that cannot be united.
    """
    schema = schema or united_schema(manifests)
    if groups := by_columns(manifests, schema):
        frames = [read_instances(spark, warehouse, some, schema=own) for own, some in groups]
        frame: DataFrame = united(
            [with_types(frame, own, schema) for frame, (own, _) in zip(frames, groups, strict=True)]
        )
        return frame
    paths_of = spark_paths(spark, warehouse, manifests, schema)
    return load_files(spark, schema, by_format(manifests, paths_of))


def fits_one_task(manifests: Collection[Manifest]) -> bool:
    """Whether one task reads all files of instances soon enough."""
    n_files = sum(len(manifest.files) for manifest in manifests)
    return 0 < n_files <= ONE_TASK_FILES and sum(manifest.bytes for manifest in manifests) <= ONE_TASK_BYTES


def in_one_task(frame: DataFrame, manifests: Sequence[Manifest]) -> DataFrame:
    """The frame of instances, in one task if they fit it: aggregations and joins of its rows then need no shuffle.

    A different engine than Spark on this machine is left alone.
    """
    return frame.coalesce(1) if fits_one_task(manifests) and engine_name(frame.sparkSession) is None else frame


def by_columns(manifests: Sequence[Manifest], schema: StructType) -> list[tuple[StructType, list[Manifest]]]:
    """The instances to read by types of their own, and to cast to `schema`: no Spark reads a text column as a different type, and
    Sail and Spark 3.5 widen no decimals. Empty if `schema` reads all."""
    from pyspark.sql.types import StructField, StructType

    found: dict[StructType, list[Manifest]] = {}
    own_of: dict[TableSchema, StructType] = {}
    if len({manifest.schema for manifest in manifests}) == 1 and schema == spark_schema(manifests[0].schema):
        return []
    for manifest in manifests:
        if (own := own_of.get(manifest.schema)) is None:
            absent = absent_columns(manifest.schema)
            types = {field.name: field.dataType for field in spark_schema(manifest.schema) if field.name not in absent}
            own = own_of[manifest.schema] = StructType(
                [StructField(field.name, _read_as(types.get(field.name), field.dataType)) for field in schema]
            )
        found.setdefault(own, []).append(manifest)
    is_one = all(own.simpleString() == schema.simpleString() for own in found)
    return [] if is_one else list(found.items())


def _read_as(own: DataType | None, wanted: DataType) -> DataType:
    """The type to read a column with: its own, unless its reader widens it."""
    return wanted if own is None or is_widened(own, wanted) else own


def with_types(frame: DataFrame, own: StructType, schema: StructType) -> DataFrame:
    """The columns of a schema with its types, which are wider than their `own`."""
    import pyspark.sql.functions as F

    types = {field.name: field.dataType for field in own}
    columns = (
        _widened(F.col(quoted(field.name)), types.get(field.name, field.dataType), field.dataType).alias(field.name)
        for field in schema
    )
    wider: DataFrame = frame.select(*columns)
    return wider


def _widened(column: Column, own: DataType, wanted: DataType) -> Column:
    """A column as a wider type. A text stands for what has no value, and Spark casts no text to a list or a struct."""
    import pyspark.sql.functions as F
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    match own, wanted:
        case _ if own.simpleString() == wanted.simpleString():
            return column
        case StringType(), _:
            return F.lit(None).cast(wanted)
        case ArrayType(), ArrayType():
            return F.transform(column, lambda item: _widened(item, own.elementType, wanted.elementType))
        case MapType(), MapType():
            keys = F.transform(F.map_keys(column), lambda key: _widened(key, own.keyType, wanted.keyType))
            values = F.transform(F.map_values(column), lambda value: _widened(value, own.valueType, wanted.valueType))
            return F.map_from_arrays(keys, values)
        case StructType(), StructType():
            members = [
                _widened(column[field.name], field.dataType, wanted[field.name].dataType).alias(field.name)
                for field in own
            ]
            return F.when(column.isNotNull(), F.struct(*members))
        case _:
            return column.cast(wanted)


def filter_in(spark: SparkSession, where: str) -> filters.Filter:
    """A condition as a session reads it. Raises `BadFilter`."""
    return filters.parsed_filter(where, spark.conf.get("spark.sql.session.timeZone") or "UTC", spark_decides=True)


def filtered(frame: DataFrame, where: filters.Filter) -> DataFrame:
    """The rows of a frame that a filter lets through. Raises `BadFilter` for what Spark does not understand."""
    from pyspark.errors import PySparkException

    try:
        found = frame.where(where.where)
        # Analyzed now: the user of the frame would get the error in another place.
        found.schema  # noqa: B018
    except PySparkException as error:
        raise filters.BadFilter(where=where.where, why=explain_failure(error).rstrip(".")) from error
    return found


def load_files(
    spark: SparkSession, schema: StructType, paths: Mapping[str, Sequence[str]], *, base_path: str | None = None
) -> DataFrame:
    """A frame of files by the name of their format; folders below `base_path` are columns.

    Each bucket is a relation of its own: Sail reads only the first bucket of a list, without an error.
    """
    frames = []
    for name, found in paths.items():
        reader = spark.read.format(name).options(**formats.format_named(name).spark_options).schema(schema)
        if base_path is not None:
            reader = reader.option("basePath", base_path)
        elif not any("://" in path for path in found):
            # Otherwise Spark looks for columns in the name of each file's folder: a tenth of a scan of 1,000 small files.
            reader = reader.option("recursiveFileLookup", "true")
        by_bucket: dict[str, list[str]] = {}
        for path in found:
            by_bucket.setdefault(object_store_errors.bucket_of(path), []).append(without_wildcards(path))
        frames += [reader.load(some) for some in by_bucket.values()]
    frame: DataFrame = united(frames) if frames else spark.createDataFrame([], schema)
    return frame


def load_keyed(
    spark: SparkSession,
    schema: StructType,
    keyed: Mapping[str, Mapping[str, Sequence[str]]],
    column: str,
    *,
    names_files: bool,
) -> DataFrame:
    """A frame of the files of all keys, by the name of their format, with the key in the last column.

    `names_files` means that the session reports the file of a row, which a small broadcast join turns into keys: for 100 keys,
    Spark on a JVM takes 7 s, and 80 s for a plan with a relation per key. An unexpected spelling of a path is an error.
    """
    import pyspark.sql.functions as F

    found = {key: paths for key, paths in keyed.items() if paths}
    frame: DataFrame
    if not names_files or len(found) == 1:
        frame = united(
            [load_files(spark, schema, paths).withColumn(column, F.lit(key)) for key, paths in found.items()]
        )
        return frame
    # A union of relations has no `_metadata`, so each is of one format and one bucket.
    together: dict[tuple[str, str], dict[str, None]] = {}
    for of_key in found.values():
        for name, paths in of_key.items():
            for path in paths:
                together.setdefault((name, object_store_errors.bucket_of(path)), {})[path] = None
    rows = united(
        [
            load_files(spark, schema, {name: list(paths)}).withColumn(_FILE, F.col("_metadata.file_path"))
            for (name, _), paths in together.items()
        ]
    )
    pairs = [(told_as(path), key) for key, of_key in found.items() for paths in of_key.values() for path in paths]
    return with_keys_of(rows, _FILE, pairs, column, "Spark names another path than the one that it was given")


def with_keys_of(rows: DataFrame, found: str, pairs: Sequence[tuple[str, str]], column: str, wrong: str) -> DataFrame:
    """The rows with a key in the last column, in place of a column `found`; `pairs` has the keys of each of its values.

    A value that no pair has is an error in Spark, which begins with `wrong`.
    """
    import pyspark.sql.functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    schema = StructType([StructField(found, StringType()), StructField(column, StringType())])
    keys = F.broadcast(rows.sparkSession.createDataFrame(list(pairs), schema))
    unknown = F.raise_error(F.concat(F.lit(f"{wrong}: "), F.col(found)))
    known = F.when(F.col(column).isNull(), unknown).otherwise(F.col(column))
    frame: DataFrame = rows.join(keys, found, "left").withColumn(column, known).drop(found)
    return frame


def by_format(manifests: Sequence[Manifest], paths_of: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The files of instances, by the name of their format."""
    found: dict[str, list[str]] = {}
    for manifest in manifests:
        if paths := paths_of[manifest.instance_uuid]:
            found.setdefault(manifest.format, []).extend(paths)
    return found


def spark_paths(
    spark: SparkSession, warehouse: Warehouse, manifests: Sequence[Manifest], schema: StructType
) -> dict[str, list[str]]:
    """The listed files of each instance, which are read by `schema`, as this session can open them, fetched if need be.

    Raises `ListedFileLost`, `StorageTrouble`, `FilesOutOfReach`.
    """
    paths_of = {manifest.instance_uuid: file_paths(warehouse, manifest) for manifest in manifests}
    protocols = {uuid: storage.protocol_of(paths[0]) for uuid, paths in paths_of.items() if paths}
    setting = None if _S3.isdisjoint(protocols.values()) else spark.conf.get(S3A_SETTING, None)
    direct = {uuid for uuid, protocol in protocols.items() if reads_s3a(protocol, setting)}
    is_sail = (engine_name(spark) or "").startswith("Sail")
    if (reach := in_place(spark, warehouse)) is not None:
        _check_there(warehouse, manifests)
        readable = {m.instance_uuid: readable_paths(m, paths_of[m.instance_uuid], is_sail=is_sail) for m in manifests}
        named = {uuid: plain_names(paths, escapes=reach.names_files) for uuid, paths in readable.items()}
        found = {uuid: [reach.url_of(path) for path in paths] for uuid, paths in named.items()}
        _check_seen(spark, manifests, schema, found, f"{reach.url_of(warehouse.root)}/")
        return found
    others = [manifest for manifest in manifests if manifest.instance_uuid not in direct]
    copies = iter(local_paths(warehouse, others))
    paths_of |= {uuid: [s3a_uri(path) for path in paths_of[uuid]] for uuid in direct}
    for manifest in others:
        paths = readable_paths(manifest, list(islice(copies, len(manifest.files))), is_sail=is_sail)
        paths_of[manifest.instance_uuid] = plain_names(paths, escapes=True)
    _check_seen(spark, manifests, schema, paths_of, None)
    return paths_of


def _check_seen(
    spark: SparkSession,
    manifests: Sequence[Manifest],
    schema: StructType,
    paths_of: Mapping[str, Sequence[str]],
    probed: str | None,
) -> None:
    """Let a remote Spark count the rows of a file of each place except the probed place, once per session.

    Spark may not see the instances of an earlier warehouse or adopted files, and an engine may read a file that it does not see
    as if it had no rows. Raises `FilesOutOfReach`.
    """
    if (shown := engine_name(spark)) is None:
        return
    seen = places_read(spark)
    rows, paths, new = 0, dict[str, list[str]](), dict[str, str]()
    for manifest in manifests:
        for file, path in zip(manifest.files, paths_of[manifest.instance_uuid], strict=True):
            place = _place_of(path)
            is_probed = probed is not None and path.startswith(probed)
            if file.rows and not is_probed and place not in seen and place not in new:
                new[place] = path
                rows += file.rows
                paths.setdefault(manifest.format, []).append(path)
    if not new:
        return
    facts = {"spark": shown, "place": few_of(list(new))}
    try:
        found = load_files(spark, schema, paths).count()
    except Exception as error:  # The errors of PySpark, grpc and py4j have no common class.
        if is_lost(error):
            raise
        raise FilesOutOfReach(**facts, why=why_not_read(error)) from error
    if found != rows:
        raise FilesOutOfReach(**facts, why=f"it finds {found} of the {rows} rows of {few_of(list(new.values()))}")
    seen.update(new)


def _place_of(path: str) -> str:
    """What a session sees or does not see as a whole: a bucket, or on a disk the folder of a dataset or of adopted files."""
    folder, inside, _ = path.partition("/instance=")
    return object_store_errors.bucket_of(path) or (folder if inside else path.rpartition("/")[0])


def _check_there(warehouse: Warehouse, manifests: Sequence[Manifest]) -> None:
    """Raises `ListedFileLost`: a Spark may read a missing file as if it had no rows."""
    for manifest, lost in zip(manifests, missing_files_of(warehouse, manifests), strict=True):
        if lost:
            paths = dict(zip((file.uri for file in manifest.files), file_paths(warehouse, manifest), strict=True))
            raise errors.ListedFileLost(path=paths[lost[0]], why="it is not there, or has another size")


def reads_s3a(protocol: str | None, s3a_setting: str | None) -> bool:
    """Whether a session with that value of `S3A_SETTING` reads a warehouse of that protocol directly."""
    return protocol in _S3 and bool(s3a_setting)


def s3a_uri(url: str) -> str:
    """Hadoop's url of an object of S3."""
    return f"s3a://{url.partition('://')[2]}"


def read_arrow(warehouse: Warehouse, manifests: Sequence[Manifest], *, where: filters.Filter | None = None) -> pa.Table:
    """The rows as an Arrow table, without a Spark session. Raises `BadFilter`, too."""
    arrow_schema = arrow_schema_of(united_schema(manifests))
    table = files.read_table(warehouse, manifests, columns=arrow_schema)
    if where is not None:
        table = filters.matching_rows(table, where)
    return table if table.num_rows else arrow_schema.empty_table()


def no_rows(kind: FrameKind, session: Callable[[], SparkSession], *columns: str) -> Any:
    """A frame without rows, of text columns or of none; only a frame of Spark needs the session."""
    if kind is FrameKind.SPARK:
        return session().createDataFrame([], f"struct<{','.join(f'{column}:string' for column in columns)}>")
    import pyarrow as pa

    return from_arrow(pa.table({column: pa.array([], pa.string()) for column in columns}), kind)


def united(frames: Sequence[Any], *, allow_missing_columns: bool = False) -> Any:
    """The union by column name of `frames`: at least one, all of the same kind.

    Frames of Spark are united in pairs, and pairs of pairs: a plan of hundreds of levels ends the process of some servers.
    """
    if not hasattr(frames[0], "unionByName"):
        return united_in_memory(frames)
    left = list(frames)
    while len(left) > 1:
        pairs = zip(left[::2], left[1::2], strict=False)
        joined = [one.unionByName(other, allowMissingColumns=allow_missing_columns) for one, other in pairs]
        left = joined + left[2 * len(joined) :]
    return left[0]


def frame_type() -> type:
    """The class of Spark's frames."""
    from pyspark.sql import DataFrame

    return DataFrame
