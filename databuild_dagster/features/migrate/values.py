"""The kind of value that an expression has, as far as its source shows it: a frame and of which library, or something else.

A function is read from its first statement to its last, with a table from its variables to their kinds. `UNKNOWN` is an
answer: a report that guesses is worse than one that asks.
"""

import ast
from collections.abc import Iterable
from typing import Final

from databuild_dagster.bindings.declare.parameters import ParameterKind
from databuild_dagster.features.migrate.annotations import KnownAnnotation, annotated
from databuild_dagster.features.migrate.libraries import FUNCTIONS, MEMBERS, OF_KIND, TELLING, Value
from databuild_dagster.features.migrate.modules import Function, Module, Project, keyword

#: Calls of the project's own functions that are followed.
MAX_DEPTH: Final = 3


class Values:
    """The variables of one function."""

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
    return Value.NOTHING if not kinds else kinds.pop() if len(kinds) == 1 else Value.UNKNOWN


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
