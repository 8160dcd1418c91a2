"""The project of the story: a shop whose tills send a file a day, and which adds them up by the day and by the week."""

from __future__ import annotations

from typing import Final

#: The days of the story, from a Monday to a Sunday, and their week.
DAYS: Final = tuple(f"2024-03-{day:02}" for day in range(4, 11))
MONDAY, TUESDAY, WEDNESDAY, SATURDAY, SUNDAY = DAYS[0], DAYS[1], DAYS[2], DAYS[5], DAYS[6]
WEEK: Final = f"week@{MONDAY}"

#: How the code reads an amount: Wednesday's till writes "12,50", which the first version refuses.
READS_POINTS: Final = 'tills["amount"].astype(float)'
READS_COMMAS: Final = 'tills["amount"].str.replace(",", ".").astype(float)'

WORKSPACE: Final = "load_from:\n  - python_file: definitions.py\n"
SETTINGS: Final = "telemetry: {enabled: false}\nnux: {enabled: false}\n"


def definitions(reads: str) -> str:
    """The file definitions.py, with the expression that reads amounts."""
    return _DEFINITIONS.replace("READS", reads)


_DEFINITIONS = """
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd

from databuild_dagster import (
    Completion,
    DistributedOperation,
    OperationContext,
    PartitionRef,
    build_definitions,
    databuild_asset,
    databuild_boundary,
)

daily = dg.DailyPartitionsDefinition("2024-03-04", end_date="2024-03-11")
weekly = dg.WeeklyPartitionsDefinition("2024-03-04", end_date="2024-03-11", day_offset=1)

tills = databuild_boundary(
    "tills",
    partitions_def=daily,
    files=f"{Path(__file__).parent}/landing/tills_{{time:%Y%m%d}}*.parquet",
    settle_seconds=0,
    interval_seconds=5,
)


@databuild_asset(partitions_def=daily, subscribe="tills", follow_late=True, sample=True)
def sales(tills: pd.DataFrame) -> pd.DataFrame:
    return tills.assign(amount=READS)


@databuild_asset(partitions_def=weekly, subscribe="sales", follow_late=True)
def week(sales: pd.DataFrame) -> pd.DataFrame:
    return sales.groupby("shop", as_index=False)["amount"].sum()


class FewRows(DistributedOperation[None]):
    \"\"\"Which days have fewer than three sales?\"\"\"

    type_name = "few_rows"

    def start_or_resume_job(self, arg: None, partition: PartitionRef, context: OperationContext) -> None:
        context.mark_job_complete(context.manifest.rows >= 3, {"rows": context.manifest.rows})

    def complete_operation(self, arg: None, dataset: str, completion: Completion) -> Any:
        return {"rows": sum(mark.detail["rows"] for mark in completion.marks.values())}


defs = build_definitions([tills, sales, week], operations=[FewRows()])
""".lstrip()
