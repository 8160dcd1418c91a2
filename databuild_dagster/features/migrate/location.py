"""The definitions of a project: `Definitions` becomes `build_definitions`, with what it takes and what nothing uses any more."""

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from databuild_dagster.bindings.authoring.dagster_options import REFUSED
from databuild_dagster.bindings.authoring.definitions import build_definitions
from databuild_dagster.bindings.building.deployment import keywords_of
from databuild_dagster.bindings.declare.parameters import ParameterKind
from databuild_dagster.features.migrate.annotations import annotated
from databuild_dagster.features.migrate.findings import Action, Finding
from databuild_dagster.features.migrate.modules import (
    MAX_STEPS,
    DecoratedFunction,
    Module,
    Project,
    calls_in,
    keyword,
    own_nodes,
)

_MERGE: Final = "keep it in a plain Definitions, and join both with Definitions.merge"
_DEFAULT_IO_MANAGER: Final = "io_manager"
#: Calls that find assets by themselves, by full name.
_FROM_FOLDERS: Final = ("dagster.load_from_defs_folder", "dagster.load_defs", "dagster.build_defs_for_component")


@dataclass(frozen=True)
class LocationUses:
    """What the assets need of the location."""

    #: The functions of assets that become ours or are, by full name, and the names of all other assets.
    ours: Collection[str]
    plain: Collection[str]
    #: Keys of IO managers that assets use that stay plain; None if the source does not show every key.
    io_managers: Collection[str] | None
    #: A function that stays plain has a parameter for this resource.
    plain_resources: Collection[str]


def location_findings(project: Project, uses: LocationUses) -> Iterator[Finding]:
    """Every place that makes definitions, if an asset of the project is or becomes ours."""
    if not uses.ours:
        return
    making = _making_ours(project, uses)
    made = [finding for module, call in making for finding in _made(project, module, call, uses)]
    yield from dict.fromkeys(made)  # Definitions may share a dict of resources.
    if not any("spark=" in finding.write for finding in made):
        yield from _settings(project, [call for _, call in making])
    n_alone = sum(keyword(call, "location") is None for _, call in making)
    for module in project.modules:
        for call, full in calls_in(project, module):
            yield from _other_call(module, call, full, uses, n_made=len(making), n_alone=n_alone)


def _settings(project: Project, making: Sequence[ast.Call]) -> Iterator[Finding]:
    """Resources with a session that the project makes, and that no definitions have as a resource of their own."""
    if any(keyword(call, "spark") is not None for call in making):
        return
    for module in project.modules:
        for call, full in calls_in(project, module):
            if full.startswith("dagster_pyspark."):
                write = "give build_definitions a resource with these settings by spark="
                yield module.finding(Action.NOTE, call, write=write, why="databuild opens its session by spark=")


def _other_call(
    module: Module, call: ast.Call, full: str, uses: LocationUses, *, n_made: int, n_alone: int
) -> Iterator[Finding]:
    shared = f"give the same location=SharedLocation(…) to {n_made} build_definitions"
    if full in _FROM_FOLDERS and (n_alone or not n_made):
        write = shared if n_made > 1 else "end the modules of databuild assets with build_definitions([…])"
        why = "Dagster finds the assets of the folder by itself; one location has one orchestrator"
        yield module.finding(Action.DECIDE, call, write=write, why=why)
    elif full == "dagster.merge" and n_made > 1 and n_alone:
        yield module.finding(Action.DECIDE, call, write=shared, why="one location has one orchestrator")
    elif full == "dagster.define_asset_job" and (given := keyword(call, "op_retry_policy")) is not None:
        action = Action.NOTE if uses.plain else Action.REMOVE
        write = (
            "it repeats plain assets alone, and build_definitions warns of the others" if uses.plain else "remove it"
        )
        why = f"a databuild asset is not repeated by it; {REFUSED['retry_policy']}"
        yield module.finding(action, given, write=write, why=why)
    elif full == "dagster.with_resources":
        write = "build_definitions([…], resources={…})"
        yield module.finding(Action.DECIDE, call, write=write, why="the assets get their resources there")


def _making_ours(project: Project, uses: LocationUses) -> list[tuple[Module, ast.Call]]:
    """The definitions with assets of ours; all definitions with assets if the source does not show which have ours."""
    found = [
        (module, call)
        for module in project.modules
        for call, full in calls_in(project, module)
        if full in ("dagster.Definitions", "databuild_dagster.build_definitions")
        and (call.args or keyword(call, "assets") is not None)
    ]
    ours = [
        (module, call) for module, call in found if not _named(project, module, _assets_of(call)).isdisjoint(uses.ours)
    ]
    return ours or found


def _assets_of(call: ast.Call) -> ast.expr:
    given = keyword(call, "assets")
    return given.value if given is not None else call.args[0]


def _named(project: Project, module: Module, assets: ast.expr, steps: int = MAX_STEPS) -> set[str]:
    """The full names of all functions that an expression names: by itself, by a variable, or by their module."""
    names = set[str]()
    for node in ast.walk(assets):
        if not isinstance(node, (ast.Name, ast.Attribute)) or (full := project.full_name(module, node)) is None:
            continue
        if project.function(full) is not None:
            names.add(full)
        elif (value := project.value(full)) is not None and steps:
            names |= _named(project, *value, steps - 1)
        elif full == "dagster.load_assets_from_current_module":
            names |= _functions_of(project, module.name)
        else:
            names |= _functions_of(project, full)
    return names


def _functions_of(project: Project, name: str) -> set[str]:
    """The functions of a module, and of the modules of a package."""
    found = project.module(name)
    inside = [] if found is None else [m for m in project.modules if f"{m.name}.".startswith(f"{found.name}.")]
    return {f"{module.name}.{function}" for module in inside for function in module.functions}


def _made(project: Project, module: Module, call: ast.Call, uses: LocationUses) -> Iterator[Finding]:
    if project.full_name(module, call.func) == "dagster.Definitions":
        yield module.finding(Action.CHANGE, call.func, write="build_definitions")
    for given in call.keywords:
        if given.arg == "resources":
            for place, resources in _dicts(project, module, given.value):
                found = list(_resources(project, place, call, resources, uses))
                yield from found
                if resources is given.value and resources.keys and _are_all_gone(resources, found):
                    yield module.finding(Action.REMOVE, given, why="no resource is left in it")
        elif given.arg is None:
            write = "compare its arguments with those of build_definitions"
            why = "the source does not show which arguments it has"
            yield module.finding(Action.DECIDE, given, write=write, why=why)
        elif given.arg not in keywords_of(build_definitions):
            why = f"build_definitions has no argument {given.arg}=; {_MERGE}"
            yield module.finding(Action.REMOVE, given, write="remove it", why=why)


def _are_all_gone(resources: ast.Dict, found: Sequence[Finding]) -> bool:
    return sum(finding.action.touches_lines for finding in found) == len(resources.keys)


def _dicts(
    project: Project, module: Module, node: ast.expr, steps: int = MAX_STEPS
) -> Iterator[tuple[Module, ast.Dict]]:
    """The dicts of resources that an expression names: a dict for each deployment, or the dicts of a function."""
    if not steps:
        return
    match node:
        case ast.Dict(keys=keys, values=values):
            inner = [found for value in values for found in _dicts(project, module, value, steps - 1)]
            if inner and all(isinstance(value, (ast.Name, ast.Dict)) for value in values):
                yield from inner
            else:
                yield module, node
                for key, value in zip(keys, values, strict=True):
                    if key is None:
                        yield from _dicts(project, module, value, steps - 1)
        case ast.Subscript(value=value) | ast.Call(func=ast.Attribute(value=value, attr="get")):
            yield from _dicts(project, module, value, steps - 1)
        case ast.Call(func=callee) if (defined := project.function(project.full_name(module, callee))) is not None:
            for inner_node in own_nodes(defined[1]):
                if isinstance(inner_node, ast.Return) and inner_node.value is not None:
                    yield from _dicts(project, defined[0], inner_node.value, steps - 1)
        case _ if (place := project.value(project.full_name(module, node))) is not None:
            yield from _dicts(project, *place, steps - 1)


def _resources(
    project: Project, module: Module, call: ast.Call, resources: ast.Dict, uses: LocationUses
) -> Iterator[Finding]:
    for key, value in zip(resources.keys, resources.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            continue
        whole = ast.copy_location(ast.Tuple([key, value], ast.Load()), key)
        whole.end_lineno, whole.end_col_offset = value.end_lineno, value.end_col_offset
        if _is_io_manager(project, module, value):
            if uses.io_managers is None:
                write = "remove it if no asset that stays plain uses it"
                why = "the source does not show the IO managers of all plain assets"
                yield module.finding(Action.NOTE, whole, write=write, why=why)
            elif key.value not in uses.io_managers:
                why = "databuild keeps the frame of each build as files of its own, and no other asset uses this IO manager"
                yield module.finding(Action.REMOVE, whole, write="remove it", why=why)
        elif _is_spark(project, module, value):
            yield from _spark(module, call, whole, key.value, value, uses)


def _spark(
    module: Module, call: ast.Call, whole: ast.AST, key: str, value: ast.expr, uses: LocationUses
) -> Iterator[Finding]:
    if keyword(call, "spark") is not None:
        return
    if isinstance(value, ast.Call) and "pyspark_resource" in module.text(value):
        write = "spark=LazyPySparkResource(spark_config={…}), an argument of build_definitions"
        yield module.finding(
            Action.DECIDE, whole, write=write, why="databuild takes a resource with a session as an object"
        )
    elif key in uses.plain_resources:
        write = f"spark={module.text(value)}, an argument of build_definitions"
        yield module.finding(Action.ADD, whole, write=write, why="databuild takes its session by spark=")
    else:
        why = "databuild opens the session by spark=; a parameter with the annotation PySparkResource gets it"
        yield module.finding(
            Action.CHANGE, whole, write=f"spark={module.text(value)}, an argument of build_definitions", why=why
        )


def _is_io_manager(project: Project, module: Module, value: ast.expr) -> bool:
    """Whether a value is an object of a class of IO managers, or a function that makes such an object."""
    made = value.func if isinstance(value, ast.Call) else value
    full = project.full_name(module, made) or ""
    if (place := project.value(full)) is not None and place[1] is not value:
        return _is_io_manager(project, *place)
    # Dagster's own libraries name them so.
    name = full.rpartition(".")[2]
    if name == "configured":
        name = full.split(".")[-2]
    if name.endswith(("IOManager", "io_manager")):
        return True
    if (defined := project.function(full)) is not None:
        decorators = [node.func if isinstance(node, ast.Call) else node for node in defined[1].decorator_list]
        return any(project.full_name(defined[0], node) == "dagster.io_manager" for node in decorators)
    bases = [defined[1].bases for defined in [project.of_class(full)] if defined is not None]
    return any((project.full_name(module, base) or "").endswith("IOManager") for of in bases for base in of)


def _is_spark(project: Project, module: Module, value: ast.expr) -> bool:
    made = value.func if isinstance(value, ast.Call) else value
    full = project.full_name(module, made) or ""
    if (place := project.value(full)) is not None and place[1] is not value:
        return _is_spark(project, *place)
    return full.startswith("dagster_pyspark.pyspark_resource") or (
        annotated(project, module, made).kind is ParameterKind.SPARK_RESOURCE
    )


def io_managers_of(plain: Sequence[DecoratedFunction]) -> set[str] | None:
    """The keys of the IO managers that plain assets use, None if a key is no text; without a key, Dagster's default."""
    keys = set[str]()
    for asset in plain:
        for node in ast.walk(asset.node):
            match node:
                case ast.keyword(arg="io_manager_key" | "input_manager_key", value=ast.Constant(value=str(key))):
                    keys.add(key)
                case ast.keyword(arg="io_manager_key" | "input_manager_key" | None):
                    return None
        if keyword(asset.call, "io_manager_key") is None:
            keys.add(_DEFAULT_IO_MANAGER)
    return keys
