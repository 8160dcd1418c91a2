"""What follows from a supposition, with nothing recorded."""

from databuild_dagster.feature import Column, Command, Feature

FEATURE = Feature(
    package=__name__,
    summary="The consequences of a taint, of new code or of missing data are simulated.",
    commands=(
        Command(
            "what-if taint",
            "commands:taint",
            "Show what follows if the data of REFS is tainted.",
            "Build",
            "plan",
            group="Show what follows from a change, and change nothing.",
        ),
        Command("what-if code", "commands:code", "Show what new code of ASSET builds again.", "Build", after="taint"),
        Command("what-if missing", "commands:missing", "Show what waits if REFS never arrive.", "Build", after="code"),
    ),
    routes=Column("pages:ROUTES"),
)
