"""The data of a job: the instance that its partition had when the operation began, in any frame (rule 9.3)."""

from typing import Any

import pandas as pd
import pytest

from databuild_dagster import DistributedOperation, OperationContext, databuild_asset
from databuild_dagster.model.commands import TaintPartitions
from databuild_dagster.model.errors import InvalidRequest
from tests.bindings.conftest import Site

from .running import Running

#: What the asset returns at its next build.
_amounts = [1, 2, 3]


@databuild_asset
def sales() -> pd.DataFrame:
    return pd.DataFrame({"amount": _amounts})


class Sum(DistributedOperation[Any]):
    """Sums the rows that a read with the argument returns."""

    type_name = "sum"

    def start_or_resume_job(self, arg: Any, partition: Any, context: OperationContext) -> None:
        amounts = context.read(**arg)["amount"]
        context.mark_job_complete(detail={"sum": int(pd.Series(amounts).sum()), "kind": type(amounts).__module__})

    def complete_operation(self, arg: Any, dataset: str, completion: Any) -> Any:
        return completion.marks[""].detail


@pytest.fixture
def site(deploy: Any, monkeypatch: pytest.MonkeyPatch) -> Site:
    site: Site = deploy(sales, operations=[Sum()])
    site.build("sales")
    return site


def report_of(site: Site, arg: dict[str, str], *, between: Any = lambda: None) -> Any:
    """Start the operation, do something, and let an executor of this process run its job."""
    running = Running(site, "sum", arg, "sales")
    between()
    view = running.end()
    return view.report or view.failed[""]


@pytest.mark.parametrize("format", ["pandas", "polars", "arrow"])
def test_a_job_reads_its_partition_as_a_frame_without_spark(site: Site, format: str) -> None:
    report = report_of(site, {"format": format, "where": "amount > 1"})

    assert report["sum"] == 5
    assert report["kind"].partition(".")[0] == {"arrow": "pyarrow"}.get(format, format)


def test_a_job_reads_the_instance_of_the_start_after_a_rebuild(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def rebuild() -> None:
        monkeypatch.setitem(globals(), "_amounts", [100])
        site.engine.handle(TaintPartitions(refs=("sales",), reason="wrong"))
        site.build("sales")

    report = report_of(site, {"format": "pandas"}, between=rebuild)

    assert site.rows("sales") == [{"amount": 100}]
    assert report["sum"] == 6


def test_a_job_that_asks_for_an_unknown_format_fails_with_the_formats(site: Site) -> None:
    assert report_of(site, {"format": "csv"})["error"] == (
        f"InvalidRequest: {InvalidRequest(what='format', value='csv', why='it is one of spark, pandas, polars, arrow')}"
    )
