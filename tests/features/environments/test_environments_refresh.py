"""`databuild env refresh`: an environment sees its base as it is now (rule 16.9)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from databuild_dagster.data.home import sqlite_url
from databuild_dagster.features.environments import errors
from databuild_dagster.features.environments.keeping import Pins
from databuild_dagster.features.environments.records import (
    close_in,
    opened_in,
    opening_of,
    pin_again_in,
    record_opening,
    release_in,
)
from databuild_dagster.model.commands import RegisterDatasets, ReplaceFiles, RevertCanonical
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.removals import Removals
from tests.features.environments.conftest import Shop, borrow, changed, coded
from tests.features.environments.test_environments import Statements
from tests.support.catalog import HERE
from tests.support.crashes import AT_STATEMENTS, MOST_STATEMENTS, fewest, killed_at
from tests.support.world import COMPLETE, World

LIVE = InstanceState.LIVE
REFS = ("raw@x", "clean@x", "other@x", "report@x")


def build_again(shop: Shop) -> None:
    """The base builds everything again from new data."""
    shop.base.arrive("raw@x", f"dagster event {shop.base.seq}")
    for asset, inputs in {"clean": ["raw"], "other": ["raw"], "report": ["clean", "other"]}.items():
        shop.base.taint(f"{asset}@x")
        shop.base.succeed(f"{asset}@x", inputs=[f"{name}@x" for name in inputs])


def go_back(shop: Shop, uuids: dict[str, str]) -> None:
    """The base reverts to other instances."""
    for ref, uuid in uuids.items():
        shop.base.handle(RevertCanonical(ref=Ref(ref), uuid=uuid))


def uuids(world: World) -> dict[str, str]:
    return {ref: world.uuid(ref) for ref in REFS}


def kept_by(shop: Shop, *uuids: str) -> set[str]:
    return set(Pins(shop.base.engine).why_kept(Removals(shop.base.store).of_uuids(uuids).values()))


def test_all_that_was_borrowed_is_borrowed_again(shop: Shop) -> None:
    branch = shop.branch()
    borrow(branch, "report@x")
    build_again(shop)

    done = shop.environments.refresh("branch")

    assert uuids(branch) == uuids(shop.base)
    assert branch.states(*REFS) == [LIVE] * 4
    assert (sorted(done.borrowed), done.kept, done.earlier_pins) == (sorted(REFS), {}, ())
    assert done.pin == shop.environments.opened()["branch"].pin > done.pin_before


def test_what_was_built_here_stays_and_is_stale_by_its_inputs(shop: Shop) -> None:
    branch = shop.branch(coded("report", "clean", "other", code="2"))
    borrow(branch, "report@x")
    branch.succeed("report@x", inputs=["clean@x", "other@x"])
    before = branch.uuid("report@x")
    build_again(shop)

    done = shop.environments.refresh("branch")

    assert sorted(done.borrowed) == ["clean@x", "other@x", "raw@x"]
    assert branch.uuid("report@x") == before
    assert branch.queries.instances.stale([before]) == {before}


def test_a_compaction_in_the_base_makes_nothing_stale(shop: Shop) -> None:
    branch = shop.branch(coded("report", "clean", "other", code="2"))
    borrow(branch, "report@x")
    branch.succeed("report@x", inputs=["clean@x", "other@x"])
    uuid = shop.base.uuid("clean@x")
    shop.base.handle(ReplaceFiles(ref=Ref("clean@x"), uuid=uuid, job_run_id=shop.base.ids(), manifest=COMPLETE))

    done = shop.environments.refresh("branch")

    assert done.borrowed == ["clean@x"]
    assert branch.uuid("clean@x") == shop.base.uuid("clean@x")
    assert branch.queries.instances.stale([branch.uuid("report@x")]) == set()


def test_new_partitions_of_the_base_can_be_borrowed(shop: Shop) -> None:
    branch = shop.branch()
    shop.build("y")
    assert "report@y" not in borrow(branch, "report@y").live

    shop.environments.refresh("branch")

    assert "report@y" in borrow(branch, "report@y").live


def test_a_borrowed_ref_whose_code_changed_stays_with_its_consumers(shop: Shop) -> None:
    first = uuids(shop.base)
    build_again(shop)
    branch = shop.branch()
    borrow(branch, "report@x")
    before = uuids(branch)
    branch.handle(RegisterDatasets(location=HERE, datasets=changed(coded("clean", "raw", code="2"))))
    go_back(shop, first)

    done = shop.environments.refresh("branch")

    assert done.kept == {
        "clean@x": "clean in shop.py changed",
        "report@x": "its input clean@x is not the instance that the base read",
    }
    assert sorted(done.borrowed) == ["other@x", "raw@x"]
    assert branch.states(*REFS) == [LIVE] * 4
    assert done.earlier_pins == (done.pin_before,)
    assert kept_by(shop, *before.values()) == set(before.values())


def test_the_pin_before_goes_when_nothing_needs_it(shop: Shop) -> None:
    first = uuids(shop.base)
    build_again(shop)
    branch = shop.branch()
    borrow(branch, "report@x")
    branch.handle(RegisterDatasets(location=HERE, datasets=changed(coded("clean", "raw", code="2"))))
    go_back(shop, first)
    shop.environments.refresh("branch")
    for ref, inputs in {"clean@x": ["raw@x"], "report@x": ["clean@x", "other@x"]}.items():
        branch.taint(ref)
        branch.succeed(ref, inputs=inputs)

    done = shop.environments.refresh("branch")

    assert (done.kept, done.earlier_pins) == ({}, ())


def test_the_base_keeps_both_pins_until_the_environment_has_moved(shop: Shop) -> None:
    first = uuids(shop.base)
    build_again(shop)
    second = uuids(shop.base)
    borrow(shop.branch(), "report@x")
    go_back(shop, first)
    pin_again_in(shop.base.engine, "branch")
    go_back(shop, second)

    build_again(shop)

    assert kept_by(shop, *first.values(), *second.values()) == {*first.values(), *second.values()}

    shop.environments.refresh("branch")
    assert kept_by(shop, *first.values(), *second.values()) == set()


def test_an_open_launch_keeps_the_pin_before(shop: Shop) -> None:
    branch = shop.branch(coded("clean", "raw", code="2"))
    borrow(branch, "other@x")
    branch.start("clean@x")
    before = branch.uuid("raw@x")
    build_again(shop)

    done = shop.environments.refresh("branch")

    assert (done.open_launches, done.earlier_pins) == (1, (done.pin_before,))
    assert kept_by(shop, before) == {before}
    branch.succeed("clean@x", inputs=["raw@x"])
    assert shop.environments.refresh("branch").earlier_pins == ()
    assert kept_by(shop, before) == set()


def test_two_refreshes_at_once_agree_on_a_pin(shop: Shop) -> None:
    branch = shop.branch()
    borrow(branch, "report@x")
    slow = pin_again_in(shop.base.engine, "branch")
    assert slow is not None
    opening = opening_of(branch.store)
    assert opening is not None

    fast = shop.environments.refresh("branch")
    record_opening(branch.engine, replace(opening, pin=slow.pin, fingerprint="earlier"), opening)
    release_in(shop.base.engine, slow, ())

    now = opening_of(branch.store)
    assert now is not None
    assert now.pin == fast.pin == shop.environments.opened()["branch"].pin > slow.pin


def test_a_refresh_that_another_one_has_overtaken_begins_again(shop: Shop) -> None:
    branch = shop.branch()
    borrow(branch, "report@x")
    build_again(shop)
    opening = opening_of(branch.store)
    assert opening is not None
    waiting = ["the other refresh"]

    def other_moves(statement: str) -> None:
        """The other refresh has pinned before this one, and records it in the environment after this one has pinned."""
        record = opened_in(shop.base.store)["branch"]
        if waiting and record.pin != opening.pin and len(record.earlier) == 2:
            waiting.clear()
            fingerprint = shop.base.queries.events.fingerprint(slow.pin)
            assert fingerprint is not None
            record_opening(branch.engine, replace(opening, pin=slow.pin, fingerprint=fingerprint), opening)
            borrow(branch)
            build_again(shop)

    def trace(engine: Any) -> None:
        if engine.store.path == branch.store.path:
            engine.store._connection().set_trace_callback(other_moves)

    slow = pin_again_in(shop.base.engine, "branch")
    assert slow is not None
    build_again(shop)
    shop.traced = trace

    done = shop.environments.refresh("branch")

    now = opening_of(branch.store)
    assert now is not None
    assert not waiting
    assert (done.pin_before, now.pin, shop.environments.opened()["branch"].pin) == (slow.pin, done.pin, done.pin)
    before = uuids(branch)
    build_again(shop)
    assert kept_by(shop, *before.values()) == set(before.values())


def test_an_environment_without_a_record_in_its_base_is_refreshed_without_one(shop: Shop) -> None:
    opened = shop.environments.create("branch", is_pinned=False)
    world = World(changed(), url=sqlite_url(Path(opened.home)), first_id=1_000_000)
    shop.worlds.append(world)
    borrow(world, "report@x")
    build_again(shop)
    seq = shop.base.seq

    done = shop.environments.refresh("branch")

    assert uuids(world) == uuids(shop.base)
    assert (done.pin, shop.base.seq, shop.environments.opened()["branch"].pin) == (seq, seq, seq)


def test_a_refresh_is_refused_before_anything_is_recorded(shop: Shop) -> None:
    shop.environments.create("branch")
    shop.environments.create("brief", days=1)
    shop.environments.create("half")
    close_in(shop.base.engine, opened_in(shop.base.store)["branch"])
    Path(opened_in(shop.base.store)["half"].home, "environment.json").unlink()
    shop.base.clock.turn(2 * 86_400)
    seq = shop.base.seq

    for name, error in {
        "branch": errors.EnvironmentClosing,
        "brief": errors.EnvironmentOver,
        "half": errors.NotOpened,
        "none": errors.NoEnvironment,
    }.items():
        with pytest.raises(error):
            shop.environments.refresh(name)
    assert shop.base.seq == seq


@pytest.mark.long("it kills a process at each statement of a command")
@pytest.mark.parametrize("counter", AT_STATEMENTS)
def test_a_refresh_that_was_killed_anywhere_is_repeated(shop: Shop, counter: Any) -> None:
    branch = shop.branch()
    borrow(branch, "report@x")
    build_again(shop)
    statements = SimpleNamespace(store=Statements(shop))

    for statement in range(1, MOST_STATEMENTS):
        before = uuids(branch)
        shop.base.close()
        branch.close()
        is_killed = killed_at(statements, statement, lambda _: shop.environments.refresh("branch"), counter)
        if is_killed:
            read = {uuid for ref, uuid in before.items() if branch.uuid(ref) == uuid and branch.state(ref) is LIVE}
            assert kept_by(shop, *before.values()) >= read - set(uuids(shop.base).values())
            shop.environments.refresh("branch")
        assert uuids(branch) == uuids(shop.base)
        assert branch.states(*REFS) == [LIVE] * 4
        assert shop.environments.opened()["branch"].earlier == ()
        build_again(shop)
        if not is_killed:
            break
    assert statement > fewest(counter)
