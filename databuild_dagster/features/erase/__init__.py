"""Rows are erased in every instance and copy of a dataset."""

from databuild_dagster.feature import Command, Feature

FEATURE = Feature(
    name="erase",
    summary="`databuild erase` removes rows everywhere.",
    needs=("clean", "tables"),
    commands=(
        Command(
            "erase",
            "databuild_dagster.features.erase.commands:erase",
            "Erase rows of DATASET, in every instance and copy.",
            section="Maintain",
            after="gc",
        ),
    ),
)
