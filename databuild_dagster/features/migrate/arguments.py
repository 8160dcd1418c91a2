"""The arguments of an asset's decorator, compared with the tables of `dagster_options`, which the decorators themselves use."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from typing import Final

from dagster import AssetSpec

from databuild_dagster.bindings.authoring.dagster_options import REFUSED, REFUSED_OF_MULTI
from databuild_dagster.bindings.authoring.decorator import databuild_asset, databuild_multi_asset, options_of
from databuild_dagster.features.migrate.dagster_code import Decorated
from databuild_dagster.features.migrate.findings import Action, Finding
from databuild_dagster.features.migrate.modules import Module, Project, keyword
from databuild_dagster.features.migrate.values import arguments_of

#: Arguments of `AssetIn` that the package does not read.
_OF_ASSET_IN: Final[Mapping[str, str]] = {
    "input_manager_key": "databuild reads the rows itself",
    "dagster_type": "the annotation of the parameter says it",
}
#: Arguments of `AssetOut` that an `AssetSpec` takes as they are.
_OF_SPEC: Final = frozenset(inspect.signature(AssetSpec).parameters) - {"key"}
#: Refused arguments whose replacement is another name for the same value.
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


def argument_findings(project: Project, asset: Decorated) -> Iterator[Finding]:
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


def _ins(project: Project, asset: Decorated, ins: ast.expr) -> Iterator[Finding]:
    module, parameters = asset.module, {argument.arg for argument in arguments_of(asset.function)}
    if isinstance(ins, ast.Dict):
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
