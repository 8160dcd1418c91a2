"""The project of the pictures: three months of a chain of bakeries, with one of everything that a page can show."""

from __future__ import annotations

from typing import Final

FIRST, END = "2024-01-01", "2024-04-01"
#: The till of this day writes commas, this one sends no file, and the day before the last one is still to come.
COMMAS: Final = "2024-03-06"
LATE: Final = "2024-03-23"
#: A count of the stock that was wrong, and one that is counted again with other columns.
WRONG: Final = "2024-02-14"
RECOUNTED: Final = "2024-03-12"
#: While this file is in the folder of the project, the forecast is being built.
HOLD: Final = "hold"

#: The stock is counted with these columns first, and with those later.
COUNTS: Final = '"pieces": [float(day % 7 + 3), 12.0, 4.0]'
COUNTS_AGAIN: Final = '"pieces": [day % 7 + 3, 11, 4], "counted_by": ["mia", "mia", "leo"]'


def definitions(counts: str) -> str:
    """The file definitions.py, with the columns of the stock."""
    return _DEFINITIONS.replace("COUNTS", counts)


_DEFINITIONS = f"""
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd

from databuild_dagster import (
    EMPTY,
    BuildContext,
    Completion,
    DistributedOperation,
    OperationContext,
    PartitionRef,
    build_definitions,
    databuild_asset,
    databuild_boundary,
)

HERE = Path(__file__).parent
daily = dg.DailyPartitionsDefinition("{FIRST}", end_date="{END}")
weekly = dg.WeeklyPartitionsDefinition("{FIRST}", end_date="{END}", day_offset=1)
monthly = dg.MonthlyPartitionsDefinition("{FIRST}", end_date="{END}")

tills = databuild_boundary(
    "tills",
    partitions_def=daily,
    files=f"{{HERE}}/landing/tills_{{{{time:%Y%m%d}}}}*.parquet",
    settle_seconds=0,
    interval_seconds=5,
)


@databuild_asset(partitions_def=daily, subscribe="tills", follow_late=True, sample=True)
def sales(tills: pd.DataFrame) -> pd.DataFrame:
    return tills.assign(amount=tills["amount"].astype(float))


@databuild_asset(partitions_def=daily, allow_schema_change=True)
def stock(context: BuildContext) -> pd.DataFrame:
    date = pd.Timestamp(context.partition_key)
    if date.dayofweek == 6:
        return EMPTY
    day = date.day
    return pd.DataFrame({{"item": ["bread", "rolls", "cake"], COUNTS}})


@databuild_asset(partitions_def=daily)
def margin(sales: pd.DataFrame, stock: pd.DataFrame) -> pd.DataFrame:
    return sales.groupby("shop", as_index=False)["amount"].sum().assign(items=len(stock))


@databuild_asset(partitions_def=weekly, subscribe="sales", follow_late=True)
def week(sales: pd.DataFrame) -> pd.DataFrame:
    return sales.groupby("shop", as_index=False)["amount"].sum()


@databuild_asset(partitions_def=monthly)
def report(margin: pd.DataFrame) -> pd.DataFrame:
    return margin.groupby("shop", as_index=False)["amount"].sum()


@databuild_asset(partitions_def=weekly)
def forecast(context: BuildContext, week: pd.DataFrame) -> pd.DataFrame:
    end = time.monotonic() + 600
    while (HERE / "{HOLD}").exists() and context.partition_key >= "2024-02-05" and time.monotonic() < end:
        time.sleep(0.5)
    return week.assign(amount=week["amount"] * 1.02)


class FewRows(DistributedOperation[None]):
    \"\"\"Which days have fewer than three sales?\"\"\"

    type_name = "few_rows"

    def start_or_resume_job(self, arg: None, partition: PartitionRef, context: OperationContext) -> None:
        context.mark_job_complete(context.manifest.rows >= 3, {{"rows": context.manifest.rows}})

    def complete_operation(self, arg: None, dataset: str, completion: Completion) -> Any:
        return {{"rows": sum(mark.detail["rows"] for mark in completion.marks.values())}}


class Recount(DistributedOperation[None]):
    \"\"\"Asks the shops for their counts; one shop does not answer on Mondays.\"\"\"

    type_name = "recount"
    can_fail = False

    def start_or_resume_job(self, arg: None, partition: PartitionRef, context: OperationContext) -> None:
        if pd.Timestamp(partition.partition_key).dayofweek == 0:
            raise ConnectionError("the shop in the north does not answer")
        context.mark_job_complete(True, {{"rows": context.manifest.rows}})


defs = build_definitions([tills, sales, stock, margin, week, report, forecast], operations=[FewRows(), Recount()])
""".lstrip()
