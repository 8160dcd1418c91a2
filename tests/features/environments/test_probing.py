"""A base in PostgreSQL takes data on a disk once its orchestrator has read that disk (rule 16.10)."""

from __future__ import annotations

from pathlib import Path

import pytest

from databuild_dagster.features.environments.probing import PROBE_NAME, look_for_probes
from databuild_dagster.features.environments.records import seen_in
from databuild_dagster.model.errors import PromotionRefused
from databuild_dagster.store.backends.sqlite import HOST_VARIABLE
from tests.features.environments.conftest import Shop
from tests.features.environments.test_promoting import BUILT, built, deploy, lost, run

pytestmark = pytest.mark.databases("postgres")


def look(shop: Shop, *, is_orchestrator: bool = True) -> None:
    look_for_probes(shop.base.engine, shop.base.seq, is_orchestrator=is_orchestrator)


def test_data_on_a_disk_is_promoted_after_an_orchestrator_of_the_base_has_read_it(shop_on_server: Shop) -> None:
    shop = shop_on_server
    branch = built(shop)
    deploy(shop)
    seq = shop.base.seq
    with pytest.raises(PromotionRefused, match="no orchestrator of the base has read it there yet"):
        run(shop)
    assert shop.base.seq == seq

    look(shop)
    look(shop)

    assert shop.base.seq == seq + 1, "it is recorded once"
    assert [move.ref for move in run(shop).moved] == list(BUILT)
    branch.close()
    shop.environments.drop("branch")
    assert [lost(shop.base, ref) for ref in BUILT] == [(), ()]
    assert seen_in(shop.base.store) == {}


def test_a_disk_that_the_orchestrator_lacks_is_not_recorded(shop_on_server: Shop, tmp_path: Path) -> None:
    shop = shop_on_server
    built(shop)
    deploy(shop)
    root = Path(shop.environments.opened()["branch"].root)
    root.rename(tmp_path / "of the laptop")

    look(shop)
    root.mkdir()
    (root / PROBE_NAME).write_text("of a different environment")
    look(shop)
    assert seen_in(shop.base.store) == {}

    (root / PROBE_NAME).unlink()
    root.rmdir()
    (tmp_path / "of the laptop").rename(root)
    look(shop)
    assert run(shop).moved


def test_a_tick_by_hand_on_the_host_of_the_environment_proves_nothing(
    shop_on_server: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOST_VARIABLE, "laptop")
    shop_on_server.environments.create("branch")

    look(shop_on_server, is_orchestrator=False)
    assert seen_in(shop_on_server.base.store) == {}

    monkeypatch.setenv(HOST_VARIABLE, "server")
    look(shop_on_server, is_orchestrator=False)
    assert set(seen_in(shop_on_server.base.store)) == {"branch"}


def test_an_earlier_environment_of_the_name_proves_nothing(shop_on_server: Shop) -> None:
    shop = shop_on_server
    shop.environments.create("branch")
    look(shop)
    shop.environments.drop("branch")
    opened = shop.environments.create("branch")

    assert seen_in(shop.base.store).get("branch") != opened.id
