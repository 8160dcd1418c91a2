"""Equal rows have one hash, whichever frame a function returned them in, and wherever they were written (rule 4.8)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from databuild_dagster.features.same_data.written_rows import hash_of_written
from databuild_dagster.model.refs import parse_ref
from databuild_dagster.warehouse import disk, local_copies
from databuild_dagster.warehouse.layout import Warehouse
from tests.support.instances import written_by_engine
from tests.values.conftest import sessions

__all__ = ["sessions"]

DECIMAL = pa.decimal128(3, 2)
TABLE = pa.table(
    {
        "n": [1, 2, 3],
        "x": pa.array([1.5, None, float("-0.0")]),
        "s": ["a", None, ""],
        "at": pa.array(
            [pd.Timestamp("2013-01-01 10:00:00.5"), None, pd.Timestamp("1969-12-31 23:59:59.999999")],
            pa.timestamp("us"),
        ),
        "day": [date(2013, 1, 1), None, date(1900, 1, 1)],
        "price": pa.array([Decimal("2.50"), None, Decimal("-1.00")], DECIMAL),
        "is_late": [True, False, True],
        "codes": [["a"], [], None],
    }
)
BACKWARDS = TABLE.take([2, 1, 0])
FRAMES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "Arrow": lambda sessions: TABLE,
    "Arrow in another order": lambda sessions: BACKWARDS,
    "pandas": lambda sessions: BACKWARDS.to_pandas(),
    "Polars": lambda sessions: pl.DataFrame(pl.from_arrow(BACKWARDS)),
    "Spark on a JVM": lambda sessions: sessions["JVM"].createDataFrame(TABLE).repartition(2),
    "Sail": lambda sessions: sessions["Sail"].createDataFrame(TABLE).repartition(2),
}


@pytest.mark.long("only Spark and Sail evaluate a frame")
@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_rows_have_one_hash_whichever_library_wrote_them_to_a_disk_or_a_bucket(
    sessions: dict[str, Any], request: pytest.FixtureRequest, tmp_path: Any, place: str
) -> None:
    root = str(tmp_path / "warehouse") if place == "disk" else f"s3://{request.getfixturevalue('bucket')}/w"
    warehouse = Warehouse(root)
    # This server of Sail has no keys of the bucket.
    frames = {name: frame for name, frame in FRAMES.items() if place == "disk" or name != "Sail"}
    found = {}

    for name, frame in frames.items():
        manifest = written_by_engine(frame(sessions), warehouse, parse_ref("sales"))
        disk.remove_tree(local_copies.cache_dir())
        found[name] = hash_of_written(warehouse, manifest)

    assert found == dict.fromkeys(frames, found["Arrow"])
    assert found["Arrow"] is not None
