"""A base that was taken over, copied or moved, and its environments (rules 3.10, 16.14)."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from databuild_dagster.data.environment import folder_of
from databuild_dagster.data.home import sqlite_url
from databuild_dagster.data.ownership import roots_of_environments, take_over
from databuild_dagster.features.environments import errors
from databuild_dagster.features.environments.environments import Environments
from databuild_dagster.features.environments.promoting import promote
from databuild_dagster.features.environments.views import EnvironmentState
from databuild_dagster.store.store import open_store
from tests.features.environments.conftest import Shop, borrow
from tests.features.environments.test_promoting import BUILT, CLEANER, built, deploy, lost, run
from tests.support.world import World


def taken_over(home: Path) -> None:
    with closing(open_store(sqlite_url(home))) as store:
        take_over(store, [])


def moved(shop: Shop, to: str) -> tuple[Environments, Path]:
    """The environments of the base after its folder, and the folder of its environments, got a new name."""
    for world in (shop.base, *shop.worlds):
        world.close()
    home = shop.home.with_name(to)
    shop.home.rename(home)
    folder_of(shop.home, "").rename(folder_of(home, ""))
    shop.base = World(url=sqlite_url(home), first_id=900_000)
    shop.worlds.clear()
    return Environments(home, shop._open), home


@pytest.mark.parametrize("is_pinned", [True, False])
def test_an_environment_is_attached_after_a_take_over_of_its_base(shop: Shop, *, is_pinned: bool) -> None:
    branch = shop.branch(CLEANER, is_pinned=is_pinned)
    assert roots_of_environments(shop.base.store).keys() == ({"branch"} if is_pinned else set())
    taken_over(shop.home)
    with pytest.raises(errors.BaseChanged, match="or was taken over"):
        borrow(branch, "other@x")

    shop.environments.attach("branch")
    shop.environments.attach("branch")

    assert len(borrow(branch, "other@x").live) == 2
    shop.environments.drop("branch")


def test_an_environment_whose_opening_a_restored_base_lacks_is_not_attached(shop: Shop) -> None:
    shop.base.close()
    copy = shop.home.with_name("copy")
    shop.environments.create("branch")
    shutil.copytree(shop.home, copy)
    with shop.environments.both("branch"):
        pass
    shop.environments.refresh("branch")
    shutil.rmtree(shop.home)
    copy.rename(shop.home)
    taken_over(shop.home)

    with pytest.raises(errors.BaseChanged, match="does not have the opening"):
        shop.environments.attach("branch")

    shop.environments.drop("branch")


def test_a_copy_of_a_base_has_no_power_over_the_environments_of_the_original(shop: Shop) -> None:
    branch = shop.branch(CLEANER)
    shop.base.close()
    copy = shop.home.with_name("copy")
    shutil.copytree(shop.home, copy)
    of_copy = Environments(copy, lambda home: shop._open(home, sqlite_url(copy)))

    for is_owner in (False, True):
        for command in (
            of_copy.attach,
            of_copy.drop,
            of_copy.refresh,
            lambda name: promote(of_copy, name, actor="user:kate"),
        ):
            with pytest.raises(errors.CopiedBase):
                command("branch")
        if not is_owner:
            taken_over(copy)

    assert len(borrow(branch, "other@x").live) == 2


def test_a_moved_base_says_what_to_do_with_its_environments(shop: Shop) -> None:
    built(shop)
    before = shop.home
    environments, home = moved(shop, "renamed")
    shop.home = home
    sentence = f"opened when its base was in {before}"

    for command in (environments.create, environments.refresh, environments.attach):
        with pytest.raises(errors.BaseMoved, match=sentence):
            command("branch")
    (shown,) = environments.views(environments.opened()).values()
    assert shown.state is EnvironmentState.MOVED
    assert not folder_of(before, "").exists()
    environments.create("next")
    environments.drop("branch")
    assert not folder_of(home, "branch").exists()
    assert set(environments.opened()) == {"next"}


def test_an_environment_continues_behind_a_link_to_the_moved_base(shop: Shop) -> None:
    built(shop)
    deploy(shop)
    before = shop.home
    environments, home = moved(shop, "renamed")
    before.symlink_to(home)
    folder_of(before, "").symlink_to(folder_of(home, ""))

    assert [move.ref for move in promote(environments, "branch", actor="user:kate").moved] == list(BUILT)


def test_a_moved_base_reads_what_it_took_and_a_removal_leaves_it(shop: Shop) -> None:
    built(shop)
    deploy(shop)
    run(shop)
    environments, home = moved(shop, "renamed")
    shop.home = home

    assert [lost(shop.base, ref) for ref in BUILT] == [(), ()]
    assert str(shop.base.canonical("clean@x").manifest_uri).startswith(f"{folder_of(home, 'branch')}/data/")
    environments.drop("branch")

    assert [lost(shop.base, ref) for ref in BUILT] == [(), ()]
    assert environments.opened() == {}
