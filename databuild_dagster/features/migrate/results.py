"""The result of an asset's function: a frame, or the reason for which the asset stays plain."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from databuild_dagster.bindings.building.outputs import REFUSED_PARTS
from databuild_dagster.features.migrate.annotations import KnownAnnotation, annotated
from databuild_dagster.features.migrate.findings import Action, Finding
from databuild_dagster.features.migrate.modules import DecoratedFunction, Module, Project, keyword, own_nodes
from databuild_dagster.features.migrate.signatures import class_of
from databuild_dagster.features.migrate.values import (
    OF_KIND,
    TO_FRAMES,
    WRITES,
    WRITES_OF_SPARK,
    Value,
    Values,
    wrapped_value,
)

#: Kinds that are certainly no frame, with how a sentence calls them.
_NO_FRAMES: Final = (Value.OTHER, Value.DICT, Value.TUPLE, Value.SESSION)
#: Expressions that are certainly no frame.
_DISPLAYS: Final = (ast.Constant, ast.JoinedStr, ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp)


@dataclass
class Result:
    """What the results of a function say of its asset."""

    #: The kind of frame it returns, `UNKNOWN` if the source does not show it.
    value: Value
    findings: list[Finding] = field(default_factory=list)
    #: Reasons for which the asset stays plain.
    stays: list[str] = field(default_factory=list)
    #: Reasons for which a person must decide.
    decide: list[str] = field(default_factory=list)


def result_of(project: Project, asset: DecoratedFunction, values: Values) -> Result:
    """Judge what the function returns and yields."""
    known = annotated(project, asset.module, asset.function.returns)
    kind = OF_KIND.get(known.kind, Value.UNKNOWN) if known.kind is not None else Value.UNKNOWN
    found = Result(kind)
    if isinstance(asset.function, ast.AsyncFunctionDef):
        _async(found, asset)
    if values.yielded:
        _yields(found, project, asset, values)
        return found
    kinds = {value for _, value in values.returned}
    shown = kinds - {Value.NOTHING, Value.UNKNOWN}
    shows_nothing = known.is_absent or (known.is_wrapped and known.kind is None)
    is_silent = not kinds - {Value.NOTHING} and known.kind not in OF_KIND and (shows_nothing or not values.returned)
    if known.is_nothing or is_silent:
        found.stays.append(f"it returns nothing: {_stores_itself(asset, or_has_none=True)}")
        return found
    if shown == {Value.NO_VALUE} and len(kinds - {Value.UNKNOWN}) == 1 and Value.UNKNOWN not in kinds:
        found.stays.append(f"its MaterializeResult has no value: {_stores_itself(asset)}")
        return found
    if asset.is_multi:
        _several(found, project, asset, values, known)
    else:
        _single(found, asset, known, shown, values)
    if not found.stays:
        _empties(found, asset.module, values)
        _wrapped_parts(found, project, asset)
    return found


def _single(found: Result, asset: DecoratedFunction, known: KnownAnnotation, shown: set[Value], values: Values) -> None:
    frames = {value for value in shown if value.is_frame}
    if not found.value.is_frame and len(frames) == 1:
        found.value = next(iter(frames))
    returns = asset.function.returns
    annotation = asset.module.text(returns) if returns is not None else ""
    if known.like is not None:
        found.value = OF_KIND[known.like.kind]
        _to_frame(found, asset.module, values, known.like.to_frame)
    elif known.instead and returns is not None:
        found.decide.append(f"its result is {annotation}; {known.instead}")
    elif known.is_no_frame or (known.kind is not None and known.kind not in OF_KIND):
        of_frames = "; a function of several frames can become a @databuild_multi_asset, with a name for each"
        more = of_frames if "DataFrame" in annotation else ""
        found.stays.append(f"its result is {annotation}, and a databuild asset is a table{more}")
    elif not found.value.is_frame and len(shown) == 1 and (only := next(iter(shown))) in TO_FRAMES:
        end, found.value = TO_FRAMES[only]
        _to_frame(found, asset.module, values, end)
    elif not frames and not found.value.is_frame and shown and all(value in _NO_FRAMES for value in shown):
        names = " or ".join(sorted(value.value for value in shown))
        what = "something that is no frame" if shown == {Value.OTHER} else names
        found.stays.append(f"it returns {what}, and a databuild asset is a table")
    elif not found.value.is_frame:
        shows = (
            f"the source does not show what {annotation} holds"
            if annotation
            else "the source does not show what it returns"
        )
        found.decide.append(
            f"{shows}: a frame of Spark, pandas, Polars or Arrow can be a databuild asset, anything else stays as it is"
        )
    if found.value.is_frame and not found.stays:
        found.findings += _beside_frames(asset.module, values)
    _annotation(found, asset.module, returns, known)


def _beside_frames(module: Module, values: Values) -> Iterator[Finding]:
    """Results that are no frame, of a function that returns frames too."""
    for statement, value in values.returned:
        if value is not Value.NOTHING and isinstance(statement.value, _DISPLAYS):
            write = "return EMPTY for a partition without rows, else a frame"
            yield module.finding(Action.DECIDE, statement, write=write, why="a databuild asset returns frames alone")


def _to_frame(found: Result, module: Module, values: Values, end: str) -> None:
    """Each result gets a call that makes a frame of it."""
    for statement, value in values.returned:
        if value is not Value.NOTHING and statement.value is not None:
            text = module.text(statement.value)
            write = f"return the frame, {text if len(text) < 40 else '…'}{end}"
            found.findings.append(
                module.finding(Action.CHANGE, statement, write=write, why="the result must be a frame")
            )


def _annotation(found: Result, module: Module, returns: ast.expr | None, known: KnownAnnotation) -> None:
    """An annotation that the package refuses on a function that returns a frame."""
    if returns is None or found.stays or not found.value.is_frame:
        return
    if known.is_absent or known.is_optional or known.like is not None:
        why = "a result without rows is EMPTY" if known.is_optional else "the annotation must be a frame"
        write = f"-> {class_of(module, found.value)}"
        found.findings.append(
            module.finding(Action.CHANGE, returns, found=f"-> {module.text(returns)}", write=write, why=why)
        )


def _several(found: Result, project: Project, asset: DecoratedFunction, values: Values, known: KnownAnnotation) -> None:
    """A multi-asset returns a dict."""
    module, returns = asset.module, asset.function.returns
    names = output_names(asset)
    for statement, value in values.returned:
        match statement.value:
            case ast.Tuple(elts=elements):
                _no_frames(found, values, elements)
                pairs = ", ".join(
                    f'"{name}": {module.text(element)}' for name, element in zip(names, elements, strict=False)
                )
                write = (
                    f"return {{{pairs}}}" if len(names) == len(elements) else "return a dict from each output's name"
                )
                why = "each output has its name in a dict"
                found.findings.append(module.finding(Action.CHANGE, statement, write=write, why=why))
            case ast.Dict(values=elements):
                _no_frames(found, values, elements)
            case None:
                continue
            case _ if value is not Value.DICT and not asset.is_ours:
                found.decide.append(
                    "the source does not show what it returns: write a dict with a frame for each output"
                )
    if returns is not None and not _is_dict(project, module, returns):
        shown = module.text(returns)
        found.findings.append(
            module.finding(
                Action.CHANGE,
                returns,
                found=f"-> {shown}",
                write=f"-> dict[str, {_inner(project, module, returns)}]",
                why="the result is a dict from each output's name to its frame",
            )
        )


def _no_frames(found: Result, values: Values, elements: Sequence[ast.expr]) -> None:
    """Outputs that are certainly no frames keep the asset plain."""
    if elements and all(values.of(element) in (*_NO_FRAMES, Value.NOTHING) for element in elements):
        found.stays.append("its outputs are no frames, and a databuild asset is a table")


def _is_dict(project: Project, module: Module, returns: ast.expr) -> bool:
    outer = returns.value if isinstance(returns, ast.Subscript) else returns
    return (project.full_name(module, outer) or "").rpartition(".")[2] in ("dict", "Dict", "Mapping")


def _inner(project: Project, module: Module, returns: ast.expr) -> str:
    """The class of the frames inside of an annotation such as `tuple[DataFrame, DataFrame]`."""
    for node in ast.walk(returns):
        if isinstance(node, (ast.Name, ast.Attribute)) and annotated(project, module, node).kind in OF_KIND:
            return module.text(node)
    return "…"


def output_values(project: Project, asset: DecoratedFunction) -> dict[str, Value]:
    """The kind of frame of each output of a multi-asset, where its tuple shows it."""
    names, returns = output_names(asset), asset.function.returns
    match returns:
        case ast.Subscript(slice=ast.Tuple(elts=elements)) if len(elements) == len(names):
            known = [annotated(project, asset.module, element) for element in elements]
            kinds = [OF_KIND.get(found.kind, Value.UNKNOWN) if found.kind else Value.UNKNOWN for found in known]
        case _:
            kinds = [Value.UNKNOWN] * len(names)
    return dict(zip(names, kinds, strict=True))


def output_names(asset: DecoratedFunction) -> list[str]:
    """The names of the outputs of a multi-asset, in order, as far as the source shows them."""
    outs = keyword(asset.call, "outs")
    if outs is None or not isinstance(outs.value, ast.Dict):
        specs = keyword(asset.call, "specs")
        elements = specs.value.elts if specs is not None and isinstance(specs.value, ast.List) else []
        return [
            str(spec.args[0].value)
            for spec in elements
            if isinstance(spec, ast.Call) and spec.args and isinstance(spec.args[0], ast.Constant)
        ]
    return [str(name.value) for name in outs.value.keys if isinstance(name, ast.Constant)]


def _yields(found: Result, project: Project, asset: DecoratedFunction, values: Values) -> None:
    """A generator becomes a function with a single `return`, if it yields once and last."""
    module = asset.module
    kinds = {value for _, value in values.yielded}
    if kinds == {Value.NO_VALUE}:
        found.stays.append(f"what it yields has no value: {_stores_itself(asset)}")
        return
    returns = asset.function.returns
    if returns is not None and annotated(project, module, returns).is_no_frame and kinds.isdisjoint(OF_KIND.values()):
        found.stays.append(f"its result is {module.text(returns)}, and a databuild asset is a table")
        return
    *_, last = asset.function.body
    only = values.yielded[0][0]
    is_last = len(values.yielded) == 1 and isinstance(last, ast.Expr) and last.value is only
    if is_last and isinstance(only, ast.Yield) and only.value is not None and not asset.is_multi:
        found.value = values.yielded[0][1]
        if found.value.is_frame:
            write = f"return {module.text(only.value)}"
            found.findings.append(
                module.finding(
                    Action.CHANGE,
                    only,
                    write=write,
                    why="a generator is refused; return one frame",
                    only_first=True,
                )
            )
            _wrapped_parts(found, project, asset)
            returns = asset.function.returns
            if returns is not None:
                write = f"-> {class_of(module, found.value)}"
                found.findings.append(
                    module.finding(Action.CHANGE, returns, found=f"-> {module.text(returns)}", write=write)
                )
            return
    what = (
        "a dict with a frame for each output"
        if asset.is_multi
        else "one frame, and write an asset check for check results"
    )
    found.decide.append(f"it yields {_times(len(values.yielded))}, and a generator is refused: return {what}")


def _times(number: int) -> str:
    return "once" if number == 1 else f"in {number} places"


def _async(found: Result, asset: DecoratedFunction) -> None:
    why = "an async function is refused; partitions run in threads"
    awaits = [node for node in own_nodes(asset.function) if isinstance(node, (ast.Await, ast.AsyncFor, ast.AsyncWith))]
    found.findings.append(
        asset.module.finding(
            Action.CHANGE,
            asset.function,
            found=f"async def {asset.function.name}",
            write="def",
            why=why,
            only_first=True,
        )
    )
    if awaits:
        found.decide.append(f"it awaits in line {awaits[0].lineno}; call something that waits, or asyncio.run(…)")


def _empties(found: Result, module: Module, values: Values) -> None:
    """`None` beside frames is a partition without rows."""
    for statement, value in values.returned:
        if value is Value.NOTHING:
            found.findings.append(
                module.finding(
                    Action.CHANGE,
                    statement,
                    write="return EMPTY",
                    why="None is no result; EMPTY is a partition without rows",
                )
            )


def _wrapped_parts(found: Result, project: Project, asset: DecoratedFunction) -> None:
    module = asset.module
    for node in own_nodes(asset.function):
        if not isinstance(node, ast.Call):
            continue
        full = project.full_name(module, node.func)
        if full in ("dagster.Output", "dagster.MaterializeResult"):
            for given in node.keywords:
                if given.arg is not None and given.arg in REFUSED_PARTS:
                    why = f"{given.arg}= means nothing here; {REFUSED_PARTS[given.arg]}"
                    found.findings.append(module.finding(Action.REMOVE, given, write="remove it", why=why))
            if wrapped_value(node, full) is None:
                why = "a result without a value has no frame"
                write = "MaterializeResult(value=…, metadata=…) with the frame"
                found.findings.append(module.finding(Action.DECIDE, node, write=write, why=why))
        elif full == "dagster.AssetCheckResult":
            why = "a function returns a frame alone"
            write = "write an @asset_check beside the asset, or give blocking_checks="
            found.findings.append(module.finding(Action.DECIDE, node, write=write, why=why))


def _stores(method: ast.Attribute) -> bool:
    """Whether a method stores data; methods of Spark's writer have the names of its reader's methods."""
    if method.attr in WRITES:
        return True
    is_of_writer = any(isinstance(node, ast.Attribute) and node.attr == "write" for node in ast.walk(method.value))
    return method.attr in WRITES_OF_SPARK and is_of_writer


def _stores_itself(asset: DecoratedFunction, *, or_has_none: bool = False) -> str:
    for node in own_nodes(asset.function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _stores(node.func):
            return f"it stores its data itself in line {node.lineno}; to move it, return the frame there"
    return f"it stores its data itself{', or has none' if or_has_none else ''}"
