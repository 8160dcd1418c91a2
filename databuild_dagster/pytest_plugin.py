"""A fixture for tests of assets that use Spark: `pytest_plugins = ["databuild_dagster.pytest_plugin"]` in `conftest.py`.

Importing it imports neither Dagster nor Spark: a run of tests that asks for no session does not wait for them.
"""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def databuild_spark() -> "SparkSession":
    """A small local Spark session: two tasks per shuffle, no UI, times in UTC.

    It is also the session of assets that are materialized with an ephemeral Dagster instance, as
    `dg.materialize([…])` does. Its server belongs to this process and ends with it.
    """
    from databuild_dagster.bindings.reading.spark_resource import temporary_session

    session: SparkSession = temporary_session()
    return session
