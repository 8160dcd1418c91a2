"""A branch is built beside production: on its instances where nothing differs, in a home and a folder of its own."""

from databuild_dagster.feature import Column, Command, Feature

FEATURE = Feature(
    package=__name__,
    summary="`databuild env` builds a branch on the data of production.",
    needs=("compare",),
    commands=(
        Command(
            "env create",
            "commands:create",
            "Open the environment NAME on what is live now.",
            "By subject",
            group="Build a branch on production's data, in environments.",
        ),
        Command("env list", "commands:list_environments", "List the environments of this build state.", "By subject"),
        Command("env show", "commands:show", "Show an environment, and what it has borrowed.", "By subject"),
        Command("env diff", "commands:diff", "Compare what an environment built with its base.", "By subject"),
        Command("env refresh", "commands:refresh", "Bring an environment to the present of its base.", "By subject"),
        Command("env promote", "commands:promote", "Make what an environment built the base's data.", "By subject"),
        Command(
            "env attach", "commands:attach", "Continue an environment after a take-over of its base.", "By subject"
        ),
        Command("env drop", "commands:drop", "Remove the environment NAME and what it built.", "By subject"),
    ),
    settings=Column("promoters:SETTINGS"),
    definers=Column("promoters:DEFINERS"),
    duties=Column("duties:DUTIES"),
    routes=Column("pages:ROUTES"),
    pages=Column("pages:PAGES"),
    actions=Column("actions:ACTIONS"),
    marks=Column("pages:MARKS"),
    keeps=Column("keeping:KEEPERS"),
    provides=Column("borrowing:PROVIDERS"),
)
