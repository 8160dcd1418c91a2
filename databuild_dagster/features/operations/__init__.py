"""Jobs over every partition of a dataset, which survive the death of any process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from databuild_dagster.feature import Command, Feature

if TYPE_CHECKING:
    from databuild_dagster.bindings.orchestration.side_ticks import SideTick
    from databuild_dagster.store.invariants import Invariant


def _side_ticks() -> tuple[SideTick, ...]:
    from databuild_dagster.features.operations.side_ticks import SIDE_TICKS

    return SIDE_TICKS


def _invariants() -> tuple[Invariant, ...]:
    from databuild_dagster.features.operations.invariants import INVARIANTS

    return INVARIANTS


FEATURE = Feature(
    name="operations",
    summary="Operations run over all partitions of a dataset.",
    side_ticks=_side_ticks,
    invariants=_invariants,
    commands=(
        Command(
            "operation run",
            "databuild_dagster.features.operations.commands.operation_run:run",
            "Run an operation over the partitions of a dataset.",
            section="By subject",
            after="arc",
            group="Run, list, watch and cancel operations on datasets.",
        ),
        Command(
            "operation list",
            "databuild_dagster.features.operations.commands.operation:list_operations",
            "List the running operations, on DATASET or on all.",
            section="By subject",
            after="run",
        ),
        Command(
            "operation show",
            "databuild_dagster.features.operations.commands.operation:show",
            "Show the jobs, the failures and the result of OPERATION.",
            section="By subject",
            after="list",
        ),
        Command(
            "operation watch",
            "databuild_dagster.features.operations.commands.operation:watch",
            "Follow OPERATION to its end.",
            section="By subject",
            after="show",
        ),
        Command(
            "operation cancel",
            "databuild_dagster.features.operations.commands.operation:cancel",
            "Cancel operations, whether or not their code still loads.",
            section="By subject",
            after="watch",
        ),
    ),
)
