"""From manifests to one frame.

Reading takes the files and the columns from manifests: no folder is listed, and no Spark job runs to find out
what the columns are. What lies in an object store is read from local copies, unless the session has been given
Hadoop's own way there. All of it may be called from many threads with one session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from databuild_dagster.spark.schemas import united_schema
from databuild_dagster.warehouse import Manifest, Warehouse, read_table
from databuild_dagster.warehouse.manifest import file_paths, local_paths
from databuild_dagster.warehouse.storage import protocol_of

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: With this set, the session is taken to have Hadoop's S3 classes, credentials and endpoint.
S3A_SETTING = "spark.hadoop.fs.s3a.impl"
_S3 = frozenset({"s3", "s3a"})


def read_instances(
    spark: SparkSession,
    warehouse: Warehouse,
    manifests: Sequence[Manifest],
    *,
    schema: StructType | None = None,
) -> DataFrame:
    """One frame of the rows of all instances. `schema` is theirs united, by name, unless given.

    Raises `NoSchema` for no manifests without a schema, `SchemasDiffer` for columns that cannot be united.
    """
    schema = schema or united_schema(manifests)
    paths = spark_paths(spark, warehouse, manifests)
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*(without_wildcards(path) for path in paths))


def spark_paths(spark: SparkSession, warehouse: Warehouse, manifests: Sequence[Manifest]) -> list[str]:
    """All listed files as this session can open them, in order; what has to be fetched for that is.

    Raises `ListedFileLost`, `StorageTrouble`.
    """
    protocol = protocol_of(warehouse.root)
    if protocol is not None and reads_s3a(protocol, spark.conf.get(S3A_SETTING, None)):
        return [s3a_uri(path) for manifest in manifests for path in file_paths(warehouse, manifest)]
    return local_paths(warehouse, manifests)


def reads_s3a(protocol: str, s3a_setting: str | None) -> bool:
    """Whether a session with that value of `S3A_SETTING` reads a warehouse of that protocol by itself."""
    return protocol in _S3 and bool(s3a_setting)


def s3a_uri(url: str) -> str:
    """The name that Hadoop has for an object of S3."""
    return f"s3a://{url.partition('://')[2]}"


def read_pandas(warehouse: Warehouse, manifests: Sequence[Manifest]) -> pd.DataFrame:
    """The same rows as pandas has them, without a Spark session."""
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow_schema = to_arrow_schema(united_schema(manifests), timezone="UTC")
    table = read_table(warehouse, manifests)
    if not table.num_rows:
        return arrow_schema.empty_table().to_pandas()
    return table.to_pandas()


def no_rows(spark: SparkSession | None, *columns: str) -> Any:
    """A frame without rows, of text columns or of none at all; pandas without a session."""
    if spark is not None:
        return spark.createDataFrame([], f"struct<{','.join(f'{column}:string' for column in columns)}>")
    import pandas as pd

    return pd.DataFrame({column: pd.Series(dtype="object") for column in columns})


def united(frames: Sequence[Any], *, allow_missing_columns: bool = False) -> Any:
    """At least one frame, all of Spark's or all of pandas', as one, by the names of their columns."""
    first, *others = frames
    if others and not hasattr(first, "unionByName"):
        import pandas as pd

        return pd.concat(frames, ignore_index=True)
    for frame in others:
        first = first.unionByName(frame, allowMissingColumns=allow_missing_columns)
    return first


def without_wildcards(path: str) -> str:
    """Spark takes a path for a pattern; a warehouse may well lie in a folder named `[old]`."""
    return "".join(f"\\{character}" if character in "{}[]*?\\" else character for character in path)


def frame_type() -> type:
    """The class of Spark's frames, for whoever asks others for one."""
    from pyspark.sql import DataFrame

    return DataFrame
