"""Causes that differ only in names and times share a line (rules 15)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.why.alike import lines_of
from databuild_dagster.engine.why.explain import Cause, explain
from databuild_dagster.model import commands as c
from tests.support.catalog import dataset

JOB_RUNS = [f"019ab3c4-0000-7000-8000-00000000000{number}" for number in range(4)]


def failed(key: str, job_run: str, depth: int = 0, error: str = "ValueError: no orders on {}") -> Cause:
    return Cause(f"orders@{key}", f"failed in job run {job_run} with: {error.format(key)}", depth)


def lines(*causes: Cause) -> list[str]:
    return [f"{'  ' * depth}{line}" for depth, line in lines_of(causes)]


def test_refs_with_one_sentence_share_it() -> None:
    same = [Cause(f"orders@{key}", "never built", 0) for key in ("1", "2", "3", "4", "5")]

    assert lines(*same) == ["orders@1, orders@2, orders@3 and 2 more: never built"]


def test_of_sentences_that_differ_in_names_the_first_is_shown() -> None:
    alike = [failed(f"2024-01-0{number}", job_run) for number, job_run in enumerate(JOB_RUNS)]

    assert lines(*alike) == [
        f"orders@2024-01-00: failed in job run {JOB_RUNS[0]} with: ValueError: no orders on 2024-01-00",
        "and likewise orders@2024-01-01, orders@2024-01-02, orders@2024-01-03",
    ]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(failed("2", JOB_RUNS[1], error="KeyError: 'day'"), id="another error"),
        pytest.param(
            Cause("sales@2", f"failed in job run {JOB_RUNS[1]} with: ValueError: no orders on 2", 0), id="asset"
        ),
        pytest.param(Cause("orders@2", "never built", 0), id="another state"),
    ],
)
def test_causes_of_another_kind_have_their_own_line(other: Cause) -> None:
    assert len(lines(failed("1", JOB_RUNS[0]), other)) == 2


def test_a_key_is_left_out_as_a_word_alone() -> None:
    """The key `a` is no letter of `failed`."""
    found = lines(Cause("orders@a", "failed: no a", 0), Cause("orders@b", "failed: no b", 0))

    assert found == ["orders@a: failed: no a", "and likewise orders@b"]


def test_alike_refs_show_their_own_causes_together() -> None:
    months = [
        Cause("revenue@1", "needs orders@1, which failed", 0),
        failed("1", JOB_RUNS[0], 1),
        Cause("revenue@2", "needs orders@2, which failed", 0),
        failed("2", JOB_RUNS[1], 1),
        Cause("revenue@3", "needs orders@3, which is paused", 0),
        Cause("orders@3", "paused by ana", 1),
    ]

    assert lines(*months) == [
        "revenue@1: needs orders@1, which failed",
        "and likewise revenue@2",
        f"  orders@1: failed in job run {JOB_RUNS[0]} with: ValueError: no orders on 1",
        "  and likewise orders@2",
        "revenue@3: needs orders@3, which is paused",
        "  orders@3: paused by ana",
    ]


def test_a_want_of_a_thousand_refs_is_explained_in_a_few_lines(make_world) -> None:
    keys = [f"{key:04}" for key in range(1000)]
    world = make_world(dataset("days", keys=keys))
    request = world.handle(c.CreateWants(wants=tuple((f"days@{key}",) for key in keys))).request_id
    for key in keys[:2]:
        world.fail(f"days@{key}")

    found = [line for _, line in lines_of(explain(world.engine, request).causes)]

    assert [line.split(":")[0] for line in found] == [
        request,
        "days@0000",
        "and likewise days@0001",
        "days@0002, days@0003, days@0004 and 46 more",
        "not explained here",
    ]
    assert found[0].startswith(f"{request}: 2 wants ended failed, and stay so")
    assert found[-1] == "not explained here: 949 more (949 never built)"
