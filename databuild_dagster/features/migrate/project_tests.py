"""The tests of a project: the places that no longer fit once its assets are databuild assets.

A call of an asset returns one value then, a dict from a multi-asset; an error of its function is the cause of a `NotBuilt`; and the
output of its node has a name.
"""

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from databuild_dagster.features.migrate.findings import Action, Finding
from databuild_dagster.features.migrate.modules import DecoratedFunction, Module, Project

#: Errors that a test of a Dagster run may expect as they are.
_OF_RUNS: Final = ("databuild_dagster.NotBuilt", "dagster.Failure", "Exception", "BaseException")
_RUNS: Final = ("dagster.materialize", "dagster.materialize_to_memory")


def findings_of_tests(project: Project, module: Module, ours: Mapping[int, DecoratedFunction]) -> Iterator[Finding]:
    """What to change in a module of tests; `ours` are the assets that databuild builds, by the id of their function's node."""

    def called(node: ast.AST) -> DecoratedFunction | None:
        found = project.function(project.full_name(module, node.func)) if isinstance(node, ast.Call) else None
        return None if found is None else ours.get(id(found[1]))

    names = {asset.name for asset in ours.values()}
    for node in ast.walk(module.source.tree):
        match node:
            case (
                ast.Call(func=ast.Name(id="next" | "list" | "tuple"), args=[given, *_])
                | ast.Assign(targets=[ast.Tuple()], value=given)
                | ast.For(iter=given)
            ) if (asset := called(given)) is not None:
                call = module.text(given)
                write = f'{call}["…"], by the name of each output' if asset.is_multi else call
                how = "a dict from each output's name to its frame" if asset.is_multi else "the frame itself"
                why = f"a call of {asset.name} returns {how}"
                yield module.finding(Action.CHANGE, node, write=write, why=why, only_first=isinstance(node, ast.For))
            case ast.Call(func=ast.Attribute(attr="output_for_node"), args=[ast.Constant(value=str(name))]) if (
                name in names
            ):
                write = f'output_for_node("{name}", "{name}")'
                yield module.finding(Action.CHANGE, node, write=write, why="the output has the name of the asset")
            case ast.With(items=[ast.withitem(context_expr=ast.Call(args=[error, *_]) as raises)]) if (
                project.full_name(module, raises.func) == "pytest.raises"
                and project.full_name(module, error) not in _OF_RUNS
                and any(_runs(project, module, call, ours) for call in ast.walk(node))
            ):
                write = f"pytest.raises(NotBuilt) as raised, and check that raised.value.__cause__ is the {module.text(error)}"
                why = "a Dagster run of databuild assets fails with NotBuilt, whose cause is the error of the function"
                yield module.finding(Action.CHANGE, raises, write=write, why=why)


def _runs(project: Project, module: Module, node: ast.AST, ours: Mapping[int, DecoratedFunction]) -> bool:
    """Whether a call is a Dagster run that names an asset of ours."""
    if not isinstance(node, ast.Call) or project.full_name(module, node.func) not in _RUNS:
        return False
    named = (project.function(project.full_name(module, part)) for given in node.args for part in ast.walk(given))
    return any(found is not None and id(found[1]) in ours for found in named)
