"""Definitions are found as `dagster` finds them, and what is wrong with them is one sentence."""

import subprocess
import sys
from pathlib import Path

import pytest

from databuild_dagster.bindings.authoring.location import CannotLoad, load_code_locations, the_code_location

DEFINITIONS = """
from pyspark.sql import DataFrame
from databuild_dagster import build_definitions, databuild_asset

@databuild_asset
def one() -> DataFrame: ...

defs = build_definitions([one])
"""


def test_a_file_is_a_location_under_its_own_name_and_its_folders(tmp_path: Path) -> None:
    (tmp_path / "my_definitions.py").write_text(DEFINITIONS)

    location = the_code_location(load_code_locations(files=[str(tmp_path / "my_definitions.py")]))

    assert location.deployment is not None
    assert location.deployment.location == f"{tmp_path.name}.my_definitions"


def test_a_workspace_file_and_the_working_directory_say_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there.py").write_text(DEFINITIONS)
    (tmp_path / "workspace.yaml").write_text("load_from:\n  - python_file: {relative_path: there.py}\n")

    named = the_code_location(load_code_locations(workspaces=[str(tmp_path / "workspace.yaml")]))
    monkeypatch.chdir(tmp_path)
    found = the_code_location(load_code_locations())

    assert named.name == found.name == "there.py"
    assert found.deployment is not None
    assert found.deployment.location == f"{tmp_path.name}.there"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "import nowhere_at_all",
            "ModuleNotFoundError: No module named 'nowhere_at_all' (wrong.py, line 1). Install nowhere_at_all, or run the command in the folder",
        ),
        ("1 / 0", "ZeroDivisionError: division by zero (wrong.py, line 1)"),
        ("\nx = (1", "SyntaxError: '(' was never closed (wrong.py, line 2)"),
        ("import dagster as dg\ndefs = dg.Definitions()", "No code location uses build_definitions"),
    ],
)
def test_a_location_that_cannot_be_loaded_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, said: str
) -> None:
    (tmp_path / "wrong.py").write_text(source)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(CannotLoad) as refused:
        the_code_location(load_code_locations(files=[str(tmp_path / "wrong.py")]))

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_nothing_to_load_is_said_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(CannotLoad, match="name them with -m MODULE, -f FILE or -w WORKSPACE"):
        load_code_locations()
    with pytest.raises(CannotLoad, match=r"There is no file nowhere\.py"):
        load_code_locations(files=["nowhere.py"])


@pytest.mark.long("only a process in which nothing has asked PySpark before")
def test_a_module_may_make_a_column_before_it_imports_the_decorators(tmp_path: Path) -> None:
    (tmp_path / "early.py").write_text("import pyspark.sql.functions as F\n\nTWICE = F.col('n') * 2\n")
    (tmp_path / "shop.py").write_text(f"import early\n{DEFINITIONS}")
    loading = (
        "from databuild_dagster.bindings.authoring.location import load_code_locations\n"
        "print(load_code_locations(files=['shop.py'])[0].name)"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", loading], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )

    assert (loaded.returncode, loaded.stdout.strip()) == (0, "shop.py"), loaded.stderr
