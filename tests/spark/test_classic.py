"""A session inside the process: in a subprocess here, since PySpark allows one kind per process."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys, uuid
from databuild_dagster.spark import *
from databuild_dagster.warehouse import Warehouse
import pyspark.sql.functions as F

settings = SparkSettings(mode="classic", home=sys.argv[1], config={"spark.driver.memory": "1g"})
spark = open_session(settings)
warehouse = Warehouse(sys.argv[1])

def write(frame):
    return write_instance(frame, warehouse, ref="a@1", uuid=str(uuid.uuid4()), job_run="j")

some, none = write(spark.range(3).coalesce(1)), write(spark.range(3).where("id > 9"))
assert (some.state, some.rows, none.state, none.files) == ("complete", 3, "empty", ())
assert read_instances(spark, warehouse, [some, none]).agg(F.sum("id")).first()[0] == 3
assert read_instances(spark, warehouse, [none]).schema == read_instances(spark, warehouse, [some]).schema
try:
    spark.range(3).select("idd")
except Exception as error:
    print(explain_failure(error), is_transient(error))
with tag_operations(spark, "t"):
    assert spark.range(3).count() == 3
assert interrupt(spark, "t") == ()
try:
    open_session(SparkSettings(home=sys.argv[1]))
except SessionModesMixed as error:
    print(error)
"""


@pytest.mark.long
def test_a_classic_session_writes_reads_and_explains_as_a_shared_one_does(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0].startswith("There is no column `idd`; there is `id`")
    assert said[0].endswith("False")
    assert said[1].startswith("This process has a classic Spark session already, so it cannot open a shared one.")
