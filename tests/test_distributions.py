"""Two distributions of one source: the core has the code, and the plain one adds Spark to it."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from databuild_dagster.version import __version__
from tests.matrix.environments import SOURCES, build_wheels
from tests.matrix.rows import ROWS
from tests.package.__main__ import documented

ROOT = Path(__file__).parent.parent
PLAIN = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

#: The constants of the core's hook, which only the builder of wheels can import.
CORE = {
    node.targets[0].id: ast.literal_eval(node.value)
    for node in ast.parse((ROOT / "distributions/databuild-dagster-core/hatch_build.py").read_text()).body
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
}


@pytest.fixture(scope="module")
def wheels() -> dict[str, zipfile.ZipFile]:
    return {path.name.partition("-")[0]: zipfile.ZipFile(path) for path in build_wheels()}


@pytest.fixture(scope="module")
def of_trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, zipfile.ZipFile]:
    """What `pip install .` installs in either folder."""
    folder = tmp_path_factory.mktemp("wheels")
    for source in SOURCES:
        command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(source)]
        subprocess.run(command, check=True, capture_output=True)
    return {path.name.partition("-")[0]: zipfile.ZipFile(path) for path in folder.iterdir()}


def metadata(wheel: zipfile.ZipFile) -> dict[str, list[str]]:
    (name,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    message = message_from_string(wheel.read(name).decode())
    return {key: message.get_all(key, []) for key in set(message.keys())}


def files(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def entry_points(wheel: zipfile.ZipFile) -> list[bytes]:
    return [wheel.read(name) for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt")]


@pytest.mark.long("pip builds the wheels")
def test_the_core_has_the_code_and_the_plain_one_no_file_of_its_own(wheels: dict[str, zipfile.ZipFile]) -> None:
    """One distribution owns each file, so that removing one leaves nothing broken."""
    of_core, of_plain = (
        {name.partition("/")[0] for name in wheels[name].namelist()}
        for name in ("databuild_dagster_core", "databuild_dagster")
    )

    assert of_core == {"databuild_dagster", f"databuild_dagster_core-{__version__}.dist-info"}
    assert of_plain == {f"databuild_dagster-{__version__}.dist-info"}
    # A command, too, is a file that is installed.
    assert [len(entry_points(wheels[name])) for name in ("databuild_dagster_core", "databuild_dagster")] == [1, 0]


@pytest.mark.long("pip builds the wheels")
def test_the_top_of_a_checkout_is_the_plain_one_with_the_files_of_the_core(
    wheels: dict[str, zipfile.ZipFile], of_trees: dict[str, zipfile.ZipFile]
) -> None:
    """An installation from the folder, or from git, needs no core, which no index may have."""
    core, top, published = (
        wheels["databuild_dagster_core"],
        of_trees["databuild_dagster"],
        wheels["databuild_dagster"],
    )

    assert files(top) == files(of_trees["databuild_dagster_core"]) == files(core)
    assert entry_points(top) == entry_points(of_trees["databuild_dagster_core"]) == entry_points(core)
    assert set(metadata(published)["Requires-Dist"]) - set(metadata(top)["Requires-Dist"]) == {
        f"databuild-dagster-core=={__version__}"
    }


@pytest.mark.long("pip builds the wheels")
def test_the_plain_one_needs_exactly_the_core_of_its_own_version(wheels: dict[str, zipfile.ZipFile]) -> None:
    plain, core = metadata(wheels["databuild_dagster"]), metadata(wheels["databuild_dagster_core"])

    assert plain["Version"] == core["Version"] == [__version__]
    assert f"databuild-dagster-core=={__version__}" in plain["Requires-Dist"]
    assert {"dagster-pyspark", "dagster-webserver", "pyspark[connect]"} <= {
        requirement.partition("<")[0].partition(">")[0] for requirement in plain["Requires-Dist"]
    }


@pytest.mark.long("pip builds the wheels")
def test_the_core_brings_neither_spark_nor_dagster_pyspark(wheels: dict[str, zipfile.ZipFile]) -> None:
    """databricks-connect and pyspark overwrite each other's files."""
    without_extras = [
        line for line in metadata(wheels["databuild_dagster_core"])["Requires-Dist"] if "extra ==" not in line
    ]

    assert not [line for line in without_extras if "pyspark" in line or "databricks" in line]


@pytest.mark.long("pip builds the wheels")
def test_the_published_readme_has_no_link_that_an_index_cannot_follow(wheels: dict[str, zipfile.ZipFile]) -> None:
    """As long as the project has no address, a relative link is its text."""
    for wheel in wheels.values():
        (name,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        text = wheel.read(name).decode()

        assert "# databuild_dagster" in text
        assert [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target] == []


def test_the_core_leaves_out_what_the_plain_one_needs_for_spark() -> None:
    needed = {re.split(r"[\[<>=;]", requirement)[0] for requirement in PLAIN["dependencies"]}

    assert set(CORE["WITHOUT"]) <= needed
    assert {"dagster", "pandas", "pyspark", "dagster-pyspark", "dagster-webserver"} <= needed
    assert set(CORE["OF_THE_REPOSITORY"]) <= set(PLAIN["optional-dependencies"])


def test_the_page_of_versions_shows_every_row_of_the_matrix_and_no_other() -> None:
    text = (ROOT / "docs" / "how-to" / "versions.md").read_text()
    table = text[text.index("## Versions") :].split("\n## ")[0]
    shown = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]

    assert shown[1:] == [row.name for row in ROWS]


def test_what_the_docs_install_is_what_pip_can_read() -> None:
    """`make package ARGS=--all` resolves each of them."""
    assert {"databuild-dagster", "databuild-dagster[s3]", "databuild-dagster-core[databricks]"} <= set(documented())
    assert [
        name for name in documented() if not re.fullmatch(r"databuild[-_]dagster(-core)?(\[\w+(,\w+)*\])?", name)
    ] == []


def test_ci_tries_the_oldest_spark_and_a_client_without_spark() -> None:
    assert [row.name for row in ROWS if row.in_ci] == ["PySpark 3.5, classic", "pyspark-client 4.1"]
