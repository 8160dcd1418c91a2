"""What a command shows of an operation: its live table, its lines, and the rules of its report (rules 9, 15)."""

import io
from typing import Any

import pytest
from rich.console import Console

from databuild_dagster.features.operations.commands.operation_progress import OperationProgress, tell_rules
from databuild_dagster.features.operations.job import RetryJob
from databuild_dagster.model.operations.keys import OperationId
from tests.support.catalog import dataset
from tests.support.operations import Operations, Write
from tests.support.world import World

DAYS = ("mon", "tue", "wed")


@pytest.fixture
def world(make_world: Any) -> World:
    world: World = make_world(dataset("orders", keys=DAYS))
    world.live(*(f"orders@{day}" for day in DAYS))
    return world


def lines_of(operations: Operations, id: OperationId) -> list[str]:
    """The live table."""
    out = io.StringIO()
    Console(file=out, width=120).print(OperationProgress(operations.manager, id).render())
    return out.getvalue().splitlines()


def busy(context: Any) -> None:
    raise RetryJob("the service is busy")


def test_the_live_table_has_a_row_for_each_partition_in_work(world: World) -> None:
    operations = Operations(world)
    id = operations.manager.start("write", "orders", None)
    first, second = operations.executor().take(id, 2)

    head, _, *rows, last = lines_of(operations, id)

    assert head.startswith(f"{id}: 0 of 3 jobs done, 0 failed")
    assert [row.split()[:2] for row in rows] == [[job.context.partition, "running"] for job in (first, second)]
    assert last.split() == ["1", "job", "waiting"]


def test_the_live_table_says_why_a_job_is_tried_again(world: World) -> None:
    operations = Operations(world, Write, doing=busy)
    id = operations.manager.start("write", "orders", None)
    operations.executor().step(id, 1)

    (row,) = [line for line in lines_of(operations, id) if "retrying" in line]

    assert "after attempt 1: RetryJob: the service is busy" in row


def test_a_report_shows_as_many_rows_as_it_has_samples(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"ref": "orders@tue", "offending": 6, "samples": [{"n": 12, "who": "x"}, {"n": 13, "who": "ä"}]}
    rule = {"rule": "0 <= n <= 11", "offending": 6, "n_partitions": 1, "partitions": [found]}
    held = {"rule": "n is not null", "offending": 0, "n_partitions": 0, "partitions": []}

    tell_rules({"rules": [held, rule], "rows": 24, "partitions": 3, "outdated": ["orders@mon"]})

    shown = capsys.readouterr().out
    assert '  orders@tue  6 rows, for example:\n    {"n":12,"who":"x"}\n    {"n":13,"who":"ä"}\n' in shown
    assert "n is not null:" not in shown
    assert "24 rows in 3 partitions looked at.\n1 partition rebuilt or tainted meanwhile: " in shown
