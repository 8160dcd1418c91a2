"""`databuild status --outages`, `pause --needs`, `resume --needs`, and what `status` and the metrics say of outages and holds (rule 6.17)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.outages import begin_outage
from databuild_dagster.model.surroundings import Surrounding
from databuild_dagster.store.store import open_store
from tests.cli.sources import of_pandas
from tests.support.catalog import SmallCatalog
from tests.support.project import Project

ORDERS = of_pandas("""
daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04")


@databuild_asset(partitions_def=daily)
def orders() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


defs = build_definitions([orders])
""")
DAYS = "orders@2024-01-01..2024-01-03"


@pytest.fixture
def orders(project: Project) -> Project:
    """A project whose orders of three days are wanted."""
    project.define(ORDERS)
    project.ask("want", "create", DAYS)
    return project


def location(project: Project) -> str:
    (spec,) = project.queries.datasets.all().values()
    return spec.location


def test_a_hold_is_shown_with_what_waits_until_it_is_released(orders: Project) -> None:
    """Given a hold, a tick launches nothing; after the release it builds everything."""
    orders.ask("pause", "--needs", "warehouse", "--reason", "a new bucket")

    assert orders.ask("admin", "tick")["launched"] == []
    (held,) = orders.ask("status", "--outages")
    assert (held["what"], held["kind"], held["waiting"]) == ("warehouse", "hold", 3)
    assert held["reason"].endswith(": a new bucket")
    assert [part["what"] for part in orders.ask("status")["outages"]] == ["warehouse"]
    assert "3 wanted refs behind it" in orders.call("status").out
    assert 'subject="hold on warehouse"} 1' in orders.call("metrics", "--prometheus").out

    orders.ask("resume", "--needs", "warehouse")
    assert len(orders.ask("admin", "tick")["launched"]) == 1
    assert orders.ask("status", "--outages") == []


def test_a_probe_of_a_tick_ends_an_outage_and_the_work_goes_on(orders: Project) -> None:
    """The warehouse is there, whatever was recorded."""
    engine = Engine(open_store(f"sqlite:///{orders.home}/databuild.db"), SmallCatalog([]))
    begin_outage(engine, location(orders), Surrounding.WAREHOUSE, "it was away", "test")

    done = orders.call("admin", "tick", "--until-idle")

    assert done.code == 0, done
    assert orders.ask("status")["assets"][0]["live"] == 3
    assert orders.ask("status", "--outages") == []


def test_ticks_leave_what_stays_away_with_a_sentence_and_exit_code_1(orders: Project, monkeypatch) -> None:
    monkeypatch.setattr("databuild_dagster.cli.tick.OUTAGE_SECONDS", 0.2)
    orders.ask("pause", "--needs", "warehouse", "--reason", "a new bucket")

    done = orders.call("admin", "tick", "--until-idle")

    assert (done.code, "are held since" in done.out) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("resume", "--needs", "spark"), "Nothing holds back launches of"),
        (("pause", "--needs", "spark", "--reason", " "), "needs a reason"),
        (("pause", "--needs", "disk", "--reason", "x"), "'disk' is not one of"),
        (("pause", "--needs", "spark", "--reason", "x", "--location", "nowhere"), "No code location 'nowhere'"),
    ],
)
def test_what_cannot_be_held_or_released_is_refused(orders: Project, arguments, words) -> None:
    with orders.recording_nothing():
        done = orders.call(*arguments)

    assert done.code == 2, done
    assert words in done.err


def test_a_build_of_a_person_waits_for_a_release(orders: Project) -> None:
    """`databuild build` ends neither with an error nor for ever."""
    orders.ask("pause", "--needs", "warehouse", "--reason", "a new bucket")

    done = orders.call("build", DAYS, "--timeout", "1s")

    assert done.code == 1, done
    assert "it waits for the end of an outage" in done.out + done.err
