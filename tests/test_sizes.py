"""A reader holds one file and one class in mind."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "databuild_dagster"
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
MOST_LINES = 500
MOST_METHODS = 25
MOST_CHANGING_ATTRIBUTES = 10


def classes_of(module: str) -> Iterator[ast.ClassDef]:
    nodes = ast.walk(ast.parse((PACKAGE / module).read_text()))
    return (node for node in nodes if isinstance(node, ast.ClassDef))


def methods_of(of_class: ast.ClassDef) -> list[ast.FunctionDef]:
    return [node for node in of_class.body if isinstance(node, ast.FunctionDef)]


def attributes_set_by(method: ast.FunctionDef) -> set[str]:
    return {
        node.attr
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_at_most_500_lines(module: str) -> None:
    assert len((PACKAGE / module).read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("module", MODULES)
def test_a_class_has_at_most_25_methods_and_10_attributes_that_change(module: str) -> None:
    for of_class in classes_of(module):
        methods = methods_of(of_class)
        changing = set[str]().union(*(attributes_set_by(one) for one in methods if one.name != "__init__"))

        assert len(methods) <= MOST_METHODS, of_class.name
        assert len(changing) <= MOST_CHANGING_ATTRIBUTES, of_class.name
