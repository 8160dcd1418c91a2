"""The modules of a project and their names: an expression becomes the full name of what it refers to.

`dg.asset` is `dagster.asset` after `import dagster as dg`, and so is `asset` of a module that imports it from a module
of the project. Names are read from import statements and definitions; nothing is imported. The places that make assets or other
definitions are found by the names of Dagster's decorators.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import dagster

from databuild_dagster.features.migrate.findings import Action, Finding
from databuild_dagster.features.migrate.source_files import SourceFile

#: Imports from module to module that are followed; more is a ring.
MAX_STEPS: Final = 10
#: Packages that no folder of a project stands in for.
_LIBRARIES: Final = ("dagster", "databuild_dagster", "pandas", "polars", "pyarrow", "pyspark")
#: Characters of source text in a finding.
MAX_SHOWN: Final = 120

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Module:
    """A file of the project with the names at its top."""

    source: SourceFile
    #: As the project's other modules import it.
    name: str
    #: Name to the full name that it was imported from.
    imports: dict[str, str] = field(default_factory=dict)
    #: Names that are imported for type checkers alone.
    typing_only: set[str] = field(default_factory=set)
    #: Modules of which everything is imported.
    stars: list[str] = field(default_factory=list)
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    #: Name to the expression that it is assigned.
    values: dict[str, ast.expr] = field(default_factory=dict)

    def text(self, node: ast.AST) -> str:
        """The source of a node on a single line, shortened."""
        lines = [line.encode() for line in self.source.lines[_line(node) - 1 : _last_line(node)]]
        if not lines:
            return ""
        # Python counts columns in bytes.
        lines[-1] = lines[-1][: getattr(node, "end_col_offset", None)]
        lines[0] = lines[0][getattr(node, "col_offset", 0) :]
        shown = " ".join(b" ".join(lines).decode(errors="replace").split())
        return shown if len(shown) <= MAX_SHOWN else f"{shown[: MAX_SHOWN - 1]}…"

    def finding(
        self,
        action: Action,
        node: ast.AST,
        *,
        write: str = "",
        why: str = "",
        found: str = "",
        only_first: bool = False,
    ) -> Finding:
        """A finding at a node; `only_first` limits it to the node's first line."""
        line = _line(node)
        last = line if only_first else _last_line(node)
        return Finding(action, self.source.path, line, last, found or self.text(node), write, why)


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 1))


def _last_line(node: ast.AST) -> int:
    return int(getattr(node, "end_lineno", None) or _line(node))


class Project:
    """All modules of a project."""

    def __init__(self, files: Iterable[SourceFile]) -> None:
        self.modules = [_module(file) for file in files]
        #: Every end of a module's dotted name to the modules that have it.
        self._names = {module.name for module in self.modules}
        self._by_end: dict[str, list[Module]] = defaultdict(list)
        for module in self.modules:
            parts = module.name.split(".")
            for start in range(len(parts)):
                self._by_end[".".join(parts[start:])].append(module)

    def module(self, name: str) -> Module | None:
        """The module of a dotted name. The folder that is on Python's path is unknown, so its end decides, if it is unique."""
        found = self._by_end.get(name, [])
        exact = [module for module in found if module.name == name]
        if name.partition(".")[0] in _LIBRARIES and not exact:
            return None
        if exact:
            return exact[0]
        return found[0] if len(found) == 1 else None

    def full_name(self, module: Module, node: ast.AST) -> str | None:
        """The full name of a name or an attribute; names of Dagster's inner modules become names of `dagster`."""
        match node:
            case ast.Name(id=name):
                return self._of_dagster(self._imported(module, name))
            case ast.Attribute(value=value, attr=attr):
                before = self.full_name(module, value)
                return None if before is None else self._of_dagster(self._member(before, attr, MAX_STEPS))
            case _:
                return None

    def _imported(self, module: Module, name: str, steps: int = MAX_STEPS) -> str:
        if name in module.imports and steps:
            return self._followed(module.imports[name], steps - 1)
        if name in module.functions or name in module.classes or name in module.values:
            return f"{module.name}.{name}"
        for star in module.stars:
            if star.partition(".")[0] == "dagster" and hasattr(dagster, name):
                return f"dagster.{name}"
            other = self.module(star)
            if (
                other is not None
                and steps
                and name in {*other.functions, *other.classes, *other.values, *other.imports}
            ):
                return self._imported(other, name, steps - 1)
        return name

    def _followed(self, full: str, steps: int) -> str:
        before, _, name = full.rpartition(".")
        return self._member(before, name, steps) if before else full

    def _member(self, before: str, name: str, steps: int) -> str:
        other = self.module(before)
        if other is None or self.module(f"{before}.{name}") is not None:
            return f"{before}.{name}"
        return (
            self._imported(other, name, steps)
            if name in {*other.imports, *other.values} or other.stars
            else f"{before}.{name}"
        )

    def _of_dagster(self, full: str) -> str:
        """The public name, unless it is a name of the project, in a folder of that name."""
        if full.rpartition(".")[0] in self._names:
            return full
        package, _, rest = full.partition(".")
        return f"{package}.{rest.rpartition('.')[2]}" if rest and package in ("dagster", "databuild_dagster") else full

    def function(self, full: str | None) -> tuple[Module, Function] | None:
        """The function of a full name, if the project defines it."""
        module, name = self._place(full)
        return None if module is None or name not in module.functions else (module, module.functions[name])

    def of_class(self, full: str | None) -> tuple[Module, ast.ClassDef] | None:
        """The class of a full name, if the project defines it."""
        module, name = self._place(full)
        return None if module is None or name not in module.classes else (module, module.classes[name])

    def value(self, full: str | None) -> tuple[Module, ast.expr] | None:
        """The expression that a name at the top of a module is assigned."""
        module, name = self._place(full)
        return None if module is None or name not in module.values else (module, module.values[name])

    def _place(self, full: str | None) -> tuple[Module | None, str]:
        before, _, name = (full or "").rpartition(".")
        return self.module(before), name


def _module(file: SourceFile) -> Module:
    parts = file.path.removesuffix(".py").split("/")
    if parts[-1] == "__init__" and len(parts) > 1:
        parts = parts[:-1]
    module = Module(file, ".".join(parts))
    package = parts if file.path.endswith("__init__.py") else parts[:-1]
    for node in ast.walk(file.tree):
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    name = alias.asname or alias.name.partition(".")[0]
                    module.imports[name] = alias.name if alias.asname else name
            case ast.ImportFrom(names=aliases):
                before = _imported_from(node, package)
                for alias in aliases:
                    if alias.name == "*":
                        module.stars.append(before)
                    else:
                        module.imports[alias.asname or alias.name] = f"{before}.{alias.name}"
    for statement in _top_level(file.tree.body):
        match statement:
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), body=inner):
                imports = [node for node in inner if isinstance(node, (ast.Import, ast.ImportFrom))]
                module.typing_only |= {alias.asname or alias.name for node in imports for alias in node.names}
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                module.functions[name] = statement
            case ast.ClassDef(name=name):
                module.classes[name] = statement
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                module.values[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                module.values[name] = value
    return module


def _imported_from(node: ast.ImportFrom, package: Sequence[str]) -> str:
    if not node.level:
        return node.module or ""
    base = list(package[: len(package) - (node.level - 1)])
    return ".".join([*base, *([node.module] if node.module else [])])


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run at import, also in branches."""
    for statement in body:
        yield statement
        match statement:
            case ast.If(body=inner, orelse=other):
                yield from _top_level([*inner, *other])
            case ast.Try(body=inner, handlers=handlers, orelse=other, finalbody=last):
                yield from _top_level([*inner, *(s for handler in handlers for s in handler.body), *other, *last])
            case ast.With(body=inner):
                yield from _top_level(inner)


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function's body, in order, without the nodes of functions and classes inside of it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            waiting[:0] = ast.iter_child_nodes(node)


def keyword(call: ast.Call | None, name: str) -> ast.keyword | None:
    """The keyword argument of a name."""
    return None if call is None else next((given for given in call.keywords if given.arg == name), None)


_DATA_OF_DBT: Final = "it runs dbt, which builds the tables; databuild assets beside it may depend on them"
_NO_FUNCTION: Final = "its ops pass values from one to the next; a databuild asset is one function that returns a frame"

#: Decorators that make definitions that no databuild asset can be, by full name, with the reason.
STAYS: Final[Mapping[str, str]] = {
    "dagster.graph_asset": _NO_FUNCTION,
    "dagster.graph_multi_asset": _NO_FUNCTION,
    "dagster.observable_source_asset": "it observes data that another program writes",
    "dagster.multi_observable_source_asset": "it observes data that another program writes",
    "dagster_dbt.dbt_assets": _DATA_OF_DBT,
    "dagster_dlt.dlt_assets": "it runs dlt, which writes the tables",
    "dagster_sling.sling_assets": "it runs Sling, which writes the tables",
    "dagster_fivetran.fivetran_assets": "it runs Fivetran, which writes the tables",
    "dagster_airbyte.airbyte_assets": "it runs Airbyte, which writes the tables",
    "dagster_sqlmesh.sqlmesh_assets": "it runs SQLMesh, which builds the tables",
}
ASSET: Final = "dagster.asset"
MULTI_ASSET: Final = "dagster.multi_asset"
OURS: Final[Mapping[str, str]] = {
    "databuild_dagster.databuild_asset": ASSET,
    "databuild_dagster.databuild_multi_asset": MULTI_ASSET,
}
CHECKS: Final = ("dagster.asset_check", "dagster.multi_asset_check")


@dataclass(frozen=True)
class DecoratedFunction:
    """A function with a decorator that makes definitions."""

    module: Module
    function: Function
    #: The full name of the decorator.
    decorator: str
    #: The decorator's expression, and its call if it has arguments.
    node: ast.expr
    #: The function in which it is written, which makes any number of such assets.
    factory: str | None

    @property
    def call(self) -> ast.Call | None:
        return self.node if isinstance(self.node, ast.Call) else None

    @property
    def callee(self) -> ast.expr:
        """The decorator without its arguments."""
        return self.node.func if isinstance(self.node, ast.Call) else self.node

    @property
    def is_ours(self) -> bool:
        return self.decorator in OURS

    @property
    def is_multi(self) -> bool:
        return OURS.get(self.decorator, self.decorator) == MULTI_ASSET

    @property
    def name(self) -> str:
        """The last part of the asset's key as far as the source shows it."""
        for given in self.call.keywords if self.call else ():
            match given:
                case ast.keyword(arg="name", value=ast.Constant(value=str(name))):
                    return name
                case ast.keyword(arg="key", value=ast.Constant(value=str(name))):
                    return name.rpartition("/")[2]
                case ast.keyword(arg="key", value=ast.List(elts=[*_, ast.Constant(value=str(name))])):
                    return name
                case ast.keyword(arg="key", value=ast.Call(args=[ast.List(elts=[*_, ast.Constant(value=str(name))])])):
                    return name
                case ast.keyword(arg="key", value=ast.Call(args=[ast.Constant(value=str(name))])):
                    return name
        return self.function.name

    def upstream(self, parameter: str) -> str:
        """The name of the asset that a parameter reads, which `ins` may change."""
        asset_in = self._asset_in(parameter)
        if asset_in is None:
            return parameter
        given = [*asset_in.args[:1], *(word.value for word in asset_in.keywords if word.arg == "key")]
        texts = [node.value for node in map(_last_part, given) if node is not None]
        return str(texts[0]).rpartition("/")[2] if texts else parameter

    def input_manager(self, parameter: str) -> ast.keyword | None:
        """The IO manager of its own by which a parameter is read."""
        return keyword(self._asset_in(parameter), "input_manager_key")

    def _asset_in(self, parameter: str) -> ast.Call | None:
        ins = keyword(self.call, "ins")
        if ins is not None and isinstance(ins.value, ast.Dict):
            for key, value in zip(ins.value.keys, ins.value.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == parameter and isinstance(value, ast.Call):
                    return value
        return None


def _last_part(key: ast.expr) -> ast.Constant | None:
    """The last text in a key, such as `AssetKey(["raw", "orders"])`."""
    texts = [node for node in ast.walk(key) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return max(texts, key=lambda node: (node.lineno, node.col_offset), default=None)


def decorated_in(project: Project) -> Iterator[DecoratedFunction]:
    """Every function with a decorator of Dagster or of ours, in every depth."""
    for module in project.modules:
        yield from _within(project, module, module.source.tree, None)


def _within(project: Project, module: Module, parent: ast.AST, factory: str | None) -> Iterator[DecoratedFunction]:
    for node in ast.iter_child_nodes(parent):
        if not isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            continue  # An expression may be nested deeper than a call of this function can be.
        inner = factory
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = node.name
            for decorator in node.decorator_list:
                callee = decorator.func if isinstance(decorator, ast.Call) else decorator
                full = project.full_name(module, callee)
                if full is not None:
                    yield DecoratedFunction(module, node, full, decorator, factory)
        yield from _within(project, module, node, inner)


def calls_in(project: Project, module: Module) -> Iterator[tuple[ast.Call, str]]:
    """Every call of a function whose full name is known."""
    for node in ast.walk(module.source.tree):
        if isinstance(node, ast.Call) and (full := project.full_name(module, node.func)) is not None:
            yield node, full
