"""Jobs over every partition of a dataset, which survive the death of any process."""

from databuild_dagster.feature import Column, Command, Feature

FEATURE = Feature(
    package=__name__,
    summary="Operations run over all partitions of a dataset.",
    settings=Column("operations:SETTINGS"),
    definers=Column("executor_runs:DEFINERS"),
    side_ticks=Column("executor_runs:SIDE_TICKS"),
    invariants=Column("invariants:INVARIANTS"),
    commands=(
        Command(
            "operation run",
            "commands.operation_run:run",
            "Run an operation over the partitions of a dataset.",
            "By subject",
            "lot",
            group="Run, list, watch and cancel operations on datasets.",
        ),
        Command(
            "operation list",
            "commands.operation:list_operations",
            "List the running operations, on DATASET or on all.",
            "By subject",
            "run",
        ),
        Command(
            "operation show",
            "commands.operation:show",
            "Show the jobs, the failures and the result of OPERATION.",
            "By subject",
            "list",
        ),
        Command("operation show --watch", "commands.operation:watch", "Follow OPERATION to its end."),
        Command(
            "operation cancel",
            "commands.operation:cancel",
            "Cancel operations, whether or not their code still loads.",
            "By subject",
            "show",
        ),
    ),
    routes=Column("pages:ROUTES"),
    pages=Column("pages:PAGES"),
    actions=Column("actions:ACTIONS"),
)
