"""Wants by filter, and a want with what it waits for (rules 5.9, 5.10)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.why.want_report import find_wants, want_reports
from databuild_dagster.model.errors import NotFound, UnknownAsset, UnknownPartition
from databuild_dagster.store.queries.wants import WantFilter
from tests.support.catalog import dataset
from tests.support.world import World


@pytest.fixture
def world():
    world = World([dataset("sales", keys=["1", "2"]), dataset("report", "sales")])
    yield world
    world.store.close()


def test_a_report_has_the_missing_refs_and_the_wants_of_job_runs_for_them(world):
    want = world.want("report")
    world.miss("report", "sales@1")

    (known,), (report,) = want_reports(world.engine, want[-8:])

    assert known == report.want
    assert report.waits_for == ("report",)
    assert [cause.ref for cause in report.causes][-1] == "sales@1"
    assert [derivative.refs for derivative in report.derivative_wants] == [("sales@1",)]


@pytest.mark.parametrize(
    ("which", "error"),
    [
        (WantFilter(ref="sale@1"), UnknownAsset),
        (WantFilter(ref="sales@3"), UnknownPartition),
        (WantFilter(asset="sale"), UnknownAsset),
        (WantFilter(source="schedul"), NotFound),
    ],
)
def test_a_filter_by_a_name_that_nothing_has_is_refused(world, which, error):
    with pytest.raises(error):
        find_wants(world.queries, world.engine.catalog, which, 100)


def test_a_filter_that_finds_nothing_is_no_mistake(world):
    assert find_wants(world.queries, world.engine.catalog, WantFilter(ref="sales@1", source="schedule"), 100) == []
