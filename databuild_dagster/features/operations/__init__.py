"""Jobs over every partition of a dataset, which survive the death of any process."""

from databuild_dagster.feature import Feature

FEATURE = Feature(
    name="operations",
    summary="Operations run over all partitions of a dataset.",
)
