"""What follows from a supposition, with nothing recorded."""

from databuild_dagster.feature import Command, Feature

FEATURE = Feature(
    name="what_if",
    summary="The consequences of a taint, of new code or of missing data are simulated.",
    commands=(
        Command(
            "what-if taint",
            "databuild_dagster.features.what_if.commands:taint",
            "Show what follows if the data of REFS is tainted.",
            section="Build",
            after="plan",
            group="Show what follows from a change, and change nothing.",
        ),
        Command(
            "what-if code",
            "databuild_dagster.features.what_if.commands:code",
            "Show what new code of ASSET builds again.",
            section="Build",
            after="taint",
        ),
        Command(
            "what-if missing",
            "databuild_dagster.features.what_if.commands:missing",
            "Show what waits if REFS never arrive.",
            section="Build",
            after="code",
        ),
    ),
)
