"""The members of the context that a function uses, by the table `INSTEAD` of `build_context` that the `BuildContext` itself has.

The project's functions that get the context are read too. They may get Dagster's context as well, from assets that stay plain.
"""

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from databuild_dagster.bindings.declare.build_context import INSTEAD, BuildContext
from databuild_dagster.features.migrate.findings import Action, Finding
from databuild_dagster.features.migrate.modules import Function, Module, Project
from databuild_dagster.features.migrate.values import arguments_of

#: Functions that use no member.
_HARMLESS: Final = ("isinstance", "getattr", "hasattr", "print", "str", "repr", "type", "id")
#: Functions that are followed from one asset; more are not worth their time.
MAX_HELPERS: Final = 200


def context_findings(project: Project, module: Module, function: Function, context: str) -> Iterator[Finding]:
    """Every use of a member that a build does not have, and the functions of others that get the context."""
    yield from _of_members(module, function, context, is_shared=False)
    unread = dict[str, ast.Call]()
    for call in _calls_with(function, context):
        if project.function(full := project.full_name(module, call.func)) is None and full not in _HARMLESS:
            unread.setdefault(module.text(call.func), call)
    for name, call in unread.items():
        write = f"look whether {name} uses a member that BuildContext does not have"
        why = "it gets a BuildContext, and is not read here"
        yield module.finding(Action.NOTE, call, found=f"{name}(…)", write=write, why=why, only_first=True)


def helper_findings(project: Project, users: Iterable[tuple[Module, Function, str]]) -> Iterator[Finding]:
    """The same for the project's functions that get the context of these functions, each function once."""
    waiting = [found for user in users for found in _helpers(project, *user)]
    seen = set[tuple[int, str]]()
    while waiting and len(seen) < MAX_HELPERS:
        module, function, context = waiting.pop()
        if (id(function), context) in seen:
            continue
        seen.add((id(function), context))
        yield from _of_members(module, function, context, is_shared=True)
        waiting += _helpers(project, module, function, context)


def _of_members(module: Module, function: Function, context: str, *, is_shared: bool) -> Iterator[Finding]:
    called = {id(node.func): node for node in ast.walk(function) if isinstance(node, ast.Call)}
    for node in ast.walk(function):
        match node:
            case ast.Attribute(
                value=ast.Attribute(value=ast.Name(id=name), attr="partition_key"), attr="keys_by_dimension"
            ) if name == context:
                why = "the partition key is text: a key of each dimension, in the order of their names, joined by |"
                yield module.finding(Action.DECIDE, node, write=f'{context}.partition_key.split("|")', why=why)
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name == context:
                if not hasattr(BuildContext, attr):
                    yield _of_member(module, called.get(id(node), node), attr, context, is_shared=is_shared)


def _of_member(module: Module, node: ast.AST, attr: str, context: str, *, is_shared: bool) -> Finding:
    whole = f"{context}.dagster_context.{attr}"
    if is_shared:
        whole = f'getattr({context}, "dagster_context", {context}).{attr}'
    if attr not in INSTEAD:
        why = "it concerns the whole Dagster run, which may build many partitions"
        return module.finding(Action.CHANGE, node, write=whole, why=why)
    return module.finding(Action.CHANGE, node, write=INSTEAD[attr], why=f"of the whole Dagster run it is {whole}")


def _helpers(
    project: Project, module: Module, function: Function, context: str
) -> Iterator[tuple[Module, Function, str]]:
    """The project's functions that a function gives its context to, each with the parameter that gets it."""
    for call in _calls_with(function, context):
        called = project.function(project.full_name(module, call.func))
        if called is None:
            continue
        parameters = [argument.arg for argument in arguments_of(called[1])]
        names = [given.arg for given in call.keywords if _is(given.value, context)]
        names += [name for name, given in zip(parameters, call.args, strict=False) if _is(given, context)]
        for name in names:
            if name is not None:
                yield *called, name


def _calls_with(function: Function, context: str) -> Iterator[ast.Call]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and any(
            _is(given, context) for given in (*node.args, *(word.value for word in node.keywords))
        ):
            yield node


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
