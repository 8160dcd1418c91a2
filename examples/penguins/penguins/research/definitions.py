"""The code location of the research team."""

from databuild_dagster import DatabuildSpark, build_definitions

from penguins.research.assets import birds, lab_results, observations
from penguins.research.operations import Completeness

defs = build_definitions(
    [observations, lab_results, birds],
    location="research",
    spark=DatabuildSpark(),
    operations=[Completeness()],
)
