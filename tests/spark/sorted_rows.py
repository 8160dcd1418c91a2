"""The rows of a frame of Spark, in an order that does not depend on its files."""

from __future__ import annotations

from typing import Any


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())
