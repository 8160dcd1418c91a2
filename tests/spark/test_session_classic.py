"""A session inside the process: in a subprocess here, since PySpark allows one kind per process."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading, uuid
from dataclasses import replace
from databuild_dagster.spark.errors import SessionModesMixed
from databuild_dagster.spark.failures import explain_failure, is_transient
from databuild_dagster.spark.frames import read_instances
from databuild_dagster.spark.session import abandon, interrupt, open_session, spark_ui_url, tag_operations, ui_urls
from databuild_dagster.spark.settings import SparkSettings
from tests.support.instances import write_instance
from databuild_dagster.warehouse.layout import Warehouse
import pyspark.sql.functions as F
from pyspark import SparkContext

settings = SparkSettings(mode="classic", home=sys.argv[1], config={"spark.driver.memory": "1g"})
spark = open_session(settings)
warehouse = Warehouse(sys.argv[1])
context = SparkContext._active_spark_context
assert ui_urls(sys.argv[1]) == [context.uiWebUrl]
SparkContext._active_spark_context = SparkContext.__new__(SparkContext)  # As while the JVM starts.
assert ui_urls(sys.argv[1]) == []
SparkContext._active_spark_context = context

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
try:
    open_session(replace(settings, master="local[3]"))
except SessionModesMixed as error:
    print(error)

of_one_run = open_session(replace(settings, run_config={"spark.sql.shuffle.partitions": "3"}))
assert [session.conf.get("spark.sql.shuffle.partitions") for session in (of_one_run, spark)] == ["3", "8"]
assert spark_ui_url(spark).startswith("http://127.0.0.1:")

# By tag, from another thread, and no other's.
failures = []
def work(tag):
    with tag_operations(spark, tag):
        try:
            spark.sql("select count(slept) from (select reflect('java.lang.Thread', 'sleep', 20L) as slept from range(9000000000))").collect()
        except Exception as error:
            failures.append((tag, explain_failure(error), is_transient(error)))
threads = {tag: threading.Thread(target=work, args=(tag,), daemon=True) for tag in "ab"}
for thread in threads.values():
    thread.start()
pause, tracker = threading.Event(), spark.sparkContext.statusTracker()
for _ in range(600):
    if len(tracker.getActiveJobsIds()) == 2:
        break
    pause.wait(0.1)
interrupt(spark, "a")
threads["a"].join(30)
assert threads["b"].is_alive() and not threads["a"].is_alive()
interrupt(spark, "b")
threads["b"].join(30)
assert failures == [(tag, "The Spark job was interrupted.", True) for tag in "ab"], failures

# A living one is not given up; one whose context was stopped, or whose JVM was killed, gives way to another.
abandon(spark)
assert spark.range(3).count() == 3
spark.sparkContext._jsc.sc().stop()
abandon(spark)
again = open_session(settings)
assert again.range(3).count() == 3
again.sparkContext._gateway.proc.kill()
try:
    with tag_operations(again, "t"):
        again.range(3).count()
except Exception as error:
    print(is_transient(error), explain_failure(error))
abandon(again)
assert open_session(settings).range(3).count() == 3
"""


@pytest.mark.long("the JVM of a process is there once")
@pytest.mark.extended
def test_a_classic_session_writes_reads_and_explains_as_a_shared_one_does(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)

    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0].startswith("There is no column `idd`; there is `id`")
    assert said[0].endswith("False")
    assert said[1].startswith("This process has a classic Spark session already, so it cannot open a shared one.")
    assert "a classic (local[*]) Spark session already, so it cannot open a classic (local[3]) one" in said[2]
    assert said[3] == "True The Spark server was lost during the job: the next attempt gets another session."
