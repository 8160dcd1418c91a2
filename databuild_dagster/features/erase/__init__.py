"""Rows are erased in every instance and copy of a dataset."""

from databuild_dagster.feature import Command, Feature

FEATURE = Feature(
    package=__name__,
    summary="`databuild erase` removes rows everywhere.",
    needs=("clean", "tables"),
    commands=(
        Command(
            "erase", "commands:erase", "Erase rows of DATASET, in every instance and copy.", "Maintain", after="gc"
        ),
    ),
)
