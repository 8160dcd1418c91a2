"""Equal rows have one hash, whichever frame a function returned them in (rule 4.8)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from databuild_dagster.features.same_data.written_rows import hash_of_written
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest
from tests.spark.conftest import active_session, spark, warehouse, write

__all__ = ["active_session", "spark", "warehouse", "write"]

ROWS = pd.DataFrame(
    {
        "n": [1, 2, 3],
        "x": [1.5, None, float("-0.0")],
        "s": ["a", None, ""],
        "at": pd.to_datetime(["2013-01-01 10:00:00.5", None, "1969-12-31 23:59:59.999999"]),
        "day": [date(2013, 1, 1), None, date(1900, 1, 1)],
        "price": [Decimal("2.50"), None, Decimal("-1.00")],
        "is_late": [True, False, True],
        "codes": [["a"], [], None],
    }
)


@pytest.mark.long("only Spark evaluates a frame")
def test_rows_of_pandas_and_of_spark_have_one_hash(
    spark: SparkSession,
    warehouse: Warehouse,
    write: Callable[[Any], Manifest],
) -> None:
    of_pandas = write(ROWS)
    frame = spark.createDataFrame(ROWS).selectExpr("* except (price)", "cast(price as decimal(3, 2)) as price")
    of_spark = write(frame.select(*ROWS.columns).orderBy("s").repartition(2))

    assert len(of_spark.files) > 1
    assert hash_of_written(warehouse, of_spark) == hash_of_written(warehouse, of_pandas) is not None
