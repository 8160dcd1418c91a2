"""A soak excuses a failed job run only for what its killed and frozen processes cause."""

import pytest

from bench.soak.judgment import _of_a_trouble
from databuild_dagster.spark.errors import ServerFailed, SparkUnreachable
from databuild_dagster.spark.failures import explain_failure
from databuild_dagster.store.errors import StoreDamaged, StoreSilent
from databuild_dagster.warehouse.errors import ListedFileLost


@pytest.mark.parametrize(
    "error",
    [
        SparkUnreachable(host="127.0.0.1", port=15002, why="Connection refused"),
        ServerFailed(why="it was killed", log="/home/spark/server.log"),
        StoreSilent(url="postgresql://127.0.0.1/soak", why="no answer\nwithin 30 s"),
    ],
)
def test_the_errors_of_a_killed_or_frozen_process_are_excused(error: Exception) -> None:
    assert _of_a_trouble(explain_failure(error))


def test_a_spark_server_that_is_killed_in_a_job_is_excused() -> None:
    assert _of_a_trouble("The Spark server was lost during the job: the next attempt gets another session.")


@pytest.mark.parametrize(
    "error",
    [
        "AssertionError: 3 rows are lost",
        "A Python function in Spark raised ValueError: the server's answer is gone",
        "ValueError: No Spark server answers at 127.0.0.1:1 (why).",
        "",
        ListedFileLost(path="/w/a.parquet", why="it is not there"),
        StoreDamaged(url="sqlite:///x", why="a page of the build state is torn", restore="cp"),
    ],
)
def test_a_failure_that_only_has_a_word_of_them_is_a_violation(error: object) -> None:
    assert not _of_a_trouble(explain_failure(error) if isinstance(error, Exception) else str(error))
