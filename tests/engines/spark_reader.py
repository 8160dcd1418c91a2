"""Reads snapshots of published Iceberg tables by Spark's own Iceberg on the JVM. Runs without databuild, beside PySpark 3.5.

The only wheel with Iceberg's Spark runtime is that of a feature store, which has it under another package (`smfs.shaded`).
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

SHADED = "smfs.shaded.org.apache.iceberg.spark"


def jar() -> str:
    spec = find_spec("feature_store_pyspark")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (path,) = Path(next(iter(spec.submodule_search_locations)), "jars").glob("*-3.5.jar")
    return str(path)


def rows_of(rows: list[Any]) -> list[Any]:
    """As `tests.support.table_readers.rows_of`: without nulls, as text."""
    found = [sorted([name, repr(value)] for name, value in row.asDict().items() if value is not None) for row in rows]
    return sorted(found)


def main(asked: str) -> int:
    builder = SparkSession.builder.master("local[1]").config("spark.jars", jar())
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    cases = [case for case in json.loads(Path(asked).read_text()) if case["format"] == "iceberg"]
    wrong = []
    for case in cases:
        rows = spark.read.format(f"{SHADED}.source.IcebergSource").load(case["path"]).collect()
        if rows_of(rows) != case["rows"]:
            wrong.append(f"Spark reads other rows of snapshot {case['snapshot']}: {rows_of(rows)}")
    print(f"Spark {spark.version}, iceberg: {len(cases)} snapshots", *wrong, sep="\n")
    spark.stop()
    return 1 if wrong or not cases else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
