"""Spark work that never ends by itself, and leaves the processor to other tests."""

from __future__ import annotations

#: For `selectExpr` of a frame with any rows, or in a query. A constant would be computed once; Spark calls this for each row.
SLEEP = "reflect('java.lang.Thread', 'sleep', 20L) AS slept"

#: More rows than any test waits for.
ROWS = 9_000_000_000

#: As a query with one row.
ENDLESS = f"SELECT count(slept) AS n FROM (SELECT {SLEEP} FROM range({ROWS}))"
