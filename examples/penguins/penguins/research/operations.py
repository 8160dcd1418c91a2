"""An operation over all colonies: how many birds lack a measurement?"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pandas as pd
from databuild_dagster import Completion, DistributedOperation, OperationContext, PartitionRef


class Completeness(DistributedOperation[list[str]]):
    """Counts the birds, and those without a value in each of the given columns."""

    type_name = "completeness"
    #: The columns; the argument is stored as JSON.
    arg_type = list[str]

    def start_or_resume_job(self, arg: list[str], partition: PartitionRef, context: OperationContext) -> None:
        """One colony. An unknown column fails the job."""
        context.mark_job_complete(detail=missing_values(context.read(format="pandas"), arg))

    def complete_operation(self, arg: list[str], dataset: str, completion: Completion) -> Any:
        """The report: the sums over all colonies."""
        if not completion.success:
            return {"ok": False, "failed": sorted(completion.failed)}
        return summed(mark.detail for mark in completion.marks.values())


def missing_values(birds: pd.DataFrame, columns: Iterable[str]) -> dict[str, int]:
    """The number of birds, and of those without a value in each column."""
    return {"birds": len(birds)} | {column: int(birds[column].isna().sum()) for column in columns}


def summed(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """The sum of each count; a count of zero stays in it."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)
