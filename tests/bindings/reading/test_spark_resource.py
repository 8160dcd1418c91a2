"""The resource `DatabuildSpark` as Dagster sets it up."""

from __future__ import annotations

import tempfile
from pathlib import Path

import dagster as dg
import pytest

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
