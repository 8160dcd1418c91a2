"""The duties around a tick: their order is checked at import, and one that fails does not stop its neighbors."""

import logging
from dataclasses import replace

import dagster as dg
import pytest

from databuild_dagster import build_definitions
from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.claims.launcher import OrderCollector
from databuild_dagster.bindings.orchestration.duties import (
    DUTIES,
    TICK,
    Duty,
    Work,
    check_duties,
    do_duties,
    duties,
    merged,
)
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.data.lost_run_output import WarehouseRemains
from databuild_dagster.engine.registering import Registered


@pytest.fixture
def work(tmp_path: object) -> Work:
    instance = dg.DagsterInstance.ephemeral()
    engine = engine_for(instance)
    repository = build_definitions([], location="tests").get_repository_def()
    return Work(
        instance,
        engine,
        repository,
        Deployment(location="tests"),
        OrderCollector(instance),
        remains=WarehouseRemains(engine, str(tmp_path)),
        interval_seconds=0.0,
        registered=Registered({}),
    )


def test_every_duty_follows_the_tick_and_says_why() -> None:
    check_duties(DUTIES)

    assert DUTIES[0].name == TICK
    assert all(duty.after == (TICK,) and duty.why for duty in duties()[1:])


def test_a_duty_behind_one_that_is_not_there_comes_last() -> None:
    core = (Duty("tick", print, ()), Duty("show taints", print))
    others = (Duty("write", print, behind="gone"), Duty("alert", print, behind="tick"))

    assert [duty.name for duty in merged(core, others)] == ["tick", "alert", "show taints", "write"]


@pytest.mark.parametrize(
    ("duties", "complaint"),
    [
        ((DUTIES[1], DUTIES[0]), f"'{DUTIES[1].name}' has to come after {TICK}"),
        ((DUTIES[0], DUTIES[0]), "is there twice"),
        ((DUTIES[0], replace(DUTIES[1], why="")), "has no reason for its place"),
    ],
)
def test_a_table_that_is_not_in_order_is_refused(duties: tuple[Duty, ...], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        check_duties(duties)


def test_a_failed_duty_is_one_sentence_and_only_those_after_it_are_left_out(
    work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    def fail(work: Work) -> None:
        raise OSError("no space")

    duties = (
        Duty("write copies", fail),
        Duty("list copies", lambda work: done.append("list"), ("write copies",), "they have to be there"),
        Duty("count copies", lambda work: done.append("count"), ("list copies",), "they have to be known"),
        Duty("send alerts", lambda work: done.append("alerts")),
    )

    with caplog.at_level(logging.WARNING):
        failed = do_duties(duties, work)

    assert done == ["alerts"]
    assert {name: str(error) for name, error in failed.items()} == {"write copies": "no space"}
    (record,) = caplog.records
    assert record.getMessage() == "databuild: the tick of tests could not write copies: OSError: no space"
    assert record.exc_info is None


def test_a_thread_beside_a_build_does_the_work_of_its_duty(work: Work) -> None:
    done: list[str] = []

    class Thread:
        def follow(self) -> None:
            done.append("thread")

        def finish(self, seconds: float | None) -> None:
            raise AssertionError("the build goes on")

        def close(self) -> None:
            raise AssertionError("the build goes on")

    some = (Duty("write copies", lambda work: done.append("tick")), Duty("show", lambda work: done.append("show")))

    failed = do_duties(some, replace(work, beside={"write copies": Thread()}))

    assert failed == {}
    assert done == ["thread", "show"]
