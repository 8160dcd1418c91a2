"""`gc` of a base keeps what its environments see, and `gc` of an environment touches nothing of its base (rule 16.4)."""

from __future__ import annotations

from pathlib import Path

from databuild_dagster.data.keepers import Keeper
from databuild_dagster.features.clean.cleaning import Cleaner
from databuild_dagster.features.environments.keeping import Pins
from databuild_dagster.features.environments.records import Opened, open_in
from databuild_dagster.features.erase.erasing import Eraser
from databuild_dagster.store.removals import Removals
from tests.features.environments.conftest import Shop, borrow
from tests.support.published import DAYS, ICEBERG, PublishedWorld
from tests.support.world import World


def rebuilt(world: World, ref: str) -> str:
    """Replace the instance of a ref; the uuid of the replaced instance."""
    before = world.uuid(ref)
    world.taint(ref)
    world.live(ref)
    return before


def kept_by(keeper: Keeper, world: World, *uuids: str) -> set[str]:
    return set(keeper.why_kept(Removals(world.store).of_uuids(uuids).values()))


def test_what_an_environment_sees_at_its_pin_is_kept(shop: Shop) -> None:
    earlier = rebuilt(shop.base, "other@x")
    shop.environments.create("branch")
    seen = rebuilt(shop.base, "other@x")
    later = rebuilt(shop.base, "other@x")

    assert kept_by(Pins(shop.base.engine), shop.base, earlier, seen, later) == {seen}


def test_an_environment_keeps_nothing_once_it_is_removed_or_long_over(shop: Shop) -> None:
    shop.environments.create("branch")
    shop.environments.create("brief", days=1)
    seen = rebuilt(shop.base, "other@x")

    shop.environments.drop("branch")
    assert kept_by(Pins(shop.base.engine), shop.base, seen) == {seen}
    shop.base.clock.turn(3 * 86_400)
    assert kept_by(Pins(shop.base.engine), shop.base, seen) == set()


def test_an_erasure_does_not_wait_for_environments(tmp_path: Path) -> None:
    world = PublishedWorld(tmp_path / "home", ICEBERG)
    before = world.build(DAYS[0], {"name": ["ada", "bob"]})
    now = world.engine.now()
    open_in(
        world.engine, Opened("id", "branch", "/home", "/root", opened_at=now, keep_until=now + 60, opened_by="user:u")
    )
    pins = Pins(world.engine)

    receipt = Eraser(world.engine, world.warehouse.root, keepers=[pins]).erase("sales", "name = 'ada'", "ticket 7")

    assert kept_by(pins, world, before) == {before}, "gc would keep it"
    assert receipt.is_complete
    world.close()


def test_gc_of_an_environment_keeps_what_it_borrowed(shop: Shop) -> None:
    branch = shop.branch()
    borrow(branch, "other@x")
    rebuilt(branch, "other@x")

    plan = Cleaner(branch.engine, shop.environments.opened()["branch"].root).plan_gc(keep=0, older_than_seconds=0)

    assert plan.going == []
    (kept,) = plan.kept
    assert "does not own" in kept.why
