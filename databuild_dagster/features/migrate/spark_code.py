"""How a project uses Spark: sessions made by hand, what only a JVM has, and functions whose return type is a text."""

import ast
from collections.abc import Iterator
from typing import Final

from databuild_dagster.features.migrate.findings import Action, Finding
from databuild_dagster.features.migrate.modules import DecoratedFunction, Module, Project, calls_in, keyword
from databuild_dagster.features.migrate.values import Value, Values, is_session_made_by_hand
from databuild_dagster.spark.at_import import type_as_object

#: Members that a client's session and frame do not have.
_OF_A_JVM: Final = frozenset({"sparkContext", "spark_context", "rdd", "_jvm", "_jsc", "_jdf", "toJSON"})
_NEEDS_JVM: Final = (
    'the mode shared has no JVM in this process; give DatabuildSpark(mode="classic") to build_definitions, or avoid it'
)
#: Makers of Python functions for Spark, with the place of the return type among the arguments: as a decorator, and with a function.
_MAKERS: Final = frozenset({"udf", "pandas_udf", "udtf", "arrow_udf"})


def spark_findings(
    project: Project, asset: DecoratedFunction, parameters: frozenset[str], values: Values
) -> Iterator[Finding]:
    """Sessions that the function opens by itself, and what it needs a JVM for."""
    module, function = asset.module, asset.function
    assigned = {id(node.value): node for node in ast.walk(function) if isinstance(node, ast.Assign)}
    opened = [
        node for node in ast.walk(function) if isinstance(node, ast.expr) and _opens(project, module, node, values)
    ]
    outermost = [call for call in opened if not any(call in ast.walk(other) for other in opened if other is not call)]
    if outermost and "spark" not in parameters:
        write = "the function with a further parameter, `spark: SparkSession`"
        found = f"def {function.name}(…)"
        why = "databuild opens the session; its settings are those of build_definitions(spark=…)"
        yield module.finding(Action.CHANGE, function, found=found, write=write, why=why, only_first=True)
    for node in outermost:
        match assigned.get(id(node)):
            case ast.Assign(targets=[ast.Name(id="spark")]) as statement:
                yield module.finding(Action.REMOVE, statement, why="it is the parameter spark")
            case _:
                yield module.finding(Action.CHANGE, node, write="spark", why="it is the parameter spark")
        if (resource := _resource_of(node)) in required_keys(asset):
            given = keyword(asset.call, "required_resource_keys")
            assert given is not None
            action = Action.REMOVE if required_keys(asset) == {resource} else Action.CHANGE
            yield module.finding(action, given, write=f"the keys without {resource!r}", why="it was for the session")
    for attribute in ast.walk(function):
        if isinstance(attribute, ast.Attribute) and attribute.attr in _OF_A_JVM and _is_of_spark(attribute, values):
            yield module.finding(Action.DECIDE, attribute, write=_NEEDS_JVM, why=f"{attribute.attr} needs a JVM")


def required_keys(asset: DecoratedFunction) -> set[str]:
    """The resources of `required_resource_keys`, as far as the source shows them."""
    given = keyword(asset.call, "required_resource_keys")
    nodes = () if given is None else ast.walk(given.value)
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def _resource_of(node: ast.expr) -> str:
    """The key in `context.resources.KEY.spark_session`."""
    match node:
        case ast.Attribute(value=ast.Attribute(value=ast.Attribute(attr="resources"), attr=key), attr="spark_session"):
            return key
        case _:
            return ""


def _opens(project: Project, module: Module, node: ast.expr, values: Values) -> bool:
    if isinstance(node, ast.Call):
        return _opens_session(project, module, node, values)
    return bool(_resource_of(node))


def _opens_session(project: Project, module: Module, call: ast.Call, values: Values) -> bool:
    """By itself, or through a function of the project."""
    if is_session_made_by_hand(project, module, call):
        return True
    is_helper = project.function(project.full_name(module, call.func)) is not None
    return is_helper and values.of(call) is Value.SESSION


def _is_of_spark(node: ast.Attribute, values: Values) -> bool:
    return node.attr not in ("rdd", "toJSON") or values.of(node.value) in (Value.SPARK, Value.SESSION)


def module_findings(project: Project, module: Module) -> Iterator[Finding]:
    """Sessions that a module opens at import, and Python functions whose type is a text there."""
    at_import = list(_run_at_import(module.source.tree.body))
    calls = {id(node) for statement in at_import for node in ast.walk(statement)}
    for call, full in calls_in(project, module):
        if id(call) in calls and full.startswith("pyspark.sql.") and full.rpartition(".")[2] in _MAKERS:
            yield from _text_types(module, call)
    for statement in at_import:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and is_session_made_by_hand(project, module, node):
                write = "remove it, and give `spark: SparkSession` to each function that uses it"
                why = "it opens a session when the module is imported, beside that of databuild"
                yield module.finding(Action.DECIDE, node, write=write, why=why)


def _run_at_import(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """What runs when a module is imported: its statements, and the decorators of its functions."""
    for statement in body:
        match statement:
            case ast.FunctionDef(decorator_list=decorators) | ast.AsyncFunctionDef(decorator_list=decorators):
                yield from decorators
            case ast.ClassDef(body=inner, decorator_list=decorators):
                yield from decorators
                yield from _run_at_import(inner)
            case ast.If(test=test, body=inner, orelse=other):
                if not _is_main(test):
                    yield from _run_at_import(inner)
                yield from _run_at_import(other)
            case ast.Try(body=inner, handlers=handlers, orelse=other, finalbody=last):
                yield from _run_at_import([*inner, *(s for handler in handlers for s in handler.body), *other, *last])
            case ast.With(body=inner) | ast.For(body=inner):
                yield from _run_at_import(inner)
            case _:
                yield statement


def _is_main(test: ast.expr) -> bool:
    match test:
        case ast.Compare(left=ast.Name(id="__name__")):
            return True
        case _:
            return False


def _text_types(module: Module, call: ast.Call) -> Iterator[Finding]:
    given = keyword(call, "returnType")
    candidates = [given.value] if given is not None else call.args[:2]
    for argument in candidates:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else "udf"
            yield module.finding(
                Action.CHANGE,
                argument,
                write=type_as_object(argument.value),
                why=f"{name} with a type as text needs a session, and a module has none when it is imported",
            )
