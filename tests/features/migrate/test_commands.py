"""`databuild migrate-project`: what it prints, its JSON, and its exit codes. `tests/features/migrate` proves each rule."""

from pathlib import Path

import pytest

from tests.support.command import Done, databuild

BEFORE = """\
import dagster as dg
import pandas as pd


@dg.asset(io_manager_key="files")
def orders(context) -> pd.DataFrame:
    return elsewhere.orders(context)


@dg.asset
def model(orders: pd.DataFrame) -> dict:
    return {}


defs = dg.Definitions([orders, model])
"""
AFTER = """\
import dagster as dg
import pandas as pd
from databuild_dagster import build_definitions, databuild_asset


@databuild_asset
def orders(context) -> pd.DataFrame:
    return elsewhere.orders(context)


defs = build_definitions([orders])
"""


def migrate(folder: Path, *arguments: str) -> Done:
    return databuild(folder, None, "migrate-project", *arguments)


def test_the_report_names_each_asset_each_line_and_the_sums_and_changes_no_file(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text(BEFORE)

    done = migrate(tmp_path)

    assert (done.code, done.err) == (0, "")
    assert (
        done.out
        == """\
orders (project.py:5): becomes @databuild_asset, 1 line
  line 5  @dg.asset
      write @databuild_asset
  line 5  io_manager_key="files"
      remove it
      because io_manager_key= means nothing here; databuild keeps the frame of each build as files
          of its own; a plain @asset may read it and store it elsewhere
  line 7  elsewhere.orders(…)
      note: look whether elsewhere.orders uses a member that BuildContext does not have
      because it gets a BuildContext, and is not read here

model (project.py:10): stays as it is
  Its result is dict, and a databuild asset is a table.

Outside of assets
  project.py:2, below
      add from databuild_dagster import build_definitions, databuild_asset
  project.py:15  dg.Definitions
      write build_definitions

1 file, 2 assets: 1 becomes @databuild_asset, 1 stays as it is.
3 lines to change; 0 decisions left.
"""
    )
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("project.py", BEFORE)]


def test_the_json_has_all_that_the_text_has(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text(BEFORE)
    (tmp_path / "bad.py").write_text("def f(:\n")
    (tmp_path / "test_x.py").touch()

    done = migrate(tmp_path, "--json")

    assert done.code == 1
    orders, model = done.json["assets"]
    assert (orders["asset"], orders["line"], orders["verdict"], orders["lines"]) == ("orders", 5, "becomes", 1)
    assert orders["findings"][0] == {
        "action": "change",
        "path": "project.py",
        "line": 5,
        "last_line": 5,
        "found": "@dg.asset",
        "write": "@databuild_asset",
        "why": "",
    }
    assert (model["verdict"], model["why"]) == ("stays", ["Its result is dict, and a databuild asset is a table."])
    assert [finding["action"] for finding in done.json["others"]] == ["add", "change"]
    assert done.json["unreadable"] == [{"path": "bad.py", "line": 1, "why": "invalid syntax"}]
    sums = {
        name: done.json[name] for name in ("files", "test_files", "lines", "lines_by_decision", "decisions", "done")
    }
    assert sums == {"files": 1, "test_files": 1, "lines": 3, "lines_by_decision": 0, "decisions": 0, "done": False}
    assert done.json["unchanged"] == {}


def test_a_reason_of_several_assets_is_said_once(tmp_path: Path) -> None:
    assets = "".join(
        f'@dg.asset(io_manager_key="files")\ndef {name}() -> pd.DataFrame:\n    return 1\n' for name in "abc"
    )
    (tmp_path / "project.py").write_text(f"import dagster as dg\nimport pandas as pd\n{assets}")

    report = migrate(tmp_path).out

    assert (report.count("remove it"), report.count("because io_manager_key=")) == (3, 1)


@pytest.mark.parametrize(("text", "code"), [(BEFORE, 1), (AFTER, 0), ("", 0)])
def test_with_check_the_exit_code_says_whether_anything_is_left(text: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text(text)

    done = migrate(tmp_path, "--check", "project.py")

    assert done.code == code
    assert ("Nothing is left to change." in done.out) == (code == 0)


def test_a_file_that_cannot_be_read_is_exit_code_1_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = 1\ndef f(:\n")
    (tmp_path / "good.py").write_text(AFTER)

    done = migrate(tmp_path)

    assert done.code == 1
    assert "Not read\n  bad.py:2: invalid syntax.\n" in done.out
    assert "1 is a databuild asset" in done.out


def test_a_path_without_source_is_refused(tmp_path: Path) -> None:
    done = migrate(tmp_path, "absent", "--json")

    assert (done.code, done.json["error"]["type"]) == (2, "NoSource")
