"""What follows from a supposition, with nothing recorded."""

from databuild_dagster.feature import Column, Feature

FEATURE = Feature(
    name="what_if",
    summary="The consequences of a taint, of new code or of missing data are simulated.",
    routes=Column("databuild_dagster.features.what_if.pages:ROUTES"),
)
