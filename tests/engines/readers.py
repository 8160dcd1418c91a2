"""Reads snapshots of published tables by DuckDB, DataFusion and Daft; exits with 1 if one has other rows. Runs without databuild."""

from __future__ import annotations

import json
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import daft
import datafusion
import duckdb
import pyarrow as pa
from pyiceberg.table import StaticTable


def rows_of(table: pa.Table) -> list[Any]:
    """As `tests.support.table_readers.rows_of`: without nulls, as text."""
    found = [
        sorted([name, repr(value)] for name, value in row.items() if value is not None) for row in table.to_pylist()
    ]
    return sorted(found)


def extension(name: str) -> str:
    spec = find_spec(f"duckdb_extension_{name}")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (path,) = Path(next(iter(spec.submodule_search_locations))).rglob(f"{name}.duckdb_extension")
    return str(path)


def main(asked: str) -> int:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("avro", "iceberg", "delta"):
        connection.execute(f"LOAD '{extension(name)}'")
    n_read, wrong = Counter[str](), list[str]()

    def compare(reader: str, case: dict[str, Any], table: pa.Table) -> None:
        n_read[f"{reader}, {case['format']}"] += 1
        if rows_of(table) != case["rows"]:
            wrong.append(f"{reader} reads other rows of {case['format']} snapshot {case['snapshot']}: {rows_of(table)}")

    for case in json.loads(Path(asked).read_text()):
        if case["format"] == "iceberg":
            compare("DuckDB", case, connection.execute(f"FROM iceberg_scan('{case['path']}')").to_arrow_table())
            context = datafusion.SessionContext()
            context.register_table("t", StaticTable.from_metadata(case["path"]))
            compare("DataFusion", case, context.sql("SELECT * FROM t").to_arrow_table())
            # Daft refuses files without column ids: it does not apply a table's name mapping yet.
            continue
        compare("Daft", case, daft.read_deltalake(case["path"], version=case["snapshot"]).to_arrow())
        if case["is_newest"]:
            compare("DuckDB", case, connection.execute(f"FROM delta_scan('{case['path']}')").to_arrow_table())
    print(*(f"{reader}: {n} snapshots" for reader, n in n_read.items()), *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
