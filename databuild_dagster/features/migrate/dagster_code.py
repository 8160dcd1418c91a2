"""The places of a project that make assets or other definitions, found by the names of Dagster's decorators."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from databuild_dagster.features.migrate.modules import Function, Module, Project, keyword

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
