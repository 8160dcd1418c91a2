"""Data of an earlier partitions definition is carried over to the keys that stand for the same now."""

from databuild_dagster.feature import Command, Feature

FEATURE = Feature(
    package=__name__,
    summary="`databuild relocate` keeps data when partitions are redefined.",
    commands=(
        Command(
            "relocate",
            "commands:relocate",
            "Bring data of ASSET to the keys of its new partitions.",
            "Maintain",
            after="revert",
        ),
    ),
)
