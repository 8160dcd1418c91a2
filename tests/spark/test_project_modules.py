"""Which modules are sent to Spark's workers, and where a JVM of this process imports from."""

import os
import sys
from importlib import import_module
from pathlib import Path

import pytest
from pyspark import cloudpickle

from databuild_dagster.spark import project_modules
from databuild_dagster.spark.project_modules import send_project_modules, workers_import_path


def test_modules_of_the_project_are_sent_and_installed_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_project_of_its_own.py").write_text("def triple(n):\n    return n * 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    import_module("a_project_of_its_own")
    monkeypatch.setattr(project_modules, "_seen", set())
    before = cloudpickle.list_registry_pickle_by_value()

    try:
        send_project_modules()
        sent = cloudpickle.list_registry_pickle_by_value()

        assert "a_project_of_its_own" in sent
        assert not sent & {
            "json",
            "pandas",
            "pyspark",
            "dagster",
            "databuild_dagster",
            "databuild_dagster.spark.session",
        }
    finally:
        for name in cloudpickle.list_registry_pickle_by_value() - before:
            cloudpickle.unregister_pickle_by_value(sys.modules[name])


def test_workers_import_from_the_folders_of_the_project_and_those_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/given")

    with workers_import_path():
        inside = os.environ["PYTHONPATH"].split(os.pathsep)

    assert (inside[0], inside[-1], os.environ["PYTHONPATH"]) == (str(tmp_path), "/given", "/given")
    assert not any("site-packages" in folder for folder in inside)
