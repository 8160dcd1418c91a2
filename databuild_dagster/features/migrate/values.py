"""The kind of value that an expression has, as far as its source shows it: a frame and of which library, or something else.

A function is read from its first statement to its last, with a table from its variables to their kinds. `UNKNOWN` is an
answer: a report that guesses is worse than a report that asks. The table of libraries has the members that convert between
kinds.
"""

import ast
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from databuild_dagster.bindings.declare.parameters import ParameterKind
from databuild_dagster.features.migrate.annotations import KnownAnnotation, annotated
from databuild_dagster.features.migrate.modules import Function, Module, Project, keyword


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

#: Values that a single call makes a frame, the call and the frame.
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

#: Methods that store data, and methods of Spark's writer, `frame.write`.
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

#: Names of methods and attributes that only a single kind of frame has, to tell what a parameter without an annotation is.
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


#: Calls of the project's own functions that are followed.
MAX_DEPTH: Final = 3


class Values:
    """The variables of a function."""

    def __init__(self, project: Project, module: Module, function: Function, depth: int = 0) -> None:
        self._project = project
        self._module = module
        self._depth = depth
        self._of: dict[str, Value] = {}
        #: Every `return` and `yield` of the function itself, with the kind of its value.
        self.returned: list[tuple[ast.Return, Value]] = []
        self.yielded: list[tuple[ast.Yield | ast.YieldFrom, Value]] = []
        for argument in arguments_of(function):
            kind = annotated(project, module, argument.annotation)
            self._of[argument.arg] = _of_known(kind)
        self._read(function.body, is_certain=True)

    def _read(self, body: Iterable[ast.stmt], *, is_certain: bool) -> None:
        for statement in body:
            for node in _expressions(statement):
                if isinstance(node, (ast.Yield, ast.YieldFrom)):
                    self.yielded.append((node, Value.NOTHING if node.value is None else self.of(node.value)))
            match statement:
                case ast.Return(value=value):
                    self.returned.append((statement, Value.NOTHING if value is None else self.of(value)))
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._set(name, self.of(value), is_certain)
                case ast.Assign(targets=targets):
                    for target in targets:
                        self._forget(target)
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                    self._set(name, _of_known(annotated(self._project, self._module, annotation)), is_certain)
                case ast.For(target=target) | ast.AsyncFor(target=target):
                    self._forget(target)
                case ast.With(items=items) | ast.AsyncWith(items=items):
                    for item in items:
                        if item.optional_vars is not None:
                            self._forget(item.optional_vars)
            for inner, is_run in _blocks(statement):
                self._read(inner, is_certain=is_certain and is_run)

    def _set(self, name: str, value: Value, is_certain: bool) -> None:
        before = self._of.get(name)
        # A branch that may be left out gives another kind: both are possible.
        is_split = not is_certain and before not in (None, value, Value.NOTHING)
        self._of[name] = Value.UNKNOWN if is_split else value

    def _forget(self, target: ast.expr) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self._of[node.id] = Value.UNKNOWN

    def of(self, node: ast.expr) -> Value:
        """The kind of an expression's value."""
        match node:
            case ast.Name(id=name):
                return self._of.get(name, Value.UNKNOWN)
            case ast.Constant(value=None):
                return Value.NOTHING
            case ast.Dict() | ast.DictComp():
                return Value.DICT
            case ast.Tuple():
                return Value.TUPLE
            case ast.Constant() | ast.JoinedStr() | ast.List() | ast.Set() | ast.ListComp() | ast.SetComp():
                return Value.OTHER
            case ast.Compare() | ast.Lambda() | ast.GeneratorExp():
                return Value.UNKNOWN
            case ast.Await(value=value) | ast.NamedExpr(value=value):
                return self.of(value)
            case ast.IfExp(body=body, orelse=other):
                first, second = self.of(body), self.of(other)
                return first if first is second else Value.UNKNOWN
            case ast.BinOp(left=left, right=right):
                sides = {self.of(left), self.of(right)}
                return Value.OTHER if sides == {Value.OTHER} else Value.UNKNOWN
            case ast.Subscript(value=value, slice=place):
                return self._subscript(self.of(value), place)
            case ast.Attribute(value=value, attr=attr):
                return self._member(self.of(value), attr)
            case ast.Call():
                return self._call(node)
            case _:
                return Value.UNKNOWN

    @staticmethod
    def _subscript(of: Value, place: ast.expr) -> Value:
        match of, place:
            case ((Value.PANDAS | Value.POLARS), ast.Constant(value=str())):
                return Value.SERIES if of is Value.PANDAS else Value.OTHER
            case Value.PANDAS, ast.List() | ast.Compare() | ast.BinOp() | ast.UnaryOp() | ast.Slice():
                return Value.PANDAS
            case Value.LOCATOR, ast.Compare() | ast.Slice() | ast.BinOp():
                return Value.PANDAS
            case Value.PANDAS_GROUPS, ast.List():
                return Value.PANDAS_GROUPS
            case Value.PANDAS_GROUPS, ast.Constant(value=str()):
                return Value.SERIES
            case Value.SERIES, _:
                return Value.SERIES
            case _:
                return Value.UNKNOWN

    @staticmethod
    def _member(of: Value, name: str) -> Value:
        members = MEMBERS.get(of, {})
        if name in members:
            return members[name]
        if of is Value.SERIES and name in (
            "sum",
            "mean",
            "count",
            "agg",
            "max",
            "min",
            "value_counts",
            "str",
            "dt",
            "map",
        ):
            # Of groups it is a column, of a column a number.
            return Value.SERIES
        if of is Value.PANDAS_GROUPS and name in ("sum", "mean", "count", "max", "min", "first", "last"):
            return Value.PANDAS
        return members.get(..., Value.UNKNOWN)

    def _call(self, call: ast.Call) -> Value:
        full = self._project.full_name(self._module, call.func)
        if full is not None:
            if full in ("dagster.Output", "dagster.MaterializeResult"):
                value = wrapped_value(call, full)
                return Value.NO_VALUE if value is None else self.of(value)
            if full == "typing.cast" and call.args:
                return _of_known(annotated(self._project, self._module, call.args[0]))
            if full.startswith(("pyspark.sql.SparkSession.", "pyspark.sql.session.SparkSession.")):
                return Value.SESSION
            for name, value_kind in FUNCTIONS.items():
                if full == name or (name.endswith("_") and full.startswith(name)):
                    return value_kind
            if (defined := self._project.function(full)) is not None and self._depth < MAX_DEPTH:
                return returned_by(self._project, *defined, depth=self._depth + 1)
            if full in ("str", "int", "float", "bool", "len", "list", "sorted", "sum", "repr", "set"):
                return Value.OTHER
            if full == "dict":
                return Value.DICT
        if is_session_made_by_hand(self._project, self._module, call):
            return Value.SESSION
        match call.func:
            case ast.Attribute(value=value, attr=attr):
                return self._member(self.of(value), attr)
            case _:
                return Value.UNKNOWN


def is_session_made_by_hand(project: Project, module: Module, call: ast.Call) -> bool:
    """Whether a call opens a Spark session or context of its own."""
    match call.func:
        case ast.Attribute(value=inner, attr="getOrCreate" | "create" | "getActiveSession" | "active"):
            while isinstance(inner, (ast.Call, ast.Attribute)):
                if _names_session(project.full_name(module, inner)):
                    return True
                inner = inner.func if isinstance(inner, ast.Call) else inner.value
            return _names_session(project.full_name(module, inner))
        case _:
            full = project.full_name(module, call.func) or ""
            return full in ("pyspark.SparkContext", "pyspark.sql.SQLContext", "pyspark.context.SparkContext")


def _names_session(full: str | None) -> bool:
    return full is not None and full.startswith("pyspark.") and full.split(".")[-1] in ("SparkSession", "SparkContext")


def returned_by(project: Project, module: Module, function: Function, depth: int = 0) -> Value:
    """The kind that a function returns: as annotated, else as its `return`s show it."""
    if function.returns is not None:
        known = _of_known(annotated(project, module, function.returns))
        if known is not Value.UNKNOWN:
            return known
    values = Values(project, module, function, depth)
    if values.yielded or isinstance(function, ast.AsyncFunctionDef):
        return Value.UNKNOWN
    kinds = {kind for _, kind in values.returned}
    if not kinds:
        return Value.NOTHING
    return kinds.pop() if len(kinds) == 1 else Value.UNKNOWN


def wrapped_value(call: ast.Call, full: str) -> ast.expr | None:
    """The value inside of `Output(…)` or `MaterializeResult(…)`; None if it has none."""
    if (given := keyword(call, "value")) is not None:
        return given.value
    return call.args[0] if full == "dagster.Output" and call.args else None


def used_as(function: Function, parameter: str) -> Value:
    """The kind of frame that a parameter is used as, by the names of its methods; `UNKNOWN` if several or none fit."""
    used = {
        node.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == parameter
    }
    fitting = [kind for kind, names in TELLING.items() if used & names]
    return fitting[0] if len(fitting) == 1 else Value.UNKNOWN


def arguments_of(function: Function) -> list[ast.arg]:
    """The parameters that have a name of their own."""
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _of_known(known: KnownAnnotation) -> Value:
    if known.kind is ParameterKind.SPARK_SESSION:
        return Value.SESSION
    if known.kind is not None:
        return OF_KIND.get(known.kind, Value.UNKNOWN)
    if known.is_nothing:
        return Value.NOTHING
    return Value.OTHER if known.is_no_frame else Value.UNKNOWN


def _expressions(statement: ast.stmt) -> Iterable[ast.AST]:
    """The nodes of a statement without its blocks, functions, classes and lambdas."""
    waiting = [node for node in ast.iter_child_nodes(statement) if not isinstance(node, ast.stmt)]
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, (ast.ExceptHandler, ast.match_case, ast.Lambda)):
            continue
        yield node
        waiting[:0] = ast.iter_child_nodes(node)


def _blocks(statement: ast.stmt) -> Iterable[tuple[list[ast.stmt], bool]]:
    """The blocks of a statement, each with whether it certainly runs."""
    match statement:
        case ast.With(body=body) | ast.AsyncWith(body=body):
            yield body, True
        case ast.If(body=body, orelse=other):
            yield body, False
            yield other, False
        case (
            ast.For(body=body, orelse=other)
            | ast.AsyncFor(body=body, orelse=other)
            | ast.While(body=body, orelse=other)
        ):
            yield body, False
            yield other, False
        case ast.Try(body=body, handlers=handlers, orelse=other, finalbody=last):
            yield body, True
            for handler in handlers:
                yield handler.body, False
            yield other, False
            yield last, True
        case ast.Match(cases=cases):
            for case in cases:
                yield case.body, False
