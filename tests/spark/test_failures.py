"""Real errors of a Spark elsewhere become one sentence, and a retry where one may help (rule 6.8)."""

import pytest

from databuild_dagster.spark.attempt import write_attempt
from databuild_dagster.spark.failures import explain_failure, is_of_the_machine, is_transient
from databuild_dagster.spark.reach import in_place
from databuild_dagster.warehouse.formats import WRITTEN
from databuild_dagster.warehouse.layout import Warehouse

pytestmark = pytest.mark.long

#: More refusals than Sail takes for one write.
MANY = 100


@pytest.fixture
def warehouse(bucket):
    return Warehouse(f"s3://{bucket}/warehouse")


@pytest.mark.parametrize(
    ("status", "code", "why"),
    [
        (400, "ExpiredToken", "the credentials of that Spark have expired. Give it new ones"),
        (403, "AccessDenied", "the object store refuses it to the credentials of that Spark. Give it credentials"),
        (507, "QuotaExceeded", "the object store is full. Free some space there"),
    ],
)
def test_a_store_that_refuses_a_write_of_spark_is_no_fault_of_the_ref(sail, s3, warehouse, status, code, why):
    reach = in_place(sail, warehouse)
    s3.refusals += [(status, code, ".zst.parquet")] * MANY

    with pytest.raises(Exception, match=code) as refused:
        write_attempt(sail.range(3), warehouse.new_attempt_dir("flights", "run"), reach, WRITTEN)

    sentence = explain_failure(refused.value)
    assert sentence.startswith(f"Spark could not use {s3.url}/{warehouse.root.removeprefix('s3://')}/flights/data/")
    assert why in sentence
    assert (is_transient(refused.value), is_of_the_machine(refused.value)) == (True, True)


def test_a_bucket_that_a_function_names_wrongly_may_be_of_one_partition(sail, s3):
    with pytest.raises(Exception, match="NoSuchBucket") as refused:
        sail.range(3).write.parquet("s3://nowhere/folder")

    assert "there is no such bucket. Create it" in explain_failure(refused.value)
    assert not is_of_the_machine(refused.value)
