"""Receipts of instances, the differences of two, and samples of rows."""

from databuild_dagster.feature import Feature

FEATURE = Feature(
    name="compare",
    summary="Receipts, differences of two instances, samples of rows.",
)
