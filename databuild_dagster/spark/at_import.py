"""Let a project's modules make columns, windows and Python functions for Spark before a session is there.

PySpark has two of each: for a JVM of this process (classic), and for a client (Connect). `F.col`, `F.udf` and `Window` decide when
they are called, and take classic without a session, which then raises or makes what a client refuses. A project's modules are
imported before its first session, so here such a call makes a client's column or window, which the mode `shared` and every Connect
server take. A Python function is made again for the other kind when it is called there. PySpark cannot make a classic column of a
client's: `failures` says so. (decision 0043)"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import FrameType, ModuleType
from typing import Any, Final

from databuild_dagster.spark.errors import ReturnTypeTooEarly
from databuild_dagster.spark.pyspark_names import condition_of, has_jvm

#: The modules whose functions PySpark sends to a client by `is_remote`, and that make something without a session. The ways to a
#: session are sent by it too, and stay as they are.
_MAKERS: Final = ("pyspark.sql.functions", "pyspark.sql.window")

_NO_SESSION: Final = ("SESSION_OR_CONTEXT_NOT_EXISTS", "NO_ACTIVE_OR_DEFAULT_SESSION")
#: The words of a RuntimeError for the same before PySpark 4.0.
_NO_SESSION_WORDS: Final = "SparkContext or SparkSession should be created first"

#: The module of each kind of Python function, the same function's module for the other kind of session, and its class.
_TWINS: Final[Mapping[str, tuple[str, str]]] = {
    "pyspark.sql.udf": ("pyspark.sql.connect.udf", "UserDefinedFunction"),
    "pyspark.sql.connect.udf": ("pyspark.sql.udf", "UserDefinedFunction"),
    "pyspark.sql.udtf": ("pyspark.sql.connect.udtf", "UserDefinedTableFunction"),
    "pyspark.sql.connect.udtf": ("pyspark.sql.udtf", "UserDefinedTableFunction"),
}

#: The attribute in which a function keeps its twin, which holds what a session knows of it.
_TWIN: Final = "_databuild_twin"


def allow_before_sessions() -> None:
    """Change PySpark's choice between its two kinds in this process, now or when PySpark is imported.

    A second call changes nothing.
    """
    if any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        return
    changes = {"pyspark.sql.utils": _prefer_client, **dict.fromkeys(_TWINS, _follow_session)}
    sys.meta_path.insert(0, _AfterImport(changes))
    for name, change in changes.items():
        if name in sys.modules:
            change(sys.modules[name])


# Columns and windows


def _prefer_client(utils: ModuleType) -> None:
    original: Callable[[], bool] = utils.__dict__["is_remote"]

    @wraps(original)
    def is_remote() -> bool:
        if original():
            return True
        return _makes_something(sys._getframe(1)) and not has_jvm() and _can_be_client()

    utils.__dict__["is_remote"] = is_remote


def _makes_something(caller: FrameType) -> bool:
    """Whether a function of `_MAKERS` asks: PySpark wraps each as `f`."""
    asked_for = caller.f_locals.get("f")
    return str(getattr(asked_for, "__module__", "")).startswith(_MAKERS)


@lru_cache
def _can_be_client() -> bool:
    """Whether what a client needs (gRPC) is installed."""
    try:
        import pyspark.sql.connect.functions  # noqa: F401
    except ImportError:
        return False
    return True


# Python functions


def _follow_session(module: ModuleType) -> None:
    other, name = _TWINS[module.__name__]
    kind = getattr(module, name)
    call = kind.__call__

    @wraps(call)
    def call_twin(function: Any, *args: Any, **named: Any) -> Any:
        is_client = ".connect." in module.__name__
        if is_client == _in_client(default=is_client):
            return call(function, *args, **named)
        return _twin_of(function, other, name)(*args, **named)

    kind.__call__ = call_twin
    if hasattr(kind, "_wrapped"):
        kind._wrapped = _read_type(kind._wrapped)


def _in_client(default: bool) -> bool:
    """Whether this process's sessions are clients; the default before its first session."""
    if has_jvm():
        return False
    from pyspark.sql.utils import is_remote

    return is_remote() or default


def _twin_of(function: Any, module: str, name: str) -> Any:
    """The same function for the other kind of session."""
    twin = getattr(function, _TWIN, None)
    if twin is None or twin.deterministic != function.deterministic:
        kind = getattr(__import__(module, fromlist=[name]), name)
        twin = kind(
            function.func,
            returnType=_return_type_of(function),
            name=function._name,
            evalType=function.evalType,
            deterministic=function.deterministic,
        )
        setattr(function, _TWIN, twin)
    return twin


def _return_type_of(function: Any) -> Any:
    """A type, or its text that Spark has still to read. A client's function of PySpark 3.5 has no private name for it."""
    found = function._returnType if hasattr(function, "_returnType") else function.returnType
    return getattr(found, "data_type_string", found)


def _read_type(wrapped: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function's decoration, which asks Spark to read a return type that is a text. Raises `ReturnTypeTooEarly`."""

    @wraps(wrapped)
    def decorated(function: Any) -> Any:
        from pyspark.errors import PySparkException

        try:
            return wrapped(function)
        except (PySparkException, RuntimeError) as error:
            text = _return_type_of(function)
            if not isinstance(text, str) or not _lacks_session(error):
                raise
            module = getattr(function.func, "__module__", None)
            raise ReturnTypeTooEarly(
                function=f"{module}.{function._name}",
                type=function._returnType,
                instead=type_as_object(function._returnType),
            ) from error

    return decorated


def _lacks_session(error: Exception) -> bool:
    from pyspark.errors import PySparkException

    if isinstance(error, PySparkException):
        return condition_of(error) in _NO_SESSION
    return _NO_SESSION_WORDS in str(error)


#: The names of Spark's SQL for the types that have no part.
_TYPES: Final[Mapping[str, str]] = {
    "string": "StringType()",
    "int": "IntegerType()",
    "integer": "IntegerType()",
    "long": "LongType()",
    "bigint": "LongType()",
    "short": "ShortType()",
    "float": "FloatType()",
    "double": "DoubleType()",
    "boolean": "BooleanType()",
    "binary": "BinaryType()",
    "date": "DateType()",
    "timestamp": "TimestampType()",
}


def type_as_object(text: str) -> str:
    """The object of `pyspark.sql.types` for a type that is a text, or its beginning where the type has parts."""
    return _TYPES.get(text.strip().lower(), "StructType([...])" if " " in text.strip() else "ArrayType(...)")


# After an import


class _AfterImport(MetaPathFinder):
    """Finds no module itself: it changes some after they are imported."""

    def __init__(self, changes: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self._changes = dict(changes)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        change = self._changes.pop(name, None)  # The search below comes here again, and passes.
        if change is None:
            return None
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        spec.loader = _Changing(spec.loader, change)
        return spec


class _Changing(Loader):
    """A module's own loader, and a change after it. What else is asked of it, such as the source, the loader answers."""

    def __init__(self, loader: Loader, change: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._change = change

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._change(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
