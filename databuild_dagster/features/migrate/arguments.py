"""The arguments of an asset's decorator, and the members of the context that its function uses.

Arguments are compared with the tables of `dagster_options`, which the decorators themselves use, members with the table `INSTEAD` of
`build_context`, which the `BuildContext` itself has. The project's functions that get the context are read too. They may get
Dagster's context as well, from assets that stay plain.
"""

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from dagster import AssetSpec

from databuild_dagster.bindings.authoring.dagster_options import REFUSED, REFUSED_OF_MULTI
from databuild_dagster.bindings.authoring.decorator import databuild_asset, databuild_multi_asset, options_of
from databuild_dagster.bindings.declare.build_context import INSTEAD, BuildContext
from databuild_dagster.features.migrate.findings import Action, Finding
from databuild_dagster.features.migrate.modules import DecoratedFunction, Function, Module, Project, keyword
from databuild_dagster.features.migrate.values import arguments_of

#: Arguments of `AssetIn` that the package does not read.
_OF_ASSET_IN: Final[Mapping[str, str]] = {
    "input_manager_key": "databuild reads the rows itself",
    "dagster_type": "the annotation of the parameter says it",
}
#: Arguments of `AssetOut` that an `AssetSpec` takes as they are.
_OF_SPEC: Final = frozenset(inspect.signature(AssetSpec).parameters) - {"key"}
#: Refused arguments whose replacement is a new name for the same value.
_RENAMED: Final[Mapping[str, str]] = {
    "auto_materialize_policy": "automation_condition",
    "legacy_freshness_policy": "freshness_policy",
    "non_argument_deps": "deps",
}
#: The end of the usual key of Dagster's resources that run a step on EMR or Databricks.
_STEP_LAUNCHER: Final = "step_launcher"
#: Arguments that stay and mean a little less or more: words of their value, and the difference.
_NOTES: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "backfill_policy": (
        ("single_run",),
        "one Dagster run builds all partitions and calls the function for each; with batched=True it calls the function once",
    ),
    "automation_condition": (
        ("eager", "on_missing"),
        "databuild_dagster.automation has a condition of that name that starts no run for what is being built or wanted",
    ),
}


def argument_findings(project: Project, asset: DecoratedFunction) -> Iterator[Finding]:
    """The decorator and each of its arguments that cannot stay."""
    module = asset.module
    ours = "databuild_multi_asset" if asset.is_multi else "databuild_asset"
    if not asset.is_ours:
        found = f"@{module.text(asset.callee)}"
        yield module.finding(Action.CHANGE, asset.callee, found=found, write=f"@{ours}")
    if asset.call is None:
        return
    for positional in asset.call.args:
        yield module.finding(
            Action.CHANGE, positional, write="write the decorator above the function, with named arguments"
        )
    refused = REFUSED_OF_MULTI if asset.is_multi else REFUSED
    known = options_of(databuild_multi_asset if asset.is_multi else databuild_asset)
    for given in asset.call.keywords:
        name = given.arg
        if name is None:
            yield module.finding(
                Action.DECIDE,
                given,
                found=f"**{module.text(given.value)}",
                write=f"compare its arguments with those of {ours}, which are named in the how-to on existing assets",
                why="the source does not show which arguments it has",
            )
        elif _is_none(given.value):
            continue  # None is no choice, and is accepted.
        elif name == "outs" and asset.is_multi:
            yield from _outs(project, module, given)
        elif name == "specs" and asset.is_multi:
            yield _specs(project, module, given)
        elif name == "ins":
            yield from _ins(project, asset, given.value)
        elif name in refused:
            yield _refused(module, given, refused[name])
        elif name == "required_resource_keys" and _STEP_LAUNCHER in module.text(given.value):
            write = "the Spark of build_definitions(spark=…), such as DatabuildSpark(mode='remote', url=…)"
            why = "a step launcher sends a whole step elsewhere; databuild's step stays here, and its Spark may be elsewhere"
            yield module.finding(Action.DECIDE, given, write=write, why=why)
        elif name in _NOTES and any(word in module.text(given.value) for word in _NOTES[name][0]):
            yield module.finding(Action.NOTE, given, write=_NOTES[name][1])
        elif name not in known:
            yield module.finding(Action.REMOVE, given, write="remove it", why=f"{ours} has no argument {name}=")


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _refused(module: Module, given: ast.keyword, instead: str) -> Finding:
    why = f"{given.arg}= means nothing here"
    match given:
        case ast.keyword(arg="compute_kind", value=ast.Constant(value=str(kind))):
            return module.finding(Action.CHANGE, given, write=f'kinds={{"{kind}"}}', why=why)
        case ast.keyword(arg=str(name)) if name in _RENAMED:
            return module.finding(Action.CHANGE, given, write=f"{_RENAMED[name]}=…", why=f"{why}; {instead}")
        case _:
            return module.finding(Action.REMOVE, given, write="remove it", why=f"{why}; {instead}")


def _ins(project: Project, asset: DecoratedFunction, ins: ast.expr) -> Iterator[Finding]:
    module, parameters = asset.module, {argument.arg for argument in arguments_of(asset.function)}
    if isinstance(ins, ast.Dict) and asset.function.args.kwarg is None:
        for key, value in zip(ins.keys, ins.values, strict=True):
            if isinstance(key, ast.Constant) and key.value not in parameters:
                why = f"{key.value!s} is no parameter of the function, and is not read"
                found = f"{module.text(key)}: {module.text(value)}"
                yield module.finding(Action.CHANGE, value, found=found, write="the asset in deps=", why=why)
    for node in ast.walk(ins):
        if isinstance(node, ast.Call) and project.full_name(module, node.func) == "dagster.AssetIn":
            if (given := keyword(node, "metadata")) is not None and '"where"' not in module.text(given.value):
                yield module.finding(
                    Action.NOTE, given, write="the parameter has every column; a key `where` filters rows"
                )
            for name, why in _OF_ASSET_IN.items():
                if (given := keyword(node, name)) is not None:
                    yield module.finding(Action.REMOVE, given, write="remove it", why=why)


def _outs(project: Project, module: Module, given: ast.keyword) -> Iterator[Finding]:
    """`AssetOut` becomes `AssetSpec` with the output's name as its key."""
    if not isinstance(given.value, ast.Dict):
        why = "the source does not show the outputs"
        write = "give a dict from each output's name to an AssetSpec"
        yield module.finding(Action.DECIDE, given, write=write, why=why)
        return
    for name, out in zip(given.value.keys, given.value.values, strict=True):
        if isinstance(out, ast.Call) and project.full_name(module, out.func) == "dagster.AssetOut":
            key = name.value if isinstance(name, ast.Constant) else None
            yield module.finding(
                Action.CHANGE,
                out,
                write=_as_spec(module, str(key), out),
                why="the outputs of a function are AssetSpecs",
            )


def _as_spec(module: Module, name: str, out: ast.Call) -> str:
    spec = module.text(out.func).replace("AssetOut", "AssetSpec")
    prefix = keyword(out, "key_prefix")
    key = keyword(out, "key")
    first = f'"{name}"' if key is None else module.text(key.value)
    if prefix is not None:
        shown = module.text(prefix.value)
        parts = shown.strip("[]") if isinstance(prefix.value, ast.List) else shown
        first = f"[{parts}, {first}]"
    kept = [module.text(given) for given in out.keywords if given.arg in _OF_SPEC]
    return f"{spec}({', '.join([first, *kept])})"


def _specs(project: Project, module: Module, given: ast.keyword) -> Finding:
    why = f"specs= means nothing here; {REFUSED_OF_MULTI['specs']}"
    match given.value:
        case ast.List(elts=elements) | ast.Tuple(elts=elements) if elements and all(map(_named_spec, elements)):
            outs = ", ".join(f'"{_named_spec(spec)}": {module.text(spec)}' for spec in elements)
            return module.finding(Action.CHANGE, given, write=f"outs={{{outs}}}", why=why)
        case _:
            return module.finding(Action.CHANGE, given, write="outs={…}", why=why)


def _named_spec(node: ast.expr) -> str:
    """The name of an `AssetSpec` that is written there."""
    match node:
        case ast.Call(args=[ast.Constant(value=str(name)), *_]):
            return name.rpartition("/")[2]
        case ast.Call(keywords=[ast.keyword(arg="key", value=ast.Constant(value=str(name))), *_]):
            return name.rpartition("/")[2]
        case _:
            return ""


#: Functions that use no member.
_HARMLESS: Final = ("isinstance", "getattr", "hasattr", "print", "str", "repr", "type", "id")
#: Functions that are followed from an asset; more are not worth their time.
MAX_HELPERS: Final = 200


def context_findings(project: Project, module: Module, function: Function, context: str) -> Iterator[Finding]:
    """Every use of a member that a build does not have, and every foreign function that gets the context."""
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
    """The same for the project's functions that get the context of the users' functions, each function once."""
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
