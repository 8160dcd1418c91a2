"""Wants are recorded, found, shown and canceled outside of Dagster (rule 5.11)."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from dagster import DagsterInstance

from databuild_dagster import check_build_coordination, get_builds_for_partition, open_wants
from databuild_dagster.bindings.registry.instance import close_engine, engine_for, open_instance
from databuild_dagster.data.home import BadHome, sqlite_url
from databuild_dagster.engine.holders import this_user
from databuild_dagster.model.commands import RegisterDatasets
from databuild_dagster.model.errors import (
    AlreadyPaused,
    InvalidRequest,
    NotFound,
    NotPaused,
    UnknownAsset,
    UnknownPartition,
)
from databuild_dagster.model.states import WantState
from tests.support.catalog import dataset


@pytest.fixture
def home(tmp_path: Path):
    """A home in which a code location was loaded once."""
    with open_instance(tmp_path) as instance:
        engine_for(instance).handle(RegisterDatasets(location="here", datasets=(dataset("sales"), dataset("report"))))
    yield tmp_path
    close_engine(sqlite_url(tmp_path))


def test_a_want_is_recorded_found_shown_and_canceled(home: Path) -> None:
    with open_wants(home) as wants:
        request = wants.create(["sales", "report"], ttl_seconds=None, comment="for the board", command_id="today")
        again = wants.create(["sales", "report"], ttl_seconds=None, comment="for the board", command_id="today")
        report, sales = wants.find()
        (shown,) = wants.show(sales.id[-8:])
        wants.cancel(report.id[-8:])
        states = {want.refs: want.state for want in wants.status(request)}

        assert again == request
        assert (sales.refs, sales.source, sales.expires_at) == (("sales",), "user", None)
        assert sales.comment == "for the board"
        assert (shown.want, shown.waits_for) == (sales, ("sales",))
        assert states == {("sales",): WantState.IDLE, ("report",): WantState.CANCELED}
        assert [want.refs for want in wants.find(states=["Canceled"])] == [("report",)]
        assert [want.refs for want in wants.find(ended=True, dataset="report")] == [("report",)]


def test_refs_are_paused_and_resumed(home: Path) -> None:
    """Rule 6.13: `check_build_coordination` refuses what is paused."""
    with open_wants(home) as wants:
        wants.pause(["sales"], reason="the till sends half", until=timedelta(hours=1))
        coordination = check_build_coordination(["sales", "report"], home=home)
        with pytest.raises(AlreadyPaused):
            wants.pause(["report", "sales"], reason="again")
        with pytest.raises(InvalidRequest):
            wants.pause(["report"], reason="later", until=datetime(2100, 1, 1))
        wants.resume(["sales"], reason="repaired")

        assert coordination.build == ("report",)
        assert list(coordination.refused) == ["sales"]
        assert check_build_coordination(["sales"], home=home).build == ("sales",)
        with pytest.raises(NotPaused):
            wants.resume(["sales"])


def test_the_actor_is_the_person_as_on_the_command_line(home: Path) -> None:
    with open_wants(home) as wants:
        wants.create(["sales"], together=True, rebuild=True)

        (*_, event) = wants._engine().queries.events.named(["WantCreated"], 0, 10)

    assert event.actor == this_user()


def test_the_refusals_are_those_of_the_command(home: Path) -> None:
    with open_wants(home) as wants:
        with pytest.raises(UnknownAsset):
            wants.create(["sale"])
        with pytest.raises(UnknownPartition):
            wants.create(["sales@1"])
        with pytest.raises(InvalidRequest):
            wants.create(["sales"], sla_seconds=60.0, data_timestamp=datetime(2024, 1, 1))
        with pytest.raises(NotFound):
            wants.show("0193a5b2")

        assert wants.find(ended=True) == []


def test_wants_of_an_open_instance_are_the_wants_of_its_store() -> None:
    with DagsterInstance.ephemeral() as instance:
        engine = engine_for(instance)
        engine.handle(RegisterDatasets(location="here", datasets=(dataset("sales"),)))

        with open_wants(instance=instance) as wants:
            request = wants.create(["sales"])

        assert len(engine.queries.wants.named(request)) == 1
        assert get_builds_for_partition("sales", instance=instance) == []


def test_no_home_is_made_and_one_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadHome), open_wants(tmp_path / "none"):
        pass
    with (
        DagsterInstance.ephemeral() as instance,
        pytest.raises(InvalidRequest),
        open_wants(tmp_path, instance=instance),
    ):
        pass

    assert os.listdir(tmp_path) == []
