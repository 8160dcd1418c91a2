"""A fixture for tests of assets that use Spark: `pytest_plugins = ["databuild_dagster.pytest_plugin"]` in `conftest.py`.

`databuild_spark = "sail"` in pytest's settings lets Sail serve the session, which needs no Java and starts in a second.

Importing it imports neither Dagster nor Spark: a run of tests that asks for no session does not wait for them.
"""

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SETTING = "databuild_spark"
_MODES = ("shared", "sail")
#: What `spark.temporary` looks at; its import would cost each run of tests, also one without Spark.
_FOR_SESSIONS = "DATABUILD_TEST_SPARK"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The setting `databuild_spark`, in pytest's file or by `-o databuild_spark=sail`."""
    parser.addini(
        _SETTING, "what serves databuild_dagster's Spark sessions in tests: shared or sail", default=_MODES[0]
    )


def pytest_configure(config: pytest.Config) -> None:
    """Hand the choice to the sessions of this process and of those that it starts. Raises `pytest.UsageError`."""
    chosen = config.getini(_SETTING)
    if chosen not in _MODES:
        raise pytest.UsageError(f"{_SETTING} is {chosen!r} in pytest's settings; write {' or '.join(_MODES)}.")
    os.environ[_FOR_SESSIONS] = chosen


@pytest.fixture(scope="session")
def databuild_spark() -> "SparkSession":
    """A small local Spark session: two tasks per shuffle, no UI, times in UTC.

    It is also the session of assets that are materialized with an ephemeral Dagster instance, as
    `dg.materialize([…])` does. Its server belongs to this process and ends with it.
    """
    from databuild_dagster.bindings.reading.spark_resource import temporary_session

    session: SparkSession = temporary_session()
    return session
