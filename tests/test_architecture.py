"""`docs/architecture.md` leads to files and names that exist. It has the floors and rooms of the contracts, and the features and
columns of the code.
"""

from __future__ import annotations

import ast
import re
from configparser import ConfigParser
from dataclasses import fields
from pathlib import Path

import pytest

from databuild_dagster.feature import Feature, built_in

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


def rows_below(heading: str) -> list[str]:
    """The names in the first column of the table below a heading."""
    section = re.split(r"^#+ ", PAGE.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^\| \[?`(\w+)`", section, re.MULTILINE)


def test_floors_and_rooms_are_those_of_the_contracts() -> None:
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter")
    in_order = re.findall(r"\w+", contracts["importlinter:contract:floors"]["layers"])
    rooms = contracts["importlinter:contract:rooms"]["layers"].split()
    packages = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}

    assert packages <= {*in_order}
    assert rows_below("Floors") == [floor for floor in in_order if floor in packages]
    assert rows_below("The rooms of the bindings") == rooms


def test_the_table_of_features_has_each_feature_and_its_needs() -> None:
    needs = dict(re.findall(r"^\| \[`(\w+)`\]\(\S+\) \| [^|]* \| ([^|]*?) ?\| \[", PAGE, re.MULTILINE))

    assert rows_below("Features") == [feature.name for feature in built_in()]
    assert {feature.name: [*feature.needs] for feature in built_in()} == {
        feature.name: re.findall(r"\w+", needs[feature.name]) for feature in built_in()
    }


def test_the_table_of_columns_has_each_column_of_a_row() -> None:
    texts = {"package", "summary", "needs"}

    assert rows_below("The row") == [field.name for field in fields(Feature) if field.name not in texts]
