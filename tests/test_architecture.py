"""`docs/architecture.md` leads to files and names that exist, and says of floors and rooms what the contracts say."""

from __future__ import annotations

import ast
import re
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "databuild_dagster"
PAGE = (ROOT / "docs" / "architecture.md").read_text()

#: A row of "Where is it?": the question, the link, and the name that answers.
ANSWERS = re.findall(r"^\| (.*?\?.*?) \| \[`[\w/]+`\]\((\S+)\) \| `([\w.]+)` \|$", PAGE, re.MULTILINE)


def names_in(path: Path) -> set[str]:
    """Functions, classes, constants, and methods as `Class.method`."""
    found = set[str]()
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.FunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name, body=body):
                found |= {name} | {f"{name}.{method.name}" for method in body if isinstance(method, ast.FunctionDef)}
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return found


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)\)", PAGE))))
def test_a_link_leads_to_a_file_or_folder(target: str) -> None:
    assert (ROOT / "docs" / target).exists()


@pytest.mark.parametrize(
    ("text", "target"), sorted(set(re.findall(r"\[`([\w/]+)`\]\((\.\./databuild_dagster/[^)]+)\)", PAGE)))
)
def test_a_link_says_where_it_leads(text: str, target: str) -> None:
    path = target.removeprefix("../databuild_dagster/").removesuffix("/__init__.py").removesuffix(".py")

    assert path == text or path.endswith(f"/{text}")


@pytest.mark.parametrize(("question", "target", "name"), ANSWERS)
def test_the_answer_to_a_question_is_in_the_file_that_the_page_names(question: str, target: str, name: str) -> None:
    assert name in names_in(ROOT / "docs" / target), question


def test_the_page_answers_twelve_questions() -> None:
    assert len(ANSWERS) >= 12


@pytest.mark.parametrize(
    "step", re.findall(r"^\| \d+ \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE), ids=lambda step: step[0][:40]
)
def test_a_function_that_a_step_names_is_in_a_file_beside_it(step: tuple[str, str]) -> None:
    sentence, places = step
    files = [ROOT / "docs" / target for target in re.findall(r"\]\((\S+?\.py)\)", places)]
    defined = set[str]().union(*(names_in(path) for path in files))

    functions = re.findall(r"`([a-z_]+)`", sentence)

    assert files
    assert set(functions) <= defined


def test_floors_and_rooms_are_those_of_the_contracts() -> None:
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter")
    floors = set(re.findall(r"\w+", contracts["importlinter:contract:floors"]["layers"]))
    rooms = contracts["importlinter:contract:rooms"]["layers"].split()
    table = PAGE.partition("### The rooms")

    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()} <= floors
    assert set(re.findall(r"^\| \[`(\w+)`\]", table[0], re.MULTILINE)) <= floors
    assert re.findall(r"^\| \[`(\w+)`\]", table[2], re.MULTILINE) == rooms
