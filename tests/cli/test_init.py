"""`databuild init`: what it starts works word for word as its README says, and where it may not start, nothing changes."""

import json
import os
import tomllib
from pathlib import Path

import pytest

from databuild_dagster.cli.main import run

FILES = {
    ".gitignore",
    "README.md",
    "dagster.yaml",
    "pyproject.toml",
    "shop/__init__.py",
    "shop/assets.py",
    "shop/definitions.py",
    "tests/conftest.py",
    "tests/test_assets.py",
}


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_the_folder_one_stands_in_may_hold_a_repository_and_a_venv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (".git", ".venv"):
        (tmp_path / "shop" / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shop")

    assert run(["init"]) == 0

    assert files_in(tmp_path / "shop") == FILES


@pytest.mark.parametrize(
    ("folder", "package"),
    [
        ("New York's flights", "new_york_s_flights"),
        ("2024", "project_2024"),
        ("Zürich", "z_rich"),
        ("class", "project_class"),
        ("tests", "tests_project"),
        ("pandas", "pandas_project"),
    ],
)
def test_the_package_has_a_name_that_can_be_imported_and_is_nothing_else_s(
    tmp_path: Path, folder: str, package: str
) -> None:
    run(["init", str(tmp_path / folder)])

    project = tomllib.loads((tmp_path / folder / "pyproject.toml").read_text())
    assert project["project"]["name"] == package
    assert (tmp_path / folder / package / "definitions.py").exists()
    assert "PACKAGE" not in "".join(path.read_text() for path in (tmp_path / folder).rglob("*") if path.is_file())


def test_a_folder_that_is_not_there_becomes_a_project_whose_files_json_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["init", str(tmp_path / "anything"), "--name", "shop", "--json"]) == 0

    answer = json.loads(capsys.readouterr().out)
    assert (answer["folder"], answer["package"], set(answer["files"])) == (str(tmp_path / "anything"), "shop", FILES)
    assert files_in(tmp_path / "anything") == FILES


def test_a_folder_that_is_not_empty_is_refused_and_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")

    assert run(["init", str(tmp_path)]) == 2

    assert capsys.readouterr().err == (
        f"Error: {tmp_path} is not empty, thesis.txt is there; name a folder that is empty or not there yet.\n"
    )
    assert files_in(tmp_path) == {"thesis.txt"}


@pytest.mark.parametrize("name", ["1st", "my shop", "class", "tests", ""])
def test_a_name_that_cannot_be_imported_is_refused_before_anything_is_written(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["init", str(tmp_path / "shop"), "--name", name]) == 2

    assert f"Error: --name {name!r} " in capsys.readouterr().err
    assert not (tmp_path / "shop").exists()


def test_a_file_in_the_folder_s_place_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shop").write_text("")

    assert run(["init", str(tmp_path / "shop")]) == 2

    assert "is a file; name a folder" in capsys.readouterr().err


def test_a_project_that_could_not_be_written_whole_is_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name so long that with `/definitions.py` it is longer than a path may be."""
    deep = tmp_path
    while len(str(deep)) < os.pathconf(tmp_path, "PC_PATH_MAX") - 300:
        deep = deep / ("d" * 200)
    deep.mkdir(parents=True)
    longest = os.pathconf(tmp_path, "PC_PATH_MAX") - len(str(deep)) - len("/pyproject.toml") - 3
    folder = deep / ("e" * min(longest, 240))

    code = run(["init", str(folder), "--name", "a_package_with_quite_a_name"])

    assert code == 2
    assert "cannot be written: File name too long; nothing was left there." in capsys.readouterr().err
    assert not folder.exists()
