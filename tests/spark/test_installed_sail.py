"""A Spark without Java: the server of mode `sail`, which a home shares, and what it refuses (rule 6.8)."""

import os
import signal
from importlib.metadata import PackageNotFoundError

import pytest
from pyspark.errors import PySparkException

from databuild_dagster.spark import installed
from databuild_dagster.spark.errors import FixedSetting, SailMissing
from databuild_dagster.spark.failures import explain_failure, is_transient
from databuild_dagster.spark.sail_server import KNOWN
from databuild_dagster.spark.server import server_statuses, stop_server
from databuild_dagster.spark.session import active_in_thread, check_startable, open_session
from databuild_dagster.spark.settings import SparkSettings

from ..support.cluster import wait_until


@pytest.fixture
def settings(tmp_path, monkeypatch):
    # No Java may help.
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    yield SparkSettings(mode="sail", home=tmp_path)
    stop_server(tmp_path)


@pytest.fixture
def session(settings):
    session = open_session(settings)
    yield session
    session.stop()


def test_a_home_has_one_server_of_sail_and_needs_no_java(settings, session) -> None:
    again = open_session(settings)

    assert session.range(3).count() == again.range(3).count() == 3
    (server,) = server_statuses(settings.home)
    assert (server.version, server.in_use, server.ui_url) == (f"Sail {installed.sail_version()}", True, None)
    again.stop()


def test_a_server_of_sail_that_was_killed_is_started_again(settings, session) -> None:
    (first,) = server_statuses(settings.home)
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: not server_statuses(settings.home), "the server has ended")

    again = open_session(settings)

    assert again.range(3).count() == 3
    assert [server.pid for server in server_statuses(settings.home)] != [first.pid]
    again.stop()


def test_a_python_function_of_a_newer_pyspark_is_refused_aloud(session) -> None:
    import pyspark
    import pyspark.sql.functions as F

    if tuple(map(int, pyspark.__version__.split(".")[:2])) <= KNOWN:
        pytest.skip("Sail knows this PySpark")
    with active_in_thread(session):
        frame = session.range(3).select(F.udf(lambda n: n + 1, "long")("id"))

    with pytest.raises(PySparkException) as refused:
        frame.collect()

    assert explain_failure(refused.value).startswith(
        "This Sail runs no Python functions of this PySpark, only those of"
    )
    assert not is_transient(refused.value)


def test_sail_that_is_not_installed_is_named_before_anything_starts(settings, monkeypatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installed, "version", absent)

    with pytest.raises(
        SailMissing, match=r"^Sail is not installed for .*\. pip install 'databuild-dagster(-core)?\[sail\]', or"
    ):
        check_startable(settings)


def test_a_setting_that_is_fixed_when_spark_starts_is_refused_for_sail(tmp_path) -> None:
    settings = SparkSettings(mode="sail", home=tmp_path, config={"spark.driver.memory": "4g"})

    with pytest.raises(FixedSetting, match=r"spark\.driver\.memory is fixed .* a session of Sail cannot change it"):
        open_session(settings)
