"""The parameters of an asset's function: upstreams, tools, and mistakes.

Classes of Spark and pandas are recognized by their names, so that importing a file of assets imports neither. A string
annotation is resolved in the scope of the function.
"""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, Final

from dagster import AssetExecutionContext, AssetsDefinition, Config, MaterializeResult, OpExecutionContext, Output
from dagster._config.pythonic_config import ConfigurableResourceFactory

from databuild_dagster.bindings.declare.build_context import BuildContext
from databuild_dagster.bindings.declare.outcomes import Empty
from databuild_dagster.spark.memory_frames import FrameKind, frame_kind, frame_kind_by_name


class ParameterKind(Enum):
    """The kind of argument that a parameter of an asset's function gets."""

    #: The upstream asset of that name, as a Spark frame.
    SPARK_FRAME = "Spark DataFrame"
    #: The upstream asset of that name, as a pandas frame.
    PANDAS_FRAME = "pandas DataFrame"
    #: The same as a Polars frame.
    POLARS_FRAME = "Polars DataFrame"
    #: The same as an Arrow table.
    ARROW_TABLE = "Arrow Table"
    #: The session.
    SPARK_SESSION = "SparkSession"
    #: The resource with the session, for code written for dagster-pyspark.
    SPARK_RESOURCE = "PySparkResource"
    #: The build, with its refs and its log.
    CONTEXT = "BuildContext"
    #: The Dagster resource under the parameter's name.
    RESOURCE = "ConfigurableResource"
    #: The run's configuration.
    CONFIG = "Config"

    @property
    def is_input(self) -> bool:
        return self.frame is not None

    @property
    def frame(self) -> FrameKind | None:
        """The kind of frame; None for a tool."""
        return _FRAMES.get(self)


_FRAMES = {
    ParameterKind.SPARK_FRAME: FrameKind.SPARK,
    ParameterKind.PANDAS_FRAME: FrameKind.PANDAS,
    ParameterKind.POLARS_FRAME: FrameKind.POLARS,
    ParameterKind.ARROW_TABLE: FrameKind.ARROW,
}
_OF_FRAME = {frame: kind for kind, frame in _FRAMES.items()}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter with its kind and its resolved class."""

    name: str
    kind: ParameterKind
    annotation: type


class InvalidAsset(TypeError):
    """An asset cannot work as it is written. Raised at import, with the names of the asset and the parameter."""


#: Of a function that returns nothing.
STAYS_PLAIN = " A function that stores its data itself stays a plain @asset, beside the others in build_definitions."

#: What an annotation of a parameter may be.
ALLOWED = (
    "a frame of Spark, pandas, Polars or Arrow (the upstream asset of that name), SparkSession, BuildContext, "
    "a ConfigurableResource, or `config:` with a dagster.Config"
)

#: Dagster's contexts too, for functions that were written for `@asset`: they get a `BuildContext`, which has the same names.
_CONTEXTS = (BuildContext, AssetExecutionContext, OpExecutionContext)
#: The name by which Dagster knows a context without an annotation.
_CONTEXT = "context"

#: Results with a frame inside. Their class alone does not say which.
_WRAPPERS = (Output, MaterializeResult)

#: Other classes than frames by the start of their module and their name. A subclass is recognized by its bases.
_BY_NAME = (
    ("pyspark.sql", "SparkSession", ParameterKind.SPARK_SESSION),
    ("dagster_pyspark", "LazyPySparkResource", ParameterKind.SPARK_RESOURCE),
    ("dagster_pyspark", "PySparkResource", ParameterKind.SPARK_RESOURCE),
)


class Returns(Enum):
    """The result that a function must return, as far as an annotation shows it."""

    #: A frame, or `EMPTY`.
    FRAME = "a frame of Spark, pandas, Polars or Arrow (or EMPTY)"
    #: A frame for each output, by the output's name.
    DICT = "a dict, from each output's name to its DataFrame"
    #: Whether the instance passes. Its annotation is not checked.
    VERDICT = "a verdict"


def parameters_of(
    function: Callable[..., Any],
    local_names: Mapping[str, Any],
    returns: Returns = Returns.FRAME,
    *,
    name: str | None = None,
    ins: Mapping[str, object] | None = None,
) -> tuple[Parameter, ...]:
    """Every parameter of an asset's function; `local_names` are the names in its scope. Raises `InvalidAsset`.

    `name` is the asset's in messages, the function's unless given. `**inputs` are a parameter for each further name in `ins`.
    """
    asset = name or str(getattr(function, "__name__", repr(function)))
    _refuse_async_and_generators(function, asset)
    hints = _resolved_annotations(function, local_names, asset)
    _check_return(asset, hints, returns)
    written = inspect.signature(function).parameters
    found: list[Parameter] = []
    for parameter in written.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD and ins is not None:
            rest = _parameter(asset, parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY), hints)
            if not rest.kind.is_input:
                raise InvalidAsset(
                    f"Parameter '**{rest.name}' of asset {asset!r} is no frame; ins= fills it with inputs."
                )
            found += [replace(rest, name=given) for given in ins if given not in written]
        else:
            found.append(_parameter(asset, parameter, hints))
    return tuple(found)


def name_of(function: Any, name: str | None) -> str:
    """The given name, or that of the function. Raises `InvalidAsset` for what is no function."""
    if isinstance(function, AssetsDefinition):
        of = name or function.node_def.name if function.is_executable else name
        raise InvalidAsset(
            f"Asset {of!r} has two decorators of assets; keep @databuild_asset alone, with the options of both."
        )
    if isinstance(function, str):
        raise InvalidAsset(f"Asset {function!r} has no function; write @databuild_asset(name={function!r}) above one.")
    if isinstance(function, partial) or not inspect.isroutine(function):
        kind = type(function)
        what = "a class" if kind is type else f"a {kind.__module__}.{kind.__qualname__}"
        named = getattr(function, "__name__", getattr(getattr(function, "func", None), "__name__", "?"))
        raise InvalidAsset(
            f"Asset {name or named!r} is given {what}, which is no function; "
            "write a function with annotated parameters that calls it."
        )
    return str(function.__name__) if name is None else name


def kind_of(annotation: Any) -> ParameterKind | None:
    """The kind of an annotation, None if no argument fits it."""
    if not isinstance(annotation, type):
        return None
    if issubclass(annotation, _CONTEXTS):
        return ParameterKind.CONTEXT
    if (frame := frame_kind(annotation)) is not None:
        return _OF_FRAME[frame]
    for base in annotation.__mro__:
        if (kind := kind_by_name(base.__module__, base.__name__)) is not None:
            return kind
    if issubclass(annotation, ConfigurableResourceFactory):
        return ParameterKind.RESOURCE
    if issubclass(annotation, Config):
        return ParameterKind.CONFIG
    return None


def kind_by_name(module: str, name: str) -> ParameterKind | None:
    """The kind of a class of Spark's or of frames by its name alone, for source text; None for any other class."""
    if (frame := frame_kind_by_name(module, name)) is not None:
        return _OF_FRAME[frame]
    for known_module, known_name, kind in _BY_NAME:
        if name == known_name and (module == known_module or module.startswith(f"{known_module}.")):
            return kind
    return None


def _refuse_async_and_generators(function: Callable[..., Any], name: str) -> None:
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidAsset(f"Asset {name!r} is an async function; write a plain one, its partitions run in threads.")
    if inspect.isgeneratorfunction(function):
        raise InvalidAsset(f"Asset {name!r} yields; return one frame instead, databuild reports the build to Dagster.")


def _resolved_annotations(function: Callable[..., Any], local_names: Mapping[str, Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, localns=dict(local_names))
    except NameError as error:
        raise InvalidAsset(
            f"An annotation of asset {name!r} names {error.name!r}, which is not known there; "
            "import it in that module, and not only for type checking."
        ) from error


def _parameter(asset: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Parameter:
    where = f"Parameter {parameter.name!r} of asset {asset!r}"
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        raise InvalidAsset(
            f"{where} takes any number of arguments; name each upstream asset as a parameter, or in ins= for `**inputs: DataFrame`."
        )
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise InvalidAsset(f"{where} is positional-only; parameters are filled by name.")
    if parameter.name == _CONTEXT and _CONTEXT not in hints:
        return Parameter(_CONTEXT, ParameterKind.CONTEXT, BuildContext)
    if parameter.name not in hints:
        raise InvalidAsset(f"{where} has no annotation; write {ALLOWED}.")
    annotation = hints[parameter.name]
    kind = kind_of(annotation)
    if kind is None:
        raise InvalidAsset(f"{where} is annotated {_shown(annotation)}, which cannot be filled; write {ALLOWED}.")
    if kind is ParameterKind.CONFIG and parameter.name != "config":
        raise InvalidAsset(f"{where} is a Config; Dagster knows it only under the name 'config'.")
    if kind.is_input and parameter.default is not inspect.Parameter.empty:
        raise InvalidAsset(f"{where} has a default, but an input is always there; remove `= {parameter.default!r}`.")
    return Parameter(parameter.name, kind, annotation)


def _check_return(asset: str, hints: Mapping[str, Any], returns: Returns) -> None:
    """Refuse a wrong return annotation: the first build would find it only after Spark's work."""
    if "return" not in hints or returns is Returns.VERDICT:
        return
    annotation = hints["return"]
    origin = typing.get_origin(annotation)
    if returns is Returns.DICT:
        whole = origin or annotation
        fits = isinstance(whole, type) and (issubclass(whole, Mapping) or whole is Empty)
    else:
        options = (annotation,) if origin is None or origin in _WRAPPERS else typing.get_args(annotation)
        fits = bool(options) and all(option is Empty or _is_frame(option) for option in options)
    if not fits:
        raise InvalidAsset(
            f"Asset {asset!r} is annotated to return {_shown(annotation)}; it must return {returns.value}."
            f"{STAYS_PLAIN if annotation is type(None) else ''}"
        )


def _is_frame(annotation: Any) -> bool:
    """Whether it is a class of frames, or Dagster's wrapper around such a class."""
    if annotation in _WRAPPERS:
        return True
    if typing.get_origin(annotation) in _WRAPPERS:
        return all(option is Empty or _is_frame(option) for option in typing.get_args(annotation))
    kind = kind_of(annotation)
    return kind is not None and kind.is_input


def _shown(annotation: Any) -> str:
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__qualname__
    return str(annotation).replace("typing.", "")


#: The largest number of a setting: what the integer column of each database holds; of seconds 68 years.
MAX_NUMBER: Final = 2**31 - 1


def why_out_of_bounds(value: float, least: int) -> str:
    """The bound that a number does not keep, in words; empty if it keeps both. NaN keeps none."""
    if not value >= least:
        return f"it must be at least {least}"
    return "" if value <= MAX_NUMBER else f"it must be at most {MAX_NUMBER:,}"
