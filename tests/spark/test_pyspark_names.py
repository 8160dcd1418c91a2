"""Every name of PySpark that it does not promise still does what we use it for; an upgrade breaks here first."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from databuild_dagster.spark import pyspark_names as names
from databuild_dagster.spark.errors import PySparkDiffers
from databuild_dagster.spark.session import open_session
from databuild_dagster.spark.settings import SparkSettings


@pytest.fixture(scope="module")
def spark(spark_home: str) -> SparkSession:
    return open_session(SparkSettings(home=spark_home))


def test_the_class_of_a_jvms_context_has_the_names_that_a_dead_one_is_forgotten_by() -> None:
    context = names.context_class()

    assert {"_active_spark_context", "_gateway", "_jvm"} <= set(vars(context))


class ErrorOfSpark3:
    """An error of PySpark 3.5, which has neither `getCondition` nor `getQueryContext`."""

    def getErrorClass(self) -> str:  # noqa: N802
        return "PATH_NOT_FOUND"


def test_an_error_of_spark_3_5_has_a_condition_and_no_place() -> None:
    assert names.condition_of(ErrorOfSpark3()) == "PATH_NOT_FOUND"
    assert names.query_contexts(ErrorOfSpark3()) == []


class ClientOfSpark3:
    """A client of PySpark 3.5 reads its retries at each call."""

    def __init__(self) -> None:
        self._retry_policy: dict[str, Any] = {"max_retries": 15, "min_jitter_threshold": 2000}


def test_a_client_of_spark_3_5_gives_up_after_two_seconds_as_well() -> None:
    client: Any = ClientOfSpark3()

    names.shorten_retries(client)

    assert client._retry_policy["max_retries"] == 4
    assert client._retry_policy["min_jitter_threshold"] == 2000


def test_frames_of_spark_are_known_among_all_others() -> None:
    connect = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})
    on_spark = type("DataFrame", (), {"__module__": "pyspark.pandas.frame"})

    assert names.is_spark_frame(connect())
    assert not any(map(names.is_spark_frame, (on_spark(), pd.DataFrame(), pa.table({}), None)))


@pytest.mark.parametrize(
    ("frame_of", "has_few"),
    [
        (lambda spark: spark.createDataFrame(pa.table({"n": [1]})), True),
        (lambda spark: spark.createDataFrame([(1, "a")], "n int, word string"), True),
        (lambda spark: spark.createDataFrame([], "n int"), True),
        (lambda spark: spark.createDataFrame(pa.table({"word": ["x" * 200] * 50_000})), True),
        (lambda spark: spark.createDataFrame(pa.table({"word": ["x" * 200] * 100_000})), False),
        (lambda spark: spark.createDataFrame([(1,)], "n int").filter("n > 0"), False),
        (lambda spark: spark.range(3), False),
        (lambda spark: object.__new__(ClientOfSpark3), False),
    ],
    ids=["Arrow", "tuples", "no rows", "10 MB", "20 MB", "computed", "a range", "no client"],
)
def test_a_frame_of_few_rows_of_this_process_is_known(spark: SparkSession, frame_of: Any, has_few: bool) -> None:
    assert names.has_few_rows_of_ours(frame_of(spark)) is has_few


@pytest.mark.parametrize("n_rows", [1, 20_000])
def test_a_client_of_sail_sends_the_same_rows_compressed(sail: Any, n_rows: int) -> None:
    words = pa.array([None if n % 7 == 0 else f"word {n % 9}" for n in range(n_rows)], pa.string())
    rows = pa.table({"n": pa.array(range(n_rows), pa.int64()), "word": words})
    names.compress_rows(sail)

    frame = sail.createDataFrame(rows)

    assert frame.orderBy("n").toArrow().cast(rows.schema).equals(rows)
    assert n_rows < 2 or frame._plan.to_proto(sail.client).ByteSize() < rows.nbytes / 4


def test_a_frame_of_a_client_of_sail_does_not_keep_the_table(sail: Any) -> None:
    names.compress_rows(sail)
    held = pa.total_allocated_bytes()

    frame = sail.createDataFrame(pa.table({"word": ["x" * 200] * 50_000}))

    assert pa.total_allocated_bytes() - held < 1_000_000
    assert names.has_few_rows_of_ours(frame)
    assert [frame.count(), frame.count()] == [50_000, 50_000]


class SessionOfTomorrow:
    """A client's session without one of the names."""

    _active_session = None
    session_id = "1"

    class client:  # noqa: N801
        _builder = _user_id = None


def test_a_session_without_a_needed_name_is_refused_with_the_name() -> None:
    session: Any = SessionOfTomorrow()

    with pytest.raises(PySparkDiffers, match="lacks a name that this version of databuild_dagster uses: .*_session_id"):
        names.check_client(session)


@pytest.mark.parametrize(("count", "found"), [(0, None), (1, ["a"]), (2, ["a", "b"])])
def test_the_smallest_values_of_a_column_are_bounded(spark: SparkSession, count: int, found: list[str] | None) -> None:
    values = StructType([StructField("value", StringType())])
    frame = spark.createDataFrame([("c",), ("a",), (None,), ("b",)], values)

    row = frame.agg(names.smallest(frame.value, count, spark).alias("smallest")).collect()[0]

    assert row.smallest == found


class SessionOfAnOlderServer:
    version = "4.0.1.dev0"


def test_a_server_whose_spark_cannot_bound_them_gives_the_smallest_alone(spark: SparkSession) -> None:
    """What the client knows and the server does not must not reach it."""
    older: Any = SessionOfAnOlderServer()
    frame = spark.createDataFrame([("c",), ("a",), ("b",)], ["value"])

    row = frame.agg(names.smallest(frame.value, 2, older).alias("smallest")).collect()[0]

    assert row.smallest == ["a"]
