"""Schedules and sensors that want refs: what they record, and what is refused (rules 5.1, 5.5)."""

import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import Wants, databuild_asset, want_schedule, want_sensor
from databuild_dagster.model.errors import InvalidRef, InvalidRequest

from ..conftest import Site

Deploy = Callable[..., Site]

AT_SIX = datetime(2024, 3, 1, 6, tzinfo=UTC)
MIDNIGHT = AT_SIX - timedelta(hours=6)
HOUR = 3600.0


@databuild_asset
def report() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


def midnight_before(context: dg.ScheduleEvaluationContext) -> datetime:
    return context.scheduled_execution_time.replace(hour=0)


def scheduled(**options: Any) -> dg.ScheduleDefinition:
    return want_schedule(name="at_six", cron_schedule="0 6 * * *", refs=lambda _: ["report"], **options)


def sensed(**options: Any) -> dg.SensorDefinition:
    return want_sensor(name="news", refs=lambda _: ["report"], **options)


def tick(site: Site, door: dg.ScheduleDefinition | dg.SensorDefinition) -> None:
    resources = {"wants": Wants(location="tests")}
    if isinstance(door, dg.SensorDefinition):
        with dg.build_sensor_context(site.instance, repository_def=site.repository, resources=resources) as context:
            door.evaluate_tick(context)
    else:
        with dg.build_schedule_context(site.instance, AT_SIX, resources=resources) as of_schedule:
            door.evaluate_tick(of_schedule)


def test_the_sla_of_a_scheduled_want_counts_from_the_time_of_its_data(deploy: Deploy) -> None:
    """Rule 5.5"""
    schedule = scheduled(ttl_seconds=48 * HOUR, sla_seconds=8 * HOUR, data_timestamp=midnight_before)
    site = deploy(report, schedules=[schedule])

    tick(site, schedule)
    tick(site, schedule)

    (want,) = site.engine.queries.wants.newest()
    assert (want.source, want.data_timestamp) == ("schedule", MIDNIGHT.timestamp())
    assert want.deadline == MIDNIGHT.timestamp() + 8 * HOUR
    assert want.expires_at == want.created_at + 48 * HOUR
    (event,) = site.engine.queries.events.named(["WantCreated"], 0, site.engine.queries.events.head().seq)
    assert (want.source_id, event.actor) == ("at_six", "schedule at_six")


def test_a_sensor_wants_a_range_of_partitions(deploy: Deploy) -> None:
    """Rule 2.5"""
    daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")

    @databuild_asset(partitions_def=daily)
    def days() -> pd.DataFrame:
        return pd.DataFrame({"n": [1]})

    sensor = want_sensor(name="news", refs=lambda _: ["days@2024-01-30..2024-01-31", "report"])
    site = deploy(report, days, sensors=[sensor])

    tick(site, sensor)

    wanted = {ref for want in site.engine.queries.wants.newest() for ref in want.refs}
    assert wanted == {"days@2024-01-30", "days@2024-01-31", "report"}


def test_the_sla_of_a_sensors_want_counts_from_its_recording(deploy: Deploy) -> None:
    """Rule 5.5"""
    sensor = sensed(sla_seconds=HOUR)
    site = deploy(report, sensors=[sensor])

    tick(site, sensor)

    (want,) = site.engine.queries.wants.newest()
    assert (want.source, want.data_timestamp, want.deadline) == ("sensor", None, want.created_at + HOUR)


@pytest.mark.parametrize("at", [datetime(2024, 3, 1), "2024-03-01T00:00:00Z", 1.0])
def test_a_time_of_the_data_that_is_no_moment_is_refused_and_nothing_is_wanted(deploy: Deploy, at: Any) -> None:
    schedule = scheduled(sla_seconds=HOUR, data_timestamp=lambda _: at)
    site = deploy(report, schedules=[schedule])

    with pytest.raises(InvalidRequest, match="data_timestamp is .*: it must be a datetime with a time zone"):
        tick(site, schedule)

    assert site.engine.queries.wants.newest() == []


@pytest.mark.parametrize("door", [scheduled, sensed])
@pytest.mark.parametrize("option", ["ttl_seconds", "sla_seconds"])
@pytest.mark.parametrize("value", [0, -1.0, float("inf"), float("nan"), "8h", True])
def test_a_time_to_live_or_an_sla_that_is_none_is_refused_where_it_is_written(
    door: Callable[..., Any], option: str, value: Any
) -> None:
    """Rule 5.5: one sentence, at import."""
    with pytest.raises(InvalidRequest, match=f"{option} of (schedule 'at_six'|sensor 'news') is"):
        door(**{option: value})


@pytest.mark.parametrize("ref", ["report@", "a//b", "report\n"])
def test_a_malformed_ref_of_a_schedule_or_sensor_is_refused_and_records_nothing(deploy: Deploy, ref: str) -> None:
    """Decision 0030"""
    schedule = want_schedule(name="at_six", cron_schedule="0 6 * * *", refs=lambda _: [ref])
    sensor = want_sensor(name="news", refs=lambda _: [ref])
    site = deploy(report, schedules=[schedule], sensors=[sensor])
    seq = site.engine.queries.events.head().seq

    for door in (schedule, sensor):
        with pytest.raises(InvalidRef, match="report|a//b"):
            tick(site, door)

    assert site.engine.queries.events.head().seq == seq


def test_an_error_of_refs_reaches_dagster_without_secrets(deploy: Deploy) -> None:
    """Rule 3.9: Dagster stores it with the tick, and what led to it."""

    def refs(_: object) -> list[str]:
        try:
            raise OSError("no answer of https://kate:" + "hush@shop.example")
        except OSError as error:
            raise RuntimeError("password=" + "hush") from error

    sensor = want_sensor(name="news", refs=refs)
    site = deploy(report, sensors=[sensor])

    with pytest.raises(RuntimeError) as caught:
        tick(site, sensor)

    shown = "".join(traceback.format_exception(caught.value))
    assert "RuntimeError: password=***" in shown
    assert "no answer of https://***@shop.example" in shown
    assert "=hush" not in shown
    assert ":hush@" not in shown
