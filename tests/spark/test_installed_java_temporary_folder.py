"""Python and Spark's JVM keep temporary files in one folder."""

import tempfile
from pathlib import Path

import pytest

from databuild_dagster.spark.errors import NoTemporaryFolder
from databuild_dagster.spark.installed import jvm_options
from databuild_dagster.spark.session import check_startable
from databuild_dagster.spark.settings import SparkSettings
from tests.spark.test_installed_java import a_java


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The folder that TMPDIR names, of a process that has not looked for one yet."""
    folder = tmp_path / "temporary files"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(folder))
    return str(folder)


def test_sparks_jvm_uses_the_temporary_folder_of_python(temporary: str) -> None:
    assert jvm_options({}) == f'"-Djava.io.tmpdir={temporary}"'
    assert jvm_options({"SPARK_SUBMIT_OPTS": "-Xss4m"}) == f'-Xss4m "-Djava.io.tmpdir={temporary}"'


def test_the_server_of_a_temporary_home_keeps_its_files_in_its_own_folder(temporary: str, tmp_path: Path) -> None:
    inside, outside = Path(temporary, "home", "spark"), tmp_path / "home" / "spark"

    assert jvm_options({}, inside) == f'"-Djava.io.tmpdir={inside}"'
    assert jvm_options({}, outside) == f'"-Djava.io.tmpdir={temporary}"'


@pytest.mark.usefixtures("temporary")
def test_a_temporary_folder_that_the_options_name_is_kept() -> None:
    given = "-Djava.io.tmpdir=/fast -Xss4m"

    assert jvm_options({"SPARK_SUBMIT_OPTS": given}) == given


@pytest.mark.parametrize("mode", ["shared", "classic"])
def test_no_temporary_folder_is_said_before_spark_starts(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/nowhere"])
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "java", "21.0.2")))

    with pytest.raises(NoTemporaryFolder, match=r"no place: No usable .*/proc/nowhere.* Set TMPDIR to a folder"):
        check_startable(SparkSettings(mode=mode, home=tmp_path))
