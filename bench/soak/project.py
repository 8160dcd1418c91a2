"""The project that a soak builds: a chain with dep misses at run time, a batched asset, files that arrive,
and an operation."""

from databuild_dagster.model.refs import Ref, asset_of, partition_key_of

N_KEYS = 150
#: Each raw partition has so many rows.
N_ROWS = 10
ASSETS = ("raw", "clean", "scored", "joined")
#: The folder in which files arrive, and their days.
LANDING = "landing"
ARRIVALS = [f"2013-01-{day:02}" for day in range(1, 13)]

DEFINITIONS = '''
import time

import dagster as dg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from databuild_dagster import (
    BuildContext,
    DatabuildSpark,
    DistributedOperation,
    build_definitions,
    databuild_asset,
    databuild_boundary,
)
from witness import witnessed

arrived = databuild_boundary(
    "arrived",
    partitions_def=dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-03-01"),
    files="landing/{time:%Y%m%d}-*.parquet",
    settle_seconds=2,
    interval_seconds=10,
)
keys = dg.StaticPartitionsDefinition([f"{number:03}" for number in range(150)])


@databuild_asset(partitions_def=keys)
def raw(context: BuildContext, spark: SparkSession) -> DataFrame:
    with witnessed(context):
        return spark.range(10).select((F.col("id") * int(context.partition_key)).alias("value"))


@databuild_asset(partitions_def=keys)
def clean(raw: DataFrame, context: BuildContext) -> DataFrame:
    with witnessed(context):
        assert raw.count() == 10
        return raw.where("value % 2 = 0")


@databuild_asset(partitions_def=keys, batched=True)
def scored(clean: DataFrame, context: BuildContext) -> DataFrame:
    with witnessed(context):
        return clean.groupBy("partition_key").agg(F.sum("value").alias("score"))


@databuild_asset(partitions_def=keys)
def joined(clean: DataFrame, context: BuildContext) -> DataFrame:
    # Which neighbour it reads cannot be known before.
    neighbour = context.read(f"raw@{(int(context.partition_key) + 75) % 150:03}")
    with witnessed(context):
        return clean.union(neighbour).agg(F.sum("value").alias("total"))


class Count(DistributedOperation):
    """Counts the rows of each partition."""

    type_name = "count"

    def start_or_resume_job(self, arg, partition, context):
        time.sleep(0.5)
        context.mark_job_complete(True, {"rows": context.manifest.rows})

    def complete_operation(self, arg, dataset, completion):
        return {"rows": sum(mark.detail["rows"] for mark in completion.marks.values())}


spark = DatabuildSpark(spark_config={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"})
defs = build_definitions([raw, clean, scored, joined, arrived], operations=[Count()], location="soak", spark=spark)
'''

#: What the assets' functions leave behind; a line is one write, so that processes do not mix theirs.
WITNESS = '''
"""A line when a call of an asset's function begins and one when it ends; one more where two live processes meet."""

import os
import time
import uuid
from contextlib import contextmanager
from pathlib import Path

LINES = Path(__file__).with_name("witness.log")


def tell(*words):
    with open(LINES, "ab", buffering=0) as file:
        file.write((" ".join(map(str, words)) + "\\n").encode())


def began(pid):
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


@contextmanager
def witnessed(context):
    call, me = uuid.uuid4(), os.getpid()
    refs = [str(ref) for ref in context.refs]
    before = [line.split() for line in LINES.read_text().splitlines()] if LINES.exists() else []
    ended = {line[2] for line in before if line[0] == "end"}
    for what, ref, other, pid, since, *_ in before:
        if what == "start" and ref in refs and other not in ended and began(int(pid)) == since:
            tell("met", ref, call, me, began(me), time.time(), pid)
    for ref in refs:
        tell("start", ref, call, me, began(me), time.time())
    try:
        # Long enough to be hit in the middle of it.
        time.sleep(1.0)
        yield
    finally:
        for ref in refs:
            tell("end", ref, call, me, began(me), time.time())
'''


def expected(ref: Ref) -> list[int]:
    """The first column of what a ref is to hold, sorted."""

    def raw(key: int) -> list[int]:
        return [number * key for number in range(N_ROWS)]

    def clean(key: int) -> list[int]:
        return [value for value in raw(key) if value % 2 == 0]

    key = int(partition_key_of(ref) or "")
    match asset_of(ref):
        case "raw":
            return raw(key)
        case "clean":
            return clean(key)
        case "scored":
            return [sum(clean(key))]
        case _:
            return [sum(clean(key)) + sum(raw((key + 75) % N_KEYS))]
