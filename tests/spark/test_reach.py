"""What a session and this process both see, and what each engine answers (rule 10.9)."""

import os
import re

import pytest

from databuild_dagster.spark import reach
from databuild_dagster.spark.errors import SparkRunsNoJob, StoreRefusesSpark, WarehouseOutOfReach
from databuild_dagster.spark.failures import is_transient
from databuild_dagster.spark.reach import Reach, check_reach, in_place, reach_of
from databuild_dagster.warehouse.layout import Warehouse

#: More refusals than one probe takes: Sail tries a write eleven times.
MANY = 100


@pytest.fixture(autouse=True)
def on_a_busy_machine(monkeypatch):
    """A probe has more time here than a person has."""
    monkeypatch.setattr(reach, "MAX_PROBE_SECONDS", 60.0)


def test_a_spark_without_our_disk_reaches_a_bucket(sail, s3, bucket):
    root = f"s3://{bucket}/warehouse"

    found = reach_of(sail, root, "sc://elsewhere")

    assert found == Reach(
        root,
        root,
        decodes_urls=True,
        leaves_mark=False,
        names_files=False,
        counts_rows=False,
        coalesces=False,
        reads_keys=True,
    )
    assert s3.keys(bucket) == []


def test_a_spark_without_our_disk_does_not_reach_a_folder(sail, tmp_path):
    with pytest.raises(WarehouseOutOfReach) as refused:
        reach_of(sail, str(tmp_path), "sc://elsewhere")

    assert refused.value.message == (
        f"The warehouse {tmp_path} cannot be shared with this process by the Spark of sc://elsewhere: "
        f"Spark wrote a file into {tmp_path}, and this process does not see it."
    )


def test_a_bucket_that_is_not_there_is_named_with_the_reason(sail, s3):
    with pytest.raises(
        WarehouseOutOfReach,
        match=r"s3://nowhere/warehouse cannot be written by .*: there is no such bucket\. Create it",
    ):
        reach_of(sail, "s3://nowhere/warehouse", "sc://elsewhere")


def test_a_store_that_refuses_spark_is_one_sentence_with_what_to_do(sail, s3, bucket):
    """The other refusals are those of tests/spark/test_failures.py."""
    root = f"s3://{bucket}/warehouse"
    s3.refusals += [(503, "SlowDown", ".zst.parquet")] * MANY

    with pytest.raises(StoreRefusesSpark) as refused:
        reach_of(sail, root, "sc://elsewhere")

    assert str(refused.value).startswith(
        f"The warehouse {root} cannot be written by the Spark of sc://elsewhere: the object store did not answer that "
        "Spark as it should. Check the store"
    )


def test_a_refusal_is_not_kept_for_the_next_check(sail, s3, bucket):
    warehouse = Warehouse(f"s3://{bucket}/warehouse")
    s3.refusals += [(403, "AccessDenied", ".zst.parquet")] * MANY
    with pytest.raises(StoreRefusesSpark):
        check_reach(sail, warehouse)
    s3.refusals.clear()

    check_reach(sail, warehouse)

    assert in_place(sail, warehouse) is not None


def test_a_spark_that_runs_no_job_in_time_is_one_sentence_and_the_next_check_asks_again(running_sail, sail, s3, bucket):
    warehouse = Warehouse(f"s3://{bucket}/warehouse")

    with running_sail.frozen(), pytest.raises(SparkRunsNoJob) as refused:
        check_reach(sail, warehouse, start_seconds=0)

    assert re.fullmatch(
        r"The Spark of sc://\S+ runs no job: a job of one row is not done after 0 s\. Check that it has workers, .*",
        str(refused.value),
    )
    assert is_transient(refused.value)
    check_reach(sail, warehouse)


def test_a_spark_that_runs_no_job_in_time_is_not_taken_for_one_that_shares_a_disk(running_sail, sail, s3, bucket):
    """It would get paths of this process's disk, and be blamed for not reading them."""
    with running_sail.frozen(), pytest.raises(SparkRunsNoJob):
        in_place(sail, Warehouse(f"s3://{bucket}/warehouse"), start_seconds=0)


def test_a_session_is_probed_once_per_root(sail, s3, bucket):
    first = reach_of(sail, f"s3://{bucket}/warehouse", "sc://elsewhere")
    s3.requests.clear()

    again = reach_of(sail, f"s3://{bucket}/warehouse", "sc://elsewhere")

    assert (again, s3.requests) == (first, [])


def test_a_file_is_found_under_the_name_that_the_session_has_for_it(sail, s3, bucket):
    found = reach_of(sail, f"s3://{bucket}/ware house", "sc://elsewhere")
    folder = f"{found.root}/caf%C3%A9 [old]/partition_key=05:00%25"

    sail.range(3).write.parquet(found.url_of(folder))

    (key,) = s3.keys(bucket)
    assert f"s3://{bucket}/{key}".startswith(f"{folder}/")
    assert sail.read.schema("id long").parquet(found.url_of(f"s3://{bucket}/{key}")).count() == 3


def test_a_local_spark_reaches_a_folder(spark, tmp_path):
    root = str(tmp_path / "ware [house]* {x}")

    found = reach_of(spark, root, "local", start_seconds=120)

    assert found == Reach(root, root, decodes_urls=False, leaves_mark=False, names_files=True, counts_rows=True)
    assert os.listdir(root) == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("s3://bucket/warehouse/a%41/part-0.parquet", "s3a://bucket/warehouse/a%2541/part-0.parquet"),
        ("s3://earlier/warehouse/part-0.parquet", "s3a://earlier/warehouse/part-0.parquet"),
        ("abfss://box@us.dfs.core.windows.net/part-0.parquet", "abfss://box@us.dfs.core.windows.net/part-0.parquet"),
        ("/data/a%41/part-0.parquet", "/data/a%41/part-0.parquet"),
    ],
)
def test_a_file_of_an_earlier_root_is_named_as_those_of_the_root(path, name):
    reach = Reach(
        "s3://bucket/warehouse",
        "s3a://bucket/warehouse",
        decodes_urls=True,
        leaves_mark=False,
        names_files=False,
        counts_rows=False,
    )

    assert reach.url_of(path) == name
