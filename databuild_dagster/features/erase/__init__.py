"""Rows are erased in every instance and copy of a dataset."""

from databuild_dagster.feature import Feature

FEATURE = Feature(
    name="erase",
    summary="`databuild erase` removes rows everywhere.",
    needs=("clean",),
)
