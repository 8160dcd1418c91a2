"""A read of an environment asks its base what happened since the last tick (rule 16.8)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from databuild_dagster.data.base_of_environment import wrong_in_base
from databuild_dagster.data.environment import FILE_NAME, Environment
from databuild_dagster.data.home import sqlite_url
from databuild_dagster.model.commands import BorrowInstances, FollowBase, RegisterDatasets, RemoveManifests
from databuild_dagster.model.events import Birth, TaintCreated
from tests.support.catalog import HERE, dataset
from tests.support.world import COMPLETE, World


@pytest.fixture
def base(tmp_path: Path) -> World:
    (tmp_path / "base").mkdir()
    return World([dataset("a"), dataset("b"), dataset("c")], url=sqlite_url(tmp_path / "base"))


@pytest.fixture
def here(tmp_path: Path) -> World:
    """The store of an environment."""
    home = tmp_path / "home"
    home.mkdir()
    opened = Environment("branch", str(tmp_path / "base"), str(tmp_path / "data"))
    (home / FILE_NAME).write_bytes(msgspec.json.encode(opened))
    return World(url=sqlite_url(home))


def test_tainted_and_removed_instances_of_the_base_are_named(base: World, here: World) -> None:
    base.live("a", "b", "c")
    a, b, c = (base.uuid(ref) for ref in "abc")
    base.taint("a", reason="wrong rates")
    base.taint("b")
    base.live("b")
    base.handle(RemoveManifests(uuids=(b,), reason="superseded"))

    assert wrong_in_base(here.queries, [a, b, c, "of the environment"]) == {a: "wrong rates", b: None}


def test_a_taint_that_was_canceled_in_the_environment_is_not_named(base: World, here: World) -> None:
    base.live("a")
    uuid = base.uuid("a")
    canceled, late = base.taint("a", reason="wrong rates"), base.taint("a", reason="late")
    birth = Birth(str(base.canonical("a").job_run), "a", "a", manifest=COMPLETE)
    here.handle(RegisterDatasets(location=HERE, datasets=(dataset("a"),)))
    here.handle(BorrowInstances(births=(birth,)))
    here.handle(FollowBase(facts=(TaintCreated(canceled, (), "wrong rates", (uuid,)),)))
    assert wrong_in_base(here.queries, [uuid]) == {uuid: "wrong rates; late"}

    here.untaint(canceled)

    assert wrong_in_base(here.queries, [uuid]) == {uuid: "late"}
    base.untaint(late)
    assert wrong_in_base(here.queries, [uuid]) == {}


def test_a_store_of_no_environment_asks_nothing(base: World) -> None:
    base.live("a")
    base.taint("a")

    assert wrong_in_base(base.queries, [base.uuid("a")]) == {}


def test_a_base_that_is_away_or_broken_is_logged(
    base: World, here: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base.close()
    (tmp_path / "base" / "databuild.db").write_bytes(b"not a database" * 1000)
    assert wrong_in_base(here.queries, ["a"]) == {}
    (tmp_path / "base").rename(tmp_path / "elsewhere")

    assert wrong_in_base(here.queries, ["a"]) == {}

    assert caplog.text.count("the base of the environment branch does not answer") == 2
    assert not (tmp_path / "base").exists(), "a look makes no store"
