"""The kinds of values that a migration knows, and the members of the libraries of frames that lead from one to another."""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from databuild_dagster.bindings.declare.parameters import ParameterKind


class Value(Enum):
    """The kinds of values that matter for a migration."""

    SPARK = "a Spark DataFrame"
    PANDAS = "a pandas DataFrame"
    POLARS = "a Polars DataFrame"
    ARROW = "an Arrow Table"
    #: A pandas column.
    SERIES = "a pandas Series"
    #: A frame of Polars that is not computed yet.
    LAZY = "a Polars LazyFrame"
    SESSION = "a Spark session"
    #: `spark.read` and its options.
    READER = "a Spark reader"
    #: What `groupBy` of Spark or `group_by` of Polars returns.
    SPARK_GROUPS = "groups of a Spark DataFrame"
    POLARS_GROUPS = "groups of a Polars frame"
    PANDAS_GROUPS = "groups of a pandas DataFrame"
    LAZY_GROUPS = "groups of a LazyFrame"
    #: `df.loc` of pandas.
    LOCATOR = "a locator of pandas"
    #: An `Output` or `MaterializeResult` without a value.
    NO_VALUE = "a result without a value"
    NOTHING = "None"
    #: A dict, from a display or a comprehension.
    DICT = "a dict"
    TUPLE = "a tuple"
    #: A number, a text, a list: certainly no frame.
    OTHER = "no frame"
    UNKNOWN = "unknown"

    @property
    def is_frame(self) -> bool:
        return self in OF_KIND.values()


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


OF_KIND: Final[Mapping[ParameterKind, Value]] = {
    ParameterKind.SPARK_FRAME: Value.SPARK,
    ParameterKind.PANDAS_FRAME: Value.PANDAS,
    ParameterKind.POLARS_FRAME: Value.POLARS,
    ParameterKind.ARROW_TABLE: Value.ARROW,
}

#: Values that one call makes a frame, the call and the frame.
TO_FRAMES: Final[Mapping[Value, tuple[str, Value]]] = {
    Value.LAZY: (".collect()", Value.POLARS),
    Value.SERIES: (".to_frame()", Value.PANDAS),
}

#: Functions of libraries by their full name, or the beginning of it.
FUNCTIONS: Final[Mapping[str, Value]] = {
    "pandas.DataFrame": Value.PANDAS,
    "pandas.Series": Value.SERIES,
    "pandas.concat": Value.PANDAS,
    "pandas.json_normalize": Value.PANDAS,
    "pandas.melt": Value.PANDAS,
    "pandas.merge": Value.PANDAS,
    "pandas.pivot_table": Value.PANDAS,
    "pandas.read_": Value.PANDAS,
    "polars.DataFrame": Value.POLARS,
    "polars.LazyFrame": Value.LAZY,
    "polars.from_": Value.POLARS,
    "polars.read_": Value.POLARS,
    "polars.scan_": Value.LAZY,
    "pyarrow.Table.from_": Value.ARROW,
    "pyarrow.concat_tables": Value.ARROW,
    "pyarrow.csv.read_csv": Value.ARROW,
    "pyarrow.parquet.read_table": Value.ARROW,
    "pyarrow.table": Value.ARROW,
}

_SPARK_OTHER: Final = _names(
    "collect count first head take tail toJSON toLocalIterator isEmpty show printSchema explain schema "
    "columns dtypes rdd createOrReplaceTempView createTempView createGlobalTempView write writeTo "
    "writeStream foreach foreachPartition approxQuantile sparkSession storageLevel"
)
_PANDAS_FRAME: Final = _names(
    "assign merge join drop dropna fillna rename reset_index set_index sort_values sort_index head tail "
    "copy astype query filter sample drop_duplicates explode melt pivot pivot_table applymap replace "
    "describe round nlargest nsmallest transpose reindex add_prefix add_suffix bfill ffill convert_dtypes "
    "infer_objects select_dtypes"
)
_PANDAS_OTHER: Final = _names(
    "to_dict to_csv to_json to_parquet to_string to_markdown to_sql to_excel to_pickle to_numpy values "
    "shape empty columns index iterrows itertuples to_records items"
)
_POLARS_OTHER: Final = _names(
    "height width shape columns schema dtypes to_dicts to_dict rows row item write_parquet write_csv "
    "write_json write_database get_column to_series to_numpy iter_rows is_empty glimpse"
)
_ARROW_FRAME: Final = _names(
    "append_column add_column cast combine_chunks drop drop_columns filter rename_columns select "
    "set_column slice sort_by take remove_column"
)

#: Methods that store data, and those of Spark's writer, `frame.write`.
WRITES: Final = _names(
    "to_parquet to_csv to_sql to_json to_pickle to_excel write_parquet write_csv write_database saveAsTable insertInto "
    "writeTo put_object upload_file upload_fileobj write_deltalake"
)
WRITES_OF_SPARK: Final = _names("parquet csv json orc text jdbc save")

#: What a method or an attribute gives, by the kind of its object; `...` is every other name.
MEMBERS: Final[Mapping[Value, Mapping[object, Value]]] = {
    Value.SESSION: {
        **dict.fromkeys(("createDataFrame", "sql", "table", "range"), Value.SPARK),
        **dict.fromkeys(("read", "readStream"), Value.READER),
        **dict.fromkeys(("newSession", "getActiveSession"), Value.SESSION),
    },
    Value.READER: {
        **dict.fromkeys(("format", "option", "options", "schema"), Value.READER),
        ...: Value.SPARK,
    },
    Value.SPARK: {
        "toPandas": Value.PANDAS,
        "toArrow": Value.ARROW,
        **dict.fromkeys(("groupBy", "groupby", "rollup", "cube"), Value.SPARK_GROUPS),
        **dict.fromkeys(_SPARK_OTHER, Value.OTHER),
        ...: Value.SPARK,
    },
    Value.SPARK_GROUPS: {"pivot": Value.SPARK_GROUPS, "cogroup": Value.SPARK_GROUPS, ...: Value.SPARK},
    Value.PANDAS: {
        **dict.fromkeys(_PANDAS_FRAME, Value.PANDAS),
        **dict.fromkeys(_PANDAS_OTHER, Value.OTHER),
        **dict.fromkeys(("loc", "iloc"), Value.LOCATOR),
        "groupby": Value.PANDAS_GROUPS,
        "T": Value.PANDAS,
    },
    Value.PANDAS_GROUPS: {"agg": Value.PANDAS, "ngroups": Value.OTHER},
    Value.SERIES: {**dict.fromkeys(("to_frame", "reset_index"), Value.PANDAS)},
    Value.POLARS: {
        "to_pandas": Value.PANDAS,
        "to_arrow": Value.ARROW,
        "lazy": Value.LAZY,
        **dict.fromkeys(("group_by", "group_by_dynamic", "rolling"), Value.POLARS_GROUPS),
        **dict.fromkeys(_POLARS_OTHER, Value.OTHER),
        ...: Value.POLARS,
    },
    Value.POLARS_GROUPS: {...: Value.POLARS},
    Value.LAZY: {"collect": Value.POLARS, "group_by": Value.LAZY_GROUPS, ...: Value.LAZY},
    Value.LAZY_GROUPS: {...: Value.LAZY},
    Value.ARROW: {
        "to_pandas": Value.PANDAS,
        **dict.fromkeys(_ARROW_FRAME, Value.ARROW),
        **dict.fromkeys(("to_pylist", "num_rows", "num_columns", "column_names", "schema", "nbytes"), Value.OTHER),
    },
    # Names that only one library has.
    Value.UNKNOWN: {
        "spark_session": Value.SESSION,
        **dict.fromkeys(
            ("createDataFrame", "withColumn", "withColumnRenamed", "selectExpr", "unionByName"), Value.SPARK
        ),
        **dict.fromkeys(("toPandas", "to_pandas", "fetchdf", "fetch_df"), Value.PANDAS),
        "fetch_arrow_table": Value.ARROW,
    },
}

#: Names of methods and attributes that only one kind of frame has, to tell what a parameter without an annotation is.
TELLING: Final[Mapping[Value, frozenset[str]]] = {
    Value.SPARK: frozenset(
        _names(
            "withColumn withColumnRenamed withColumns selectExpr groupBy orderBy unionByName unionAll union "
            "toPandas crossJoin dropDuplicates createOrReplaceTempView rdd printSchema repartition coalesce cache "
            "persist write"
        )
    ),
    Value.PANDAS: frozenset(
        _names(
            "iterrows itertuples loc iloc groupby merge assign sort_values reset_index set_index to_csv "
            "to_parquet to_dict apply values astype query isna isnull notna pivot_table nlargest to_sql to_json"
        )
    ),
    Value.POLARS: frozenset(
        ["with_columns", "iter_rows", "lazy", "write_parquet", "write_csv", "with_row_index", "to_dicts"]
    ),
    Value.ARROW: frozenset(["to_pylist", "num_rows", "append_column", "set_column", "combine_chunks", "column_names"]),
}
