"""The port of a format is enough for Spark to write and read it."""

import pandas as pd
import pytest

from databuild_dagster.spark.frames import read_instances
from databuild_dagster.spark.keyed import read_keyed
from databuild_dagster.spark.staging import publish, stage_batch, staging
from databuild_dagster.warehouse.formats import READABLE
from tests.support.orc import Orc


@pytest.fixture
def orc(monkeypatch):
    orc = Orc()
    monkeypatch.setitem(READABLE, orc.name, orc)
    return orc


def test_spark_writes_and_reads_a_second_format_beside_the_first(spark, warehouse, write, orc, tmp_path):
    first = write(spark.createDataFrame([("a", 1)], "word string, n long"), ref="words@1", file_format=orc)
    second = write(pd.DataFrame({"word": ["b"], "n": [2]}), ref="words@2", file_format=orc)
    third = write(pd.DataFrame({"word": ["c"], "n": [3]}), ref="words@3")

    together = read_instances(spark, warehouse, [first, second, third])
    by_key = read_keyed(spark, warehouse, {"x": [first, third], "y": [second]}, str(tmp_path / "links"))

    assert first.files[0].uri.endswith(".orc")
    assert sorted(map(tuple, together.collect())) == [("a", 1), ("b", 2), ("c", 3)]
    assert sorted(map(tuple, by_key.collect())) == [("a", 1, "x"), ("b", 2, "y"), ("c", 3, "x")]


def test_a_batch_is_written_in_a_second_format(spark, warehouse, orc):
    frame = spark.createDataFrame([("a", "1"), ("b", "2")], "word string, partition_key string")

    with staging(warehouse, "batch") as folder:
        staged = stage_batch(frame, folder, asset="words", keys=["1", "2"], file_format=orc)
        uuid = "5e0002a1-0f3d-bd95-db63-b1ac4bedec0f"
        manifest = publish(staged["2"], warehouse, ref="words@2", uuid=uuid, job_run="j", inputs={})

    assert manifest.format == "orc"
    assert [row.word for row in read_instances(spark, warehouse, [manifest]).collect()] == ["b"]
