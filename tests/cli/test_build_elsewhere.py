"""Builds by a Spark that shares no disk with this process (rule 16.25 of the specification)."""

import pytest

from databuild_dagster.bindings.reading.spark_resource import close_sessions

from .conftest import Project

pytestmark = pytest.mark.long

DEFINITIONS = """
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import DatabuildSpark, build_definitions, databuild_asset


@databuild_asset
def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(3)


defs = build_definitions([numbers], spark=DatabuildSpark(mode="remote", url={url!r}), warehouse={warehouse!r})
"""


@pytest.fixture(autouse=True)
def closed_sessions():
    yield
    close_sessions()


def test_a_spark_that_sees_no_disk_of_ours_is_refused_at_once(project: Project, running_sail) -> None:
    warehouse = str(project.folder / "warehouse")
    project.define(DEFINITIONS.format(url=running_sail.url, warehouse=warehouse))

    done = project.call("build", "numbers")

    assert done.code == 2, done.err
    assert (
        f"The warehouse {warehouse} cannot be shared with this process by the Spark of {running_sail.url}" in done.err
    )
    assert "Traceback" not in done.err
    assert (project.queries.job_runs(), project.queries.wants()) == ([], [])
