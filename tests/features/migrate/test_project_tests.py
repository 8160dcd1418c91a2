"""The tests of a migrated project stay green but for a few lines, and the report names these lines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from databuild_dagster.features.migrate.findings import Action
from databuild_dagster.features.migrate.review import review_project

DEFINITIONS = """
import dagster as dg
import pandas as pd
from dagster_pyspark import PySparkResource
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import build_definitions, databuild_asset, databuild_multi_asset

daily = dg.DailyPartitionsDefinition("2024-03-01", end_date="2024-03-04")


class Api(dg.ConfigurableResource):
    def rows(self, day: str) -> list:
        raise RuntimeError("no network in tests")


class Limits(dg.Config):
    least: float = 0.0


@databuild_asset(partitions_def=daily)
def raw(context: dg.AssetExecutionContext, config: Limits, api: Api, pyspark: PySparkResource) -> DataFrame:
    rows = [row for row in api.rows(context.partition_key) if row[1] >= config.least]
    return pyspark.spark_session.createDataFrame(rows, "city string, km double")


@databuild_multi_asset(outs={"trips": dg.AssetSpec("trips"), "rest": dg.AssetSpec("rest")}, partitions_def=daily)
def split(raw: DataFrame) -> dict[str, DataFrame]:
    return {"trips": raw.filter("km > 0"), "rest": raw.filter("km <= 0")}


@databuild_asset
def stations(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("bern", 2)], "city string, stations int")


@databuild_asset(partitions_def=daily)
def by_city(trips: DataFrame, stations: DataFrame) -> DataFrame:
    if trips.isEmpty():
        raise ValueError("no trips")
    return trips.groupBy("city").sum("km").join(stations, "city", "left")


@databuild_asset(partitions_def=daily)
def report(by_city: DataFrame) -> pd.DataFrame:
    return by_city.toPandas()


spark = PySparkResource(spark_config={})
defs = build_definitions([raw, split, stations, by_city, report], resources={"api": Api()}, spark=spark)
"""

TESTS = """
import dagster as dg
import pytest
from dagster_pyspark import PySparkResource
from pyspark.sql import SparkSession

from definitions import Api, Limits, by_city, defs, raw, report, split, stations

DAY = "2024-03-01"


class FakeApi(Api):
    def rows(self, day):
        return [("bern", 2.0), ("bern", 3.0), ("thun", -1.0)]


class EmptyApi(Api):
    def rows(self, day):
        return [("thun", -1.0)]


@pytest.fixture(scope="session")
def spark():
    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def resources(spark):
    return {"api": FakeApi(), "pyspark": PySparkResource(spark_config={})}


def test_a_direct_call_sets_resources_up(spark):
    context = dg.build_asset_context(partition_key=DAY)
    found = raw(context, Limits(least=0.0), api=FakeApi(), pyspark=PySparkResource(spark_config={}))
    assert found.count() == 2


def test_a_direct_call_with_frames(spark):
    trips = spark.createDataFrame([("bern", 1.0)], "city string, km double")
    known = spark.createDataFrame([("bern", 2)], "city string, stations int")
    assert by_city(trips, known).collect()[0]["sum(km)"] == 1.0


def test_a_direct_call_of_several_outputs(spark):
    trips, rest = split(spark.createDataFrame([("bern", 1.0), ("thun", -1.0)], "city string, km double"))
    assert rest.count() == 1


def test_a_value_after_the_run(resources):
    result = dg.materialize([stations], resources=resources)
    assert result.asset_value("stations").count() == 1
    assert result.output_for_node("stations").collect()[0].city == "bern"


def test_a_whole_day(resources):
    result = dg.materialize([raw, split, stations, by_city, report], partition_key=DAY, resources=resources)
    assert result.asset_value("report")["sum(km)"].tolist() == [5.0]
    assert result.asset_value("by_city").columns == ["city", "sum(km)", "stations"]


def test_the_error_of_an_author(resources):
    resources["api"] = EmptyApi()
    with pytest.raises(ValueError):
        dg.materialize([raw, split, stations, by_city], partition_key=DAY, resources=resources)


def test_the_config_of_a_run(resources):
    config = {"ops": {"raw": {"config": {"least": -5.0}}}}
    result = dg.materialize([raw], partition_key=DAY, resources=resources, run_config=config)
    assert result.asset_value("raw").count() == 3


def test_the_definitions_load():
    assert defs.resolve_job_def("__ASSET_JOB")
"""

#: The lines of the tests that change, with what is written for them.
CHANGES = {
    "import pytest\n": "import pytest\nfrom databuild_dagster import NotBuilt\n",
    "    trips, rest = split(": "    found = split(",
    "    assert rest.count()": '    assert found["rest"].count()',
    'output_for_node("stations")': 'output_for_node("stations", "stations")',
    "    with pytest.raises(ValueError):": "    with pytest.raises(NotBuilt) as raised:",
    "[raw, split, stations, by_city], partition_key=DAY, resources=resources)\n": "[raw, split, stations, by_city], partition_key=DAY, "
    "resources=resources)\n    assert isinstance(raised.value.__cause__, ValueError)\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "definitions.py").write_text(DEFINITIONS)
    (tmp_path / "tests" / "test_assets.py").write_text(TESTS)
    return tmp_path


def test_the_report_names_the_lines_of_tests_to_change(project: Path) -> None:
    report = review_project(project)

    assert (report.n_files, report.n_tests, report.is_done) == (1, 1, False)
    assert [(finding.action, finding.found[:22]) for finding in report.others] == [
        (Action.ADD, ""),
        (Action.CHANGE, "trips, rest = split(sp"),
        (Action.CHANGE, "result.output_for_node"),
        (Action.CHANGE, "pytest.raises(ValueErr"),
    ]
    assert {finding.path for finding in report.others} == {"tests/test_assets.py"}


def test_tests_with_the_changes_leave_nothing_to_change(project: Path) -> None:
    (project / "tests" / "test_assets.py").write_text(changed())

    assert review_project(project).is_done


@pytest.mark.long("the tests of a project make a Spark session of their own, in their own process")
def test_eight_tests_of_a_migrated_project_pass_with_six_changed_lines(project: Path) -> None:
    (project / "tests" / "test_assets.py").write_text(changed())
    # PySpark writes the server of this process into its environment.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    environment = {**inherited, "PYTHONPATH": os.pathsep.join([str(project), *sys.path])}

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "tests"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
    )

    assert len(CHANGES) <= 6
    assert "8 passed" in done.stdout, done.stdout + done.stderr


def changed() -> str:
    text = TESTS
    for line, written in CHANGES.items():
        assert text.count(line) == 1, line
        text = text.replace(line, written)
    return text
