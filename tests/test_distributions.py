"""Two distributions of one source: the core has the code, and the plain one adds Spark to it."""

import ast
import re
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from databuild_dagster.version import __version__
from tests.matrix.environments import build_wheels
from tests.matrix.rows import ROWS
from tests.package.__main__ import documented

ROOT = Path(__file__).parent.parent
CORE = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

#: The constants of the plain distribution's hook, which only the builder of wheels can import.
PLAIN = {
    node.targets[0].id: ast.literal_eval(node.value)
    for node in ast.parse((ROOT / "distributions/databuild-dagster/hatch_build.py").read_text()).body
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
}


@pytest.fixture(scope="module")
def wheels() -> dict[str, zipfile.ZipFile]:
    return {path.name.partition("-")[0]: zipfile.ZipFile(path) for path in build_wheels()}


def metadata(wheel: zipfile.ZipFile) -> dict[str, list[str]]:
    (name,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    message = message_from_string(wheel.read(name).decode())
    return {key: message.get_all(key, []) for key in set(message.keys())}


@pytest.mark.long("pip builds the wheels")
def test_the_core_has_the_code_and_the_plain_one_no_file_of_its_own(wheels: dict[str, zipfile.ZipFile]) -> None:
    """One distribution owns each file, so that removing one leaves nothing broken."""
    of_core, of_plain = (
        {name.partition("/")[0] for name in wheels[name].namelist()}
        for name in ("databuild_dagster_core", "databuild_dagster")
    )

    assert of_core == {"databuild_dagster", f"databuild_dagster_core-{__version__}.dist-info"}
    assert of_plain == {f"databuild_dagster-{__version__}.dist-info"}


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


def test_the_plain_ones_extras_are_those_of_the_core() -> None:
    assert set(PLAIN["EXTRAS"]) == set(CORE["optional-dependencies"]) - {"connect", "databricks", "dev"}


def test_the_dev_environment_has_what_the_plain_one_adds() -> None:
    assert set(PLAIN["WITH_SPARK"]) - set(CORE["optional-dependencies"]["dev"]) == {"dagster-webserver>=1.12,<1.14"}
    assert "dagster-webserver>=1.12,<1.14" in CORE["optional-dependencies"]["example"]


def test_the_readme_shows_every_row_of_the_matrix_and_no_other() -> None:
    text = (ROOT / "README.md").read_text()
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
