"""An annotation as text becomes the kind of parameter that the package knows, by the rules of `declare.parameters`.

Dagster's classes are looked up in Dagster, classes of Spark and of frames by their names, the project's classes by their bases.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import dagster

import databuild_dagster
from databuild_dagster.bindings.declare.parameters import ParameterKind, kind_by_name, kind_of
from databuild_dagster.features.migrate.modules import MAX_STEPS, Module, Project


@dataclass(frozen=True)
class FrameLike:
    """The frame that stands for rows of a foreign class, and the calls that convert between the two."""

    kind: ParameterKind
    to_frame: str
    from_frame: str


@dataclass(frozen=True)
class KnownAnnotation:
    """What an annotation says."""

    #: The kind of argument; None if none fits, or if it is not known.
    kind: ParameterKind | None = None
    #: The annotation is there, and its class is certainly no frame and no tool of the package.
    is_no_frame: bool = False
    #: `None`.
    is_nothing: bool = False
    #: `X | None`, with the rest as the kind.
    is_optional: bool = False
    #: `Output[…]` or `MaterializeResult[…]` around it, or alone.
    is_wrapped: bool = False
    #: A class of rows that the package does not take, and the frame to write instead.
    like: FrameLike | None = None
    #: The same, where a person must decide: what to write instead.
    instead: str = ""
    #: There is no annotation, or it says nothing, such as `Any`.
    is_absent: bool = False
    #: It names a class by a string or `dagster.ResourceParam`, around an object that is no `ConfigurableResource`.
    is_resource_param: bool = False


ABSENT: Final = KnownAnnotation(is_absent=True)
_NO_FRAME: Final = KnownAnnotation(is_no_frame=True)

#: Classes that hold rows and are no frame of the package, by their full name.
_LIKE_FRAMES: Final[Mapping[str, FrameLike]] = {
    "polars.LazyFrame": FrameLike(ParameterKind.POLARS_FRAME, ".collect()", ".lazy()"),
    "pyspark.pandas.DataFrame": FrameLike(ParameterKind.SPARK_FRAME, ".to_spark()", ".pandas_api()"),
    "pyspark.pandas.frame.DataFrame": FrameLike(ParameterKind.SPARK_FRAME, ".to_spark()", ".pandas_api()"),
    "pandas.Series": FrameLike(ParameterKind.PANDAS_FRAME, ".to_frame()", '["…"]'),
}
#: Further classes, whose rows need a decision.
_HOLD_ROWS: Final[Mapping[str, str]] = {
    "pyspark.RDD": "a Spark DataFrame, by .toDF(…), has its rows",
    "pyspark.rdd.RDD": "a Spark DataFrame, by .toDF(…), has its rows",
    "geopandas.GeoDataFrame": "a pandas DataFrame with the geometry as text or bytes, such as .to_wkb(), has its rows",
}
#: Builtins and classes of the standard library that are no frame.
_PLAIN: Final = (
    *("str", "int", "float", "bool", "bytes", "complex", "list", "tuple", "dict", "set", "frozenset"),
    *("List", "Tuple", "Dict", "Set", "Mapping", "Sequence"),
)
_OF_STANDARD_LIBRARY: Final = ("datetime.", "pathlib.", "decimal.", "uuid.", "collections.", "io.")
#: Modules of classes that are models, arrays or clients.
_OF_NO_FRAMES: Final = ("numpy.", "sklearn.", "torch.", "xgboost.", "scipy.", "requests.", "matplotlib.", "plotly.")
_WRAPPERS: Final = ("dagster.Output", "dagster.MaterializeResult")


def annotated(project: Project, module: Module, node: ast.expr | None) -> KnownAnnotation:
    """What an annotation says."""
    match node:
        case None:
            return ABSENT
        case ast.Constant(value=None):
            return KnownAnnotation(is_nothing=True)
        case ast.Constant(value=str() as text):
            return _of_text(project, module, text)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _either(annotated(project, module, left), annotated(project, module, right))
        case ast.Subscript(value=outer, slice=inner):
            return _subscript(project, module, outer, inner)
        case _:
            return _of_class(project, project.full_name(module, node))


def _of_text(project: Project, module: Module, text: str) -> KnownAnnotation:
    try:
        return annotated(project, module, ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError):
        return KnownAnnotation()


def _either(first: KnownAnnotation, second: KnownAnnotation) -> KnownAnnotation:
    for one, other in ((first, second), (second, first)):
        if one.is_nothing:
            return KnownAnnotation(
                other.kind, other.is_no_frame, is_optional=True, like=other.like, instead=other.instead
            )
    return first if first == second else KnownAnnotation()


def _subscript(project: Project, module: Module, outer: ast.expr, inner: ast.expr) -> KnownAnnotation:
    full = project.full_name(module, outer) or ""
    name = full.rpartition(".")[2]
    if full in _WRAPPERS:
        within = annotated(project, module, inner)
        return KnownAnnotation(
            within.kind,
            within.is_no_frame,
            within.is_nothing,
            is_wrapped=True,
            like=within.like,
            instead=within.instead,
        )
    if full == "dagster.ResourceParam":
        return KnownAnnotation(is_resource_param=True)
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    match name:
        case "Optional":
            return _either(annotated(project, module, inner), KnownAnnotation(is_nothing=True))
        case "Union":
            known = [annotated(project, module, part) for part in parts]
            while len(known) > 1:
                known[:2] = [_either(*known[:2])]
            return known[0]
        case "Annotated":
            return annotated(project, module, parts[0])
        case "DataFrame" if full.startswith("pandera."):
            return KnownAnnotation(instead="a pd.DataFrame has its rows, and a blocking check may check its schema")
        case _:
            return _NO_FRAME if name in _PLAIN else _of_class(project, full or None)


def _of_class(project: Project, full: str | None, steps: int = MAX_STEPS) -> KnownAnnotation:
    if full is None:
        return KnownAnnotation()
    if full in ("typing.Any", "object", "Any"):
        return ABSENT
    package, _, name = full.rpartition(".")
    if package in ("dagster", "databuild_dagster"):
        return _of_dagster(full, package, name)
    if (kind := kind_by_name(package, name)) is not None:
        return KnownAnnotation(kind)
    if full in _LIKE_FRAMES:
        return KnownAnnotation(like=_LIKE_FRAMES[full])
    if full in _HOLD_ROWS:
        return KnownAnnotation(instead=_HOLD_ROWS[full])
    if full in _PLAIN or (package in ("typing", "collections.abc") and name in _PLAIN):
        return _NO_FRAME
    if full.startswith((*_OF_STANDARD_LIBRARY, *_OF_NO_FRAMES)):
        return _NO_FRAME
    if package.startswith("dagster_") and name.endswith("Resource"):
        # Dagster's own libraries name their ConfigurableResources so.
        return KnownAnnotation(ParameterKind.RESOURCE)
    if (defined := project.of_class(full)) is not None:
        return _of_project_class(project, *defined, steps)
    return KnownAnnotation()


def _of_dagster(full: str, package: str, name: str) -> KnownAnnotation:
    if full in _WRAPPERS:
        return KnownAnnotation(is_wrapped=True)
    found = getattr(dagster if package == "dagster" else databuild_dagster, name, None)
    kind = kind_of(found)
    return KnownAnnotation(kind, is_no_frame=kind is None and found is not None)


def _of_project_class(project: Project, module: Module, defined: ast.ClassDef, steps: int) -> KnownAnnotation:
    """By its bases; a class without known bases is the project's own and no frame."""
    if not steps:
        return KnownAnnotation()
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in defined.bases]
    known = [_of_class(project, project.full_name(module, base), steps - 1) for base in bases]
    for found in known:
        if found.kind is not None:
            return KnownAnnotation(found.kind)
    is_all_known = all(found.is_no_frame for found in known) or not known
    return _NO_FRAME if is_all_known else KnownAnnotation()
