"""Jobs over every partition of a dataset, which survive the death of any process."""

from databuild_dagster.feature import Column, Feature

FEATURE = Feature(
    name="operations",
    summary="Operations run over all partitions of a dataset.",
    settings=Column("databuild_dagster.features.operations.operation_types:SETTINGS"),
    definers=Column("databuild_dagster.features.operations.definers:DEFINERS"),
    routes=Column("databuild_dagster.features.operations.pages:ROUTES"),
    pages=Column("databuild_dagster.features.operations.pages:PAGES"),
    actions=Column("databuild_dagster.features.operations.actions:ACTIONS"),
)
