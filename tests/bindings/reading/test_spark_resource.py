"""The resource `DatabuildSpark` as Dagster sets it up."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from databuild_dagster.bindings.reading import spark_resource
from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark
from databuild_dagster.spark import temporary


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

    def set(self, key: str, value: str) -> None:
        self.settings[key] = value

    def newSession(self) -> OfJvm:
        return OfJvm()


def test_a_further_session_of_a_jvm_has_the_settings_of_its_dagster_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_resource, "_sessions", {})
    monkeypatch.setattr(spark_resource, "open_session", lambda settings: OfJvm())
    settings = DatabuildSpark(mode="classic", spark_config={"spark.sql.ansi.enabled": "true"}).settings_at(None)
    of_run = {"spark.sql.shuffle.partitions": "3"}

    further = spark_resource._session_for(replace(settings, run_config=of_run), 1)

    assert of_run.items() <= further.settings.items()
    assert further.settings["spark.sql.ansi.enabled"] == "true"
