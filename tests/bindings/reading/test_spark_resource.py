"""The resource `DatabuildSpark` as Dagster sets it up."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from databuild_dagster.bindings.reading import spark_resource
from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark
from databuild_dagster.spark import temporary
from tests.support.child_environment import child_environment


@pytest.fixture
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That of a process which has opened no session yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temporary, "_folders", {})
    return tmp_path


def test_a_resource_that_opens_no_session_leaves_no_folder_behind(temporary_folder: Path) -> None:
    """Dagster sets resources up for ephemeral instances too, and a killed process removes nothing."""
    with dg.build_resources({"spark": DatabuildSpark()}):
        pass

    assert list(temporary_folder.glob("databuild-spark-*")) == []


class OfJvm:
    """A session in a JVM of this process."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.conf = self
        self.newSession = OfJvm

    def set(self, key: str, value: str) -> None:
        self.settings[key] = value


@pytest.fixture
def of_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_resource, "_sessions", {})
    monkeypatch.setattr(spark_resource, "open_session", lambda settings: OfJvm())


@pytest.mark.usefixtures("of_jvm")
def test_a_further_session_of_a_jvm_has_the_settings_of_its_dagster_run() -> None:
    settings = DatabuildSpark(mode="classic", spark_config={"spark.sql.ansi.enabled": "true"}).settings_at(None)
    of_run = {"spark.sql.shuffle.partitions": "3"}

    further = spark_resource._session_for(replace(settings, run_config=of_run), 1)

    assert of_run.items() <= further.settings.items()
    assert further.settings["spark.sql.ansi.enabled"] == "true"


@pytest.mark.usefixtures("of_jvm")
def test_a_spark_that_was_away_is_opened_again_for_all_launches() -> None:
    spark = DatabuildSpark(mode="classic")
    settings = spark.settings_at("here")
    before = [spark_resource._session_for(settings, number) for number in (0, 1)]
    elsewhere = spark_resource._session_for(spark.settings_at("elsewhere"), 1)

    spark.leave_session_at("here")

    after = [spark_resource._session_for(settings, number) for number in (0, 1)]
    assert not {*before} & {*after}
    assert spark_resource._session_for(spark.settings_at("elsewhere"), 1) is elsewhere


#: Two launches beside each other lose the context of their JVM; the second one finds out when the first has opened another.
LOST_TWICE = """
import sys
from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark, _forget, _session_for

settings = DatabuildSpark(mode="classic").settings_at(sys.argv[1])
first, second = (_session_for(settings, number) for number in (0, 1))
first.sparkContext._jsc.sc().stop()
_forget(settings, 0)
again = _session_for(settings, 0)
_forget(settings, 1)
print(again.range(3).count(), _session_for(settings, 1).range(4).count())
"""


@pytest.mark.long("PySpark keeps its mode for a whole process")
def test_a_launch_that_lost_its_session_leaves_the_context_of_another_launch_alone(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOST_TWICE, str(tmp_path)], env=child_environment(), capture_output=True, text=True
    )

    assert done.stdout == "3 4\n", done.stderr
