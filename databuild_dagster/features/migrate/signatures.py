"""The parameters of an asset's function: each gets the annotation that the package fills, or shows that the asset stays plain."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from databuild_dagster.bindings.declare.parameters import ALLOWED, ParameterKind
from databuild_dagster.features.migrate.annotations import KnownAnnotation, annotated
from databuild_dagster.features.migrate.findings import Action, Finding
from databuild_dagster.features.migrate.modules import DecoratedFunction, Function, Module, Project, keyword
from databuild_dagster.features.migrate.values import OF_KIND, Value, arguments_of, used_as

#: The class to write for each kind of frame, with the package and the name by which people import it.
_CLASSES: Final[Mapping[Value, tuple[str, str, str]]] = {
    Value.SPARK: ("pyspark.sql", "DataFrame", "pyspark.sql.DataFrame"),
    Value.PANDAS: ("pandas", "DataFrame", "pd.DataFrame"),
    Value.POLARS: ("polars", "DataFrame", "pl.DataFrame"),
    Value.ARROW: ("pyarrow", "Table", "pa.Table"),
}
#: The package may fill such a parameter.
NOT_SHOWN: Final = "the source does not show this class"
#: Clients that Dagster fills and that run a program which stores its own data.
_PIPES: Final = "Pipes"


@dataclass
class Signature:
    """What the parameters of a function say of its asset."""

    findings: list[Finding] = field(default_factory=list)
    #: Reasons for which it stays plain.
    stays: list[str] = field(default_factory=list)
    #: The name of the context, if it has a context.
    context: str | None = None
    #: Parameters that read assets, with their parameters' annotations.
    inputs: dict[str, ast.arg] = field(default_factory=dict)


def signature_of(project: Project, asset: DecoratedFunction, returned: Mapping[str, Value]) -> Signature:
    """Judge each parameter; `returned` has what the project's assets return, by name."""
    found = Signature()
    function, module = asset.function, asset.module
    for several in (function.args.vararg, function.args.kwarg):
        if several is not None and not (several is function.args.kwarg and _is_filled(project, asset, several)):
            write = "name each upstream asset as a parameter with the annotation of a frame, or in ins= for **inputs: DataFrame"
            found.findings.append(
                module.finding(Action.DECIDE, several, write=write, why="it takes any number of arguments")
            )
    positional = [*function.args.posonlyargs, *function.args.args]
    defaults = zip(reversed(positional), reversed(function.args.defaults), strict=False)
    given = {argument.arg: value for argument, value in defaults}
    given |= {
        argument.arg: value
        for argument, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        if value
    }
    for argument in function.args.posonlyargs:
        found.findings.append(
            module.finding(Action.CHANGE, argument, write="remove the / behind it", why="parameters are filled by name")
        )
    found.findings += _of_type_checkers(module, function)
    for place, argument in enumerate(arguments_of(function)):
        _parameter(found, project, asset, argument, is_first=place == 0, returned=returned)
        if argument.arg in found.inputs and argument.arg in given:
            why = "an input is always there, and has no default"
            found.findings.append(
                module.finding(Action.REMOVE, given[argument.arg], found=f"{argument.arg} = …", why=why)
            )
    return found


def _is_filled(project: Project, asset: DecoratedFunction, inputs: ast.arg) -> bool:
    """Whether `**inputs` gets the frames of the assets that `ins=` names."""
    kind = annotated(project, asset.module, inputs.annotation).kind
    has_ins = asset.call is not None and keyword(asset.call, "ins") is not None
    return has_ins and kind is not None and kind.is_input


def _of_type_checkers(module: Module, function: Function) -> Iterator[Finding]:
    """Annotations by names that are not imported when the module runs."""
    annotations = [argument.annotation for argument in arguments_of(function)] + [function.returns]
    for annotation in annotations:
        for node in ast.walk(annotation) if annotation is not None else ():
            if isinstance(node, ast.Name) and node.id in module.typing_only:
                write = f"{node.id}, with its import outside of `if TYPE_CHECKING:`"
                why = "the package reads the annotation when the module is imported"
                yield module.finding(Action.CHANGE, node, write=write, why=why)


def _parameter(
    found: Signature,
    project: Project,
    asset: DecoratedFunction,
    argument: ast.arg,
    *,
    is_first: bool,
    returned: Mapping[str, Value],
) -> None:
    module, name = asset.module, argument.arg
    known = annotated(project, module, argument.annotation)
    if known.kind is ParameterKind.CONTEXT or (known.is_absent and name in ("context", "_context", "_") and is_first):
        found.context = name
        if known.kind is None and name != "context":
            found.findings.append(
                module.finding(Action.CHANGE, argument, write=f"{name}: BuildContext", why=f"{name} has no annotation")
            )
    elif known.kind is ParameterKind.CONFIG:
        if name != "config":
            found.findings.append(
                module.finding(
                    Action.CHANGE, argument, write="config: …", why="Dagster fills a Config by the name config"
                )
            )
    elif known.kind is not None:
        _known_kind(found, module, argument, known)
    elif known.is_absent:
        found.inputs[name] = argument
        found.findings.append(_without_annotation(asset, argument, returned))
    elif known.like is not None:
        found.inputs[name] = argument
        write = (
            f"{name}: {class_of(module, OF_KIND[known.like.kind])}, and {name}{known.like.from_frame} in the function"
        )
        found.findings.append(module.finding(Action.CHANGE, argument, write=write, why="its class cannot be filled"))
    elif _is_pipes(project, module, argument):
        found.stays.append(f"it runs another program with {argument.arg}, which stores its data itself")
    elif known.is_resource_param:
        found.findings.append(
            _undecided(module, argument, "it is a resource of another class than ConfigurableResource")
        )
    elif known.is_no_frame:
        _no_frame(found, asset.module, argument)
    else:
        found.findings.append(_undecided(module, argument, known.instead or NOT_SHOWN))


def _known_kind(found: Signature, module: Module, argument: ast.arg, known: KnownAnnotation) -> None:
    assert known.kind is not None
    if known.kind.is_input:
        found.inputs[argument.arg] = argument
    if known.is_optional or known.is_wrapped:
        write = f"{argument.arg}: {class_of(module, OF_KIND[known.kind])}" if known.kind.is_input else "the class alone"
        why = "a parameter has one class; an input without rows is an empty frame"
        found.findings.append(module.finding(Action.CHANGE, argument, write=write, why=why))


def _is_pipes(project: Project, module: Module, argument: ast.arg) -> bool:
    """A client of Dagster Pipes, which runs a program of its own."""
    node = argument.annotation
    inner = node.slice if isinstance(node, ast.Subscript) else node
    full = "" if inner is None else project.full_name(module, inner) or ""
    return full.startswith("dagster") and full.rpartition(".")[2].startswith(_PIPES)


def _no_frame(found: Signature, module: Module, argument: ast.arg) -> None:
    shown = module.text(argument.annotation) if argument.annotation else ""
    if shown.startswith(("dict[", "Dict[", "Mapping[", "list[", "List[")) and "DataFrame" in shown:
        write = "annotate it with the frame: it has the rows of all partitions that the mapping gives"
        found.findings.append(module.finding(Action.DECIDE, argument, write=write, why=f"{shown} cannot be filled"))
        return
    found.stays.append(f"its parameter {argument.arg!r} is {shown}, and a databuild asset reads frames alone")


def _undecided(module: Module, argument: ast.arg, why: str) -> Finding:
    return module.finding(Action.DECIDE, argument, write=f"annotate it with {ALLOWED}", why=why)


def _without_annotation(asset: DecoratedFunction, argument: ast.arg, returned: Mapping[str, Value]) -> Finding:
    module, name = asset.module, argument.arg
    upstream = asset.upstream(name)
    used, given = used_as(asset.function, name), returned.get(upstream, Value.UNKNOWN)
    kind = used if used is not Value.UNKNOWN else given
    had = f"{argument.arg} has no annotation that says what it is"
    if kind.is_frame:
        shown = "it is used as" if kind is used else f"asset {upstream!r} returns"
        write = f"{name}: {class_of(module, kind)}"
        return module.finding(Action.CHANGE, argument, write=write, why=f"{had}; {shown} {kind.value}")
    return module.finding(Action.DECIDE, argument, write=f"annotate it with {ALLOWED}", why=had)


def class_of(module: Module, kind: Value) -> str:
    """The class of a frame as a module would write it, by its own imports."""
    package, name, otherwise = _CLASSES[kind]
    for alias, full in module.imports.items():
        if full == f"{package}.{name}":
            return alias
    for alias, full in module.imports.items():
        if full == package:
            return f"{alias}.{name}"
    return otherwise


def plain_reader_findings(project: Project, asset: DecoratedFunction, ours: Mapping[str, Value]) -> Iterator[Finding]:
    """The inputs of a function that stays plain and reads assets that become ours: the package reads by the annotation."""
    for argument in arguments_of(asset.function):
        if (own := asset.input_manager(argument.arg)) is not None and asset.upstream(argument.arg) in ours:
            why = "databuild has an IO manager of its own for what it built"
            yield asset.module.finding(Action.REMOVE, own, why=why)
        known = annotated(project, asset.module, argument.annotation)
        upstream = asset.upstream(argument.arg)
        if upstream in ours and known.is_absent and argument.arg != "context":
            used, given = used_as(asset.function, argument.arg), ours[upstream]
            kind = used if used.is_frame else given
            if kind is Value.SPARK:
                continue  # The frame that a parameter without an annotation gets.
            why = "without an annotation it gets a Spark DataFrame from a databuild asset"
            if kind.is_frame:
                write = f"{argument.arg}: {class_of(asset.module, kind)}"
                yield asset.module.finding(Action.CHANGE, argument, write=write, why=why)
            else:
                yield asset.module.finding(
                    Action.NOTE, argument, write="annotate it with the frame that it needs", why=why
                )
