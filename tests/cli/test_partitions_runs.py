"""Which partitions share a line of `databuild partitions`: neighbors in time that are alike (rule 2.5)."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from databuild_dagster.bindings.registry.registration import partitions_text
from databuild_dagster.bindings.registry.selections import existing_refs, refs_named
from databuild_dagster.cli.partitions import Listed, Run, runs_of
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.refs import Ref

daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-08")
regions = dg.StaticPartitionsDefinition(["eu", "us"])
by_region = dg.MultiPartitionsDefinition({"day": daily, "region": regions})


def no_instance() -> Any:
    raise AssertionError("only dynamic partitions ask for an instance")


def runs(partitions: dg.PartitionsDefinition[Any] | None, *built: Listed, hidden: tuple[str, ...] = ()) -> list[Run]:
    """The runs of all partitions, of which some are built and some not listed."""
    dataset = DatasetSpec("sales", "sales", "here", partitions=partitions_text(partitions))
    known = {partition.ref: partition for partition in built}
    existing = existing_refs(dataset, no_instance)
    listed = [known.get(ref) or Listed(ref, None, None, None) for ref in dict.fromkeys([*existing, *known])]
    return runs_of(dataset, existing, [partition for partition in listed if partition.ref not in hidden])


def live(ref: str) -> Listed:
    return Listed(Ref(ref), "Live", f"instance of {ref}", None)


def failed(ref: str, why: str) -> Listed:
    return Listed(Ref(ref), "Failed", f"instance of {ref}", why)


def names(found: list[Run]) -> list[tuple[str, int]]:
    return [(run.name, len(run.partitions)) for run in found]


def test_days_of_one_state_that_follow_one_another_are_a_run() -> None:
    found = runs(daily, live("sales@2024-01-04"), live("sales@2024-01-05"))

    assert names(found) == [
        ("sales@2024-01-01..2024-01-03", 3),
        ("sales@2024-01-04..2024-01-05", 2),
        ("sales@2024-01-06..2024-01-07", 2),
    ]


def test_a_run_ends_before_a_day_that_the_list_leaves_out() -> None:
    found = runs(daily, hidden=("sales@2024-01-03",))

    assert names(found) == [("sales@2024-01-01..2024-01-02", 2), ("sales@2024-01-04..2024-01-07", 4)]


def test_reasons_that_differ_only_in_names_are_one_run_and_another_reason_ends_it() -> None:
    days = [f"sales@2024-01-0{day}" for day in range(1, 8)]

    found = runs(daily, *(failed(day, f"no file of {day}") for day in days[:5]), failed(days[5], "the disk is full"))

    assert names(found)[:2] == [("sales@2024-01-01..2024-01-05", 5), ("sales@2024-01-06", 1)]
    assert found[0].why == "no file of sales@2024-01-01 (and 4 like it)"
    assert found[1].why == "the disk is full"


def test_each_key_of_another_dimension_has_runs_of_its_own() -> None:
    found = runs(by_region, live("sales@2024-01-03|us"))

    assert names(found) == [
        ("sales@2024-01-01..2024-01-07|eu", 7),
        ("sales@2024-01-01..2024-01-02|us", 2),
        ("sales@2024-01-03|us", 1),
        ("sales@2024-01-04..2024-01-07|us", 4),
    ]


@pytest.mark.parametrize("partitions", [regions, None], ids=["names", "unpartitioned"])
def test_partitions_that_are_no_windows_of_time_are_alone(partitions: dg.PartitionsDefinition[Any] | None) -> None:
    assert {len(run.partitions) for run in runs(partitions)} == {1}


def test_a_partition_that_the_definition_has_not_any_more_is_alone() -> None:
    found = runs(daily, live("sales@2023-12-30"), live("sales@2023-12-31"))

    assert names(found)[1:] == [("sales@2023-12-30", 1), ("sales@2023-12-31", 1)]


@pytest.mark.parametrize(("partitions", "built"), [(daily, "sales@2024-01-03"), (by_region, "sales@2024-01-04|us")])
def test_the_name_of_a_run_selects_its_partitions(partitions: dg.PartitionsDefinition[Any], built: str) -> None:
    dataset = DatasetSpec("sales", "sales", "here", partitions=partitions_text(partitions))

    found = runs(partitions, live(built))

    for run in found:
        assert refs_named(dataset, run.name, no_instance) == [partition.ref for partition in run.partitions]
