"""`tests/` mirrors the package, and a test's marks say what it is."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "databuild_dagster"

#: Folders whose tests look at the whole system, and what only helps others.
WHOLE_SYSTEM = {
    "cluster",
    "e2e",
    "engines",
    "fuzz",
    "power_cuts",
    "service",
    "simulation",
    "mutations",
    "matrix",
    "values",
    "package",
    "golden",
    "support",
}
MOST_CHARACTERS = 80


def _floor(path: Path) -> str:
    return path.relative_to(TESTS).parts[0]


def _name(path: Path) -> str:
    return path.relative_to(TESTS).as_posix()


FILES = sorted(path for path in TESTS.rglob("test_*.py"))
FLOOR_FILES = [path for path in FILES if len(path.relative_to(TESTS).parts) > 1 and _floor(path) not in WHOLE_SYSTEM]


@pytest.mark.parametrize("path", FLOOR_FILES, ids=_name)
def test_a_test_file_is_named_for_the_module_that_it_tests(path: Path) -> None:
    """`tests/engine/test_tick.py`, or `test_tick_<aspect>.py`, tests `databuild_dagster/engine/tick.py`."""
    words = path.stem.removeprefix("test_").split("_")
    folder = PACKAGE / path.relative_to(TESTS).parent

    modules = ["_".join(words[:n]) for n in range(1, len(words) + 1)]

    assert any((folder / f"{name}.py").is_file() or (folder / name).is_dir() for name in modules), (
        f"there is no module of {folder.name} by the name of {path.name}"
    )


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_a_test_name_is_a_sentence_of_at_most_80_characters(path: Path) -> None:
    names = [node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]

    too_long = [
        name for name in names if name.startswith("test_") and len(name.removeprefix("test_")) > MOST_CHARACTERS
    ]

    assert too_long == []


#: Folders that a visitor meets. Of docs/, the README of the project says what each page is for.
VISITED = [TESTS.parent / name for name in ("deploy", "distributions", "examples/penguins", "tests", "tools")]
VISITED += [
    init.parent
    for name in ("bench", "examples/flights", "tests")
    for init in (TESTS.parent / name).rglob("__init__.py")
]


@pytest.mark.parametrize("folder", VISITED, ids=lambda folder: folder.relative_to(TESTS.parent).as_posix())
def test_a_folder_says_what_it_is_by_a_readme_or_a_docstring(folder: Path) -> None:
    init = folder / "__init__.py"

    assert (folder / "README.md").is_file() or ast.get_docstring(ast.parse(init.read_text()))


#: The modules of the plain model of the rules, and all that they may take from the package: the errors and names of states.
PLAIN_MODEL = sorted((TESTS / "simulation" / "naive").glob("*.py"))
PLAIN_NAMES = {"errors", "Refused", "InstanceState", "WantState"}


@pytest.mark.parametrize("path", PLAIN_MODEL, ids=_name)
def test_the_plain_model_takes_only_errors_and_states_from_the_package(path: Path) -> None:
    """It is no proof of the package where it repeats a mistake of the package."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, (ast.Import, ast.ImportFrom))]

    taken = {
        alias.name
        for node in nodes
        for alias in node.names
        if PACKAGE.name in (getattr(node, "module", None) or alias.name)
        or "tests" in (getattr(node, "module", None) or "")
    }

    assert taken <= PLAIN_NAMES


#: Their `__init__` is what others call: users, the command's entry point, the engine. That of a feature has its row.
DOORS = {".", "cli", "model/decide", "bindings/building/provided"}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("__init__.py")), ids=lambda path: path.parent.name)
def test_a_name_is_imported_from_the_module_that_defines_it(path: Path) -> None:
    """A second way to the same name would hide which file a reader has to open."""
    imports = [node for node in ast.parse(path.read_text()).body if isinstance(node, (ast.Import, ast.ImportFrom))]

    place = path.parent.relative_to(PACKAGE)
    assert imports == [] or place.as_posix() in DOORS or place.parts[0] == "features"


@pytest.fixture(scope="module")
def shared() -> str:
    return "one for all tests of this file"


def test_tests_that_share_a_fixture_of_their_file_run_on_one_worker(
    shared: str, request: pytest.FixtureRequest
) -> None:
    """A group that the workers do not see would start each server once for each of them."""
    if "PYTEST_XDIST_WORKER" not in os.environ or request.config.option.loadgroup is False:
        pytest.skip("one process runs everything, or work is handed out otherwise")

    assert request.node.nodeid.endswith("@test_layout.py")
