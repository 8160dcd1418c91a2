"""Which PySpark is installed, and what it brings, is known before a session is opened."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from databuild_dagster.spark import installed, session
from databuild_dagster.spark.errors import NoSparkHere, PySparkMissing, PySparkTooOld, PySparkTwice
from databuild_dagster.spark.installed import installed_pyspark, mode_here
from databuild_dagster.spark.session import check_startable, open_session
from databuild_dagster.spark.settings import SparkSettings

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Environments as pip leaves them: distributions by name and version, and the jars of SPARK_HOME."""

    def forget() -> None:
        once = (installed._found_distributions, installed._jars, installed._say_it_is_classic, session._warn_if_older)
        for answer in once:
            answer.cache_clear()

    def make(jars: tuple[str, ...] = (), **distributions: str) -> None:
        site = tmp_path / "site-packages"
        for name, version in distributions.items():
            folder = site / f"{name}-{version}.dist-info"
            folder.mkdir(parents=True)
            (folder / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
            )
        (tmp_path / "spark" / "jars").mkdir(parents=True)
        for jar in jars:
            (tmp_path / "spark" / "jars" / jar).touch()
        monkeypatch.setattr(sys, "path", [str(site)])
        monkeypatch.delitem(sys.modules, "pyspark", raising=False)
        monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
        forget()

    yield make
    monkeypatch.undo()
    forget()


def test_the_pyspark_of_these_tests_brings_spark_and_a_server() -> None:
    found = installed_pyspark()

    assert (found.distribution, found.has_spark, found.has_server) == ("pyspark", True, True)
    assert mode_here("shared") == "shared"


def test_without_any_pyspark_the_error_names_the_ways_to_get_one(install: Install) -> None:
    install()

    with pytest.raises(PySparkMissing) as refused:
        installed_pyspark()

    assert str(refused.value).startswith(f"No PySpark is installed for {sys.executable}. pip install databuild-dagster")
    assert "databuild-dagster-core[connect]" in str(refused.value)


@pytest.mark.parametrize("client", ["databricks_connect", "pyspark_client"])
def test_pyspark_beside_a_client_is_refused_by_name(install: Install, client: str) -> None:
    """Each has overwritten files of the other's module, so nothing that runs then means anything."""
    install(pyspark="4.1.0", **{client: "17.3.1"})
    named = client.replace("_", "-")

    with pytest.raises(PySparkTwice, match=f"^pyspark 4.1.0 and {named} 17.3.1 are installed together") as refused:
        check_startable(SparkSettings(mode="classic"))

    assert f"pip uninstall -y pyspark {named}" in str(refused.value)


@pytest.mark.parametrize(
    ("distribution", "version", "oldest"),
    [("pyspark", "3.4.4", "3.5"), ("databricks_connect", "14.3.1", "15.4"), ("pyspark", "2.4.8", "3.5")],
)
def test_a_pyspark_that_is_too_old_is_refused(install: Install, distribution: str, version: str, oldest: str) -> None:
    install(**{distribution: version})

    with pytest.raises(PySparkTooOld, match=f"{version} is older than {oldest}, the oldest that works"):
        check_startable(SparkSettings())


def test_a_client_beside_a_spark_home_runs_no_jvm_of_its_own(install: Install) -> None:
    install(jars=("spark-core_2.13-4.1.0.jar",), pyspark_client="4.1.0")

    with pytest.raises(NoSparkHere, match="mode='classic' needs more than pyspark-client 4.1.0"):
        open_session(SparkSettings(mode="classic"))


def test_a_pyspark_that_came_by_the_path_counts_as_pyspark(install: Install, tmp_path: Path) -> None:
    """`$SPARK_HOME/python` has no metadata of pip."""
    install()
    (tmp_path / "site-packages" / "pyspark").mkdir(parents=True)
    (tmp_path / "site-packages" / "pyspark" / "__init__.py").touch()
    (tmp_path / "site-packages" / "pyspark" / "version.py").write_text('__version__ = "4.0.1"\n')

    assert str(installed_pyspark()) == "pyspark 4.0.1"


@pytest.mark.parametrize("number", ["3.5.9", "4.0.0.dev1", "15.4.26"])
def test_every_other_version_is_let_in(install: Install, number: str) -> None:
    install(**{"databricks_connect" if number.startswith("15") else "pyspark": number})

    assert installed_pyspark().version == number


@pytest.mark.parametrize(("mode", "lacks"), [("shared", "Spark Connect server"), ("classic", "Spark of its own")])
def test_a_client_without_spark_has_no_mode_of_its_own(install: Install, mode: str, lacks: str) -> None:
    install(pyspark_client="4.1.0")

    for door in (open_session, check_startable):
        with pytest.raises(NoSparkHere) as refused:
            door(SparkSettings(mode=mode))

        assert str(refused.value).startswith(
            f"mode='{mode}' needs more than pyspark-client 4.1.0, which has no {lacks}. Use mode='sail'"
        )


def test_beside_pyspark_3_5_the_shared_mode_is_classic_and_says_so(install: Install) -> None:
    install(jars=("spark-core_2.12-3.5.9.jar",), pyspark="3.5.9")

    with pytest.warns(UserWarning, match="mode='classic' in place of 'shared'"):
        mode = mode_here("shared")

    assert (mode, mode_here("sail"), mode_here("remote")) == ("classic", "sail", "remote")


def test_a_spark_home_with_a_connect_server_makes_the_mode_shared(install: Install) -> None:
    install(jars=("spark-core_2.13-4.1.0.jar", "spark-connect_2.13-4.1.0.jar"), pyspark="4.1.0")

    assert mode_here("shared") == "shared"


def test_a_jar_that_is_only_the_client_of_connect_is_no_server(install: Install) -> None:
    install(jars=("spark-core_2.13-4.0.0.jar", "spark-connect-client-jvm_2.13-4.0.0.jar"), pyspark="4.0.0")

    with pytest.warns(UserWarning, match="brings no Spark Connect server"):
        assert mode_here("shared") == "classic"


def of_users(warnings: pytest.WarningsRecorder) -> list[str]:
    """Those that a user sees. A file that an earlier test left open warns when Python happens to collect it."""
    return [str(one.message) for one in warnings if issubclass(one.category, UserWarning)]


def test_a_server_older_than_the_pyspark_here_is_one_warning_that_says_what_to_install(
    install: Install, recwarn: pytest.WarningsRecorder
) -> None:
    install(pyspark_client="4.2.1")

    for _ in range(2):
        session._warn_if_older("sc://spark:15002", (4, 0))

    assert of_users(recwarn) == [
        "The Spark of sc://spark:15002 is 4.0, older than pyspark-client 4.2.1, and Spark supports only clients that are not "
        "newer than their server: install pyspark-client 4.0."
    ]


@pytest.mark.parametrize(
    ("client", "number", "server"),
    [("pyspark_client", "4.0.2", (4, 0)), ("pyspark", "4.0.0", (4, 3)), ("databricks_connect", "15.4.5", (3, 5))],
)
def test_a_server_as_old_as_the_pyspark_here_or_newer_is_not_spoken_of(
    install: Install, recwarn: pytest.WarningsRecorder, client: str, number: str, server: tuple[int, int]
) -> None:
    install(**{client: number})

    session._warn_if_older("sc://spark:15002", server)

    assert of_users(recwarn) == []
