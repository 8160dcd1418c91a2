"""Real errors of a Spark elsewhere become one sentence, and a retry where one may help (rule 6.8)."""

import sys

import pyspark.sql.functions as F
import pytest
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import AnalysisException
from pyspark.sql.types import LongType

from databuild_dagster.spark.failures import explain_failure, is_of_the_machine, is_transient
from databuild_dagster.spark.reach import Reach
from databuild_dagster.spark.session import active_in_thread
from databuild_dagster.spark.staging import write_attempt
from databuild_dagster.warehouse.formats import WRITTEN
from databuild_dagster.warehouse.layout import Warehouse

#: More refusals than Sail takes for one write.
MANY = 100


@pytest.fixture
def warehouse(bucket):
    return Warehouse(f"s3://{bucket}/warehouse")


def reach_of_sail(warehouse):
    """What a probe finds, without the time that it is given."""
    root = warehouse.root
    return Reach(root, root, decodes_urls=True, leaves_mark=False, names_files=False, counts_rows=False)


@pytest.mark.parametrize(
    ("status", "code", "why"),
    [
        (400, "ExpiredToken", "the credentials of that Spark have expired. Give it new ones"),
        (403, "AccessDenied", "the object store refuses it to the credentials of that Spark. Give it credentials"),
        (507, "QuotaExceeded", "the object store is full. Free some space there"),
    ],
)
def test_a_store_that_refuses_a_write_of_spark_is_no_fault_of_the_ref(sail, s3, warehouse, status, code, why):
    s3.refusals += [(status, code, ".zst.parquet")] * MANY

    with pytest.raises(Exception, match=code) as refused:
        write_attempt(sail.range(3), warehouse.new_attempt_dir("flights", "run"), reach_of_sail(warehouse), WRITTEN)

    sentence = explain_failure(refused.value)
    assert sentence.startswith(f"Spark could not use {s3.url}/{warehouse.root.removeprefix('s3://')}/flights/data/")
    assert why in sentence
    assert (is_transient(refused.value), is_of_the_machine(refused.value)) == (True, True)


def test_a_bucket_that_a_function_names_wrongly_may_be_of_one_partition(sail, s3):
    with pytest.raises(Exception, match="NoSuchBucket") as refused:
        sail.range(3).write.parquet("s3://nowhere/folder")

    assert "there is no such bucket. Create it" in explain_failure(refused.value)
    assert (is_transient(refused.value), is_of_the_machine(refused.value)) == (True, False)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("file:/srv/shop/.dagster_home/spark/57701561859c/in/1.csv", "file in/1.csv in the folder of the Spark server"),
        ("file:/tmp/databuild-spark-1000/57701561859c/in/1.csv", "file in/1.csv in the folder of the Spark server"),
        ("file:/srv/shop/data/in/1.csv", "file file:/srv/shop/data/in/1.csv"),
    ],
)
def test_a_relative_path_is_said_to_begin_in_the_folder_of_the_server(path, named):
    error = AnalysisException("no file", errorClass="PATH_NOT_FOUND", messageParameters={"path": path})

    sentence = explain_failure(error)

    assert sentence.startswith(f"There is no {named}")
    assert ("give an absolute path" in sentence) == ("/in/1.csv" not in named)


def test_a_store_that_is_slow_for_a_while_delays_a_write(sail, s3, warehouse):
    s3.delays += [(2.0, ".zst.parquet")]

    found, _ = write_attempt(
        sail.range(3), warehouse.new_attempt_dir("flights", "run"), reach_of_sail(warehouse), WRITTEN
    )

    assert (sum(file.rows for file in found[""]), s3.delays) == (3, [])


def test_a_module_that_the_workers_lack_is_named_with_what_to_do(spark, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def double(n):\n    return 2 * n\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here

    with active_in_thread(spark), pytest.raises(Exception, match="only_here") as failed:
        spark.range(3).select(F.udf(only_here.double, LongType())("id")).collect()

    sys.modules.pop("only_here")
    assert explain_failure(failed.value) == (
        "The Python workers of Spark lack the module only_here: install it there, or send its file by "
        "spark.addArtifacts('only_here.py', pyfile=True)."
    )
    assert not is_transient(failed.value)


def test_an_error_of_spark_that_asks_a_jvm_which_is_gone_is_a_lost_session():
    class Asking(PySparkException):
        """As those of a classic session do: they have an id of an object in the JVM."""

        def __str__(self):
            raise ConnectionError("Answer from Java side is empty")

    for name in ("getCondition", "getErrorClass", "getMessageParameters", "getQueryContext"):
        setattr(Asking, name, Asking.__str__)

    assert explain_failure(Asking("gone")) == (
        "The Spark server was lost during the job: the next attempt gets another session."
    )
    assert is_transient(Asking("gone"))


def test_an_executor_out_of_memory_is_named_and_retried():
    """Rule 6.8: as a standalone cluster reports it."""
    lost = PySparkException(
        "Job aborted due to stage failure: Lost task 0.0 in stage 1.0 (TID 7) (10.0.0.3 executor 2): ExecutorLostFailure "
        "(executor 2 exited caused by one of the running tasks) Reason: Command exited with code 52"
    )

    sentence = explain_failure(lost)

    assert sentence.startswith("A Spark executor (2 on 10.0.0.3) ran out of memory")
    assert "spark.executor.memory" in sentence
    assert is_transient(lost)
