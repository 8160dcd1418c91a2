"""A base in PostgreSQL under environments whose build state is a SQLite file (rule 16.1)."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from databuild_dagster.data.environment import environment_of, folder_of, home_of
from databuild_dagster.data.home import DB_URL_VARIABLE, sqlite_url
from databuild_dagster.features.environments import errors
from databuild_dagster.features.environments.base import base_of
from databuild_dagster.features.environments.borrowing import provide
from databuild_dagster.features.environments.environments import Environments
from databuild_dagster.features.environments.keeping import GRACE_SECONDS, Pins
from databuild_dagster.features.environments.views import figures_of
from databuild_dagster.model.commands import CreateWants
from databuild_dagster.model.refs import Ref
from databuild_dagster.store.backends.sqlite import HOST_VARIABLE
from databuild_dagster.store.errors import StoreUnusable
from tests.features.environments.conftest import Shop, borrow
from tests.features.environments.test_keeping import kept_by, rebuilt
from tests.support.free_port import free_port
from tests.support.postgres import postgres_server
from tests.support.world import worlds

pytestmark = pytest.mark.databases("postgres")

DAY = 86_400.0
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "environments.md"


class Hosts:
    """A laptop and a desk with a home each, over the same base. A host does not see the disk of the other host."""

    def __init__(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        self._shop, self._monkeypatch = shop, monkeypatch
        self._folders = shop.home.with_name(f"{shop.home.name}.environments")
        self._hidden = shop.home.with_name("disk of the laptop")
        monkeypatch.setenv(HOST_VARIABLE, "laptop")

    def to_desk(self) -> Environments:
        self._folders.rename(self._hidden)
        self._monkeypatch.setenv(HOST_VARIABLE, "desk")
        return Environments(self._shop.home.with_name("desk"), self._shop.environments._open)

    def to_laptop(self) -> Environments:
        self._hidden.rename(self._folders)
        self._monkeypatch.setenv(HOST_VARIABLE, "laptop")
        return self._shop.environments


@pytest.fixture
def hosts(shop_on_server: Shop, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    return Hosts(shop_on_server, monkeypatch)


def test_an_environment_borrows_from_a_base_in_postgresql(shop_on_server: Shop) -> None:
    branch = shop_on_server.branch()

    provided = borrow(branch, "report@x")

    assert branch.store.url == sqlite_url(home_of(shop_on_server.home, "branch"))
    assert len(provided.live) == 4
    assert branch.uuid("report@x") == shop_on_server.base.uuid("report@x")


def test_gc_of_a_base_in_postgresql_keeps_what_an_environment_sees(shop_on_server: Shop) -> None:
    base = shop_on_server.base
    shop_on_server.environments.create("branch")

    seen, later = rebuilt(base, "other@x"), rebuilt(base, "other@x")

    assert kept_by(Pins(base.engine), base, seen, later) == {seen}


def test_an_environment_at_rest_has_one_connection_to_its_base(shop_on_server: Shop) -> None:
    base = base_of(shop_on_server.branch().engine)
    assert base is not None
    together = threading.Barrier(3)

    def ask() -> None:
        with base._store.reading():
            together.wait(250)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    database = base._store.database
    database._close_others()  # type: ignore[attr-defined]  # The timer calls it.

    assert len(database._free) == 1  # type: ignore[attr-defined]


def test_a_base_whose_server_is_away_is_named(shop_on_server: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    branch = shop_on_server.branch()
    url = f"postgresql+psycopg://127.0.0.1:{free_port()}/shop?connect_timeout=1"
    monkeypatch.setenv(DB_URL_VARIABLE, url)

    with pytest.raises(
        errors.BaseAway, match=r"base of the environment branch cannot be reached: the build state in .* is away"
    ):
        base_of(branch.engine)


@pytest.mark.long("Dagster tries its database several times")
def test_a_base_is_away_with_the_database_of_its_dagster(shop_on_server: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    branch = shop_on_server.branch()
    monkeypatch.delenv(DB_URL_VARIABLE)
    url = f"postgresql+psycopg2://127.0.0.1:{free_port()}/shop"
    (shop_on_server.home / "dagster.yaml").write_text(f"storage: {{postgres: {{postgres_url: '{url}'}}}}\n")

    with pytest.raises(errors.BaseAway, match="database of Dagster in .* does not answer"):
        base_of(branch.engine)


def test_a_base_whose_server_is_not_named_is_away(shop_on_server: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    branch = shop_on_server.branch()
    monkeypatch.delenv(DB_URL_VARIABLE)

    with pytest.raises(errors.BaseAway, match="DATABUILD_DB_URL does not name postgresql"):
        base_of(branch.engine)


def test_no_tables_are_made_in_an_empty_database_that_is_not_the_base(
    shop_on_server: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = shop_on_server.branch()
    with psycopg.connect(postgres_server().admin_url, autocommit=True) as admin:
        admin.execute("CREATE SCHEMA empty")
        try:
            monkeypatch.setenv(DB_URL_VARIABLE, postgres_server().url("empty"))
            with pytest.raises(errors.BaseAway, match="no build state is in postgresql"):
                base_of(branch.engine)
        finally:
            # Refused if it has tables.
            admin.execute("DROP SCHEMA empty RESTRICT")


def test_an_environment_is_neither_used_nor_removed_over_a_different_base(
    shop_on_server: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = shop_on_server.branch()
    monkeypatch.setenv(DB_URL_VARIABLE, other := worlds.new_url())
    of_other = shop_on_server.over(other)

    with pytest.raises(errors.BaseChanged, match="the base was postgresql"):
        of_other.drop("branch")
    with pytest.raises(errors.BaseChanged, match="the base was postgresql"):
        base_of(branch.engine)
    with pytest.raises(errors.EnvironmentExists):
        of_other.create("branch")

    assert folder_of(shop_on_server.home, "branch").exists()


def test_a_home_that_a_different_base_has_by_now_is_not_removed(
    shop_on_server: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = shop_on_server.environments.create("branch")
    shutil.rmtree(folder_of(shop_on_server.home, "branch"))
    of_other = shop_on_server.over(worlds.new_url())
    of_other.create("branch")

    with pytest.raises(errors.BaseChanged):
        shop_on_server.environments.drop("branch")

    assert Path(opened.home).exists()
    of_other.drop("branch")
    shop_on_server.environments.drop("branch")
    assert shop_on_server.environments.opened() == {}


def test_no_file_of_an_environment_has_the_password_of_its_base(
    shop_on_server: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = sa.make_url(shop_on_server.base.store.url).set(password="geheim")
    text = url.render_as_string(hide_password=False)
    monkeypatch.setenv(DB_URL_VARIABLE, text)

    opened = shop_on_server.over(text).create("branch")

    environment = environment_of(Path(opened.home))
    assert environment is not None
    assert environment.place.startswith("postgresql+psycopg://***@")
    contents = [path.read_bytes() for path in folder_of(shop_on_server.home, "branch").rglob("*") if path.is_file()]
    assert contents
    assert not any(b"geheim" in found for found in contents)


def test_an_environment_of_a_different_host_is_removed_there(shop_on_server: Shop, hosts: Hosts) -> None:
    opened = shop_on_server.environments.create("branch")
    desk = hosts.to_desk()

    listed = desk.opened()
    for command in (desk.create, desk.drop):
        with pytest.raises(errors.EnvironmentElsewhere, match="branch was opened on laptop, in /"):
            command("branch")

    assert listed == desk.opened() == {"branch": opened}
    assert (desk.is_elsewhere(opened), figures_of(opened)) == (True, None)
    laptop = hosts.to_laptop()
    assert (laptop.is_elsewhere(opened), figures_of(opened)) == (False, (0, 0, 0))
    laptop.drop("branch")
    assert laptop.opened() == {}


def test_the_name_of_a_lost_host_is_free_a_day_after_its_time(shop_on_server: Shop, hosts: Hosts) -> None:
    opened = shop_on_server.environments.create("branch", days=1)
    desk = hosts.to_desk()

    shop_on_server.base.clock.turn(DAY + GRACE_SECONDS - 60)
    with pytest.raises(errors.EnvironmentElsewhere):
        desk.drop("branch")
    shop_on_server.base.clock.turn(60)
    left = desk.drop("branch")

    assert (left, desk.opened()) == (opened.root, {})


def test_a_name_that_was_given_to_a_different_host_leaves_the_first_removable(
    shop_on_server: Shop, hosts: Hosts
) -> None:
    before = shop_on_server.environments.create("branch", days=1)
    desk = hosts.to_desk()
    shop_on_server.base.clock.turn(DAY + GRACE_SECONDS)
    desk.drop("branch")
    of_desk = desk.create("branch")
    # The laptop sees no home of the desk either.
    Path(of_desk.home).parent.rename(Path(of_desk.home).parent.with_name("hidden"))

    laptop = hosts.to_laptop()
    with shop_on_server.environments._engine_of(Path(before.home)) as engine, pytest.raises(errors.BaseChanged):
        provide(engine, [Ref("report@x")])
    laptop.drop("branch")

    assert not Path(before.home).exists()
    assert laptop.opened() == {"branch": of_desk}


@contextmanager
def as_role(name: str, shop: Shop, monkeypatch: pytest.MonkeyPatch, script: str) -> Iterator[Environments]:
    """The environments as a role of the server finds them, which is made by a script for the schema `databuild`."""
    url = shop.base.store.url
    monkeypatch.setenv(DB_URL_VARIABLE, url.replace("postgres@", f"{name}@"))
    with psycopg.connect(postgres_server().admin_url, autocommit=True) as admin:
        admin.execute(re.sub(r"\bdatabuild\b", url.rpartition("%3D")[2], script))
        try:
            yield shop.over(os.environ[DB_URL_VARIABLE])
        finally:
            admin.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_the_role_of_the_page_opens_and_removes_environments_and_writes_no_want(
    shop_on_server: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = PAGE.read_text().partition("```sql\n")[2].partition("```")[0]

    with as_role("branches", shop_on_server, monkeypatch, script) as environments:
        opened = environments.create("branch")
        with environments._engine_of(Path(opened.home)) as engine:
            assert base_of(engine) is not None
        with (
            environments._engine_of(shop_on_server.home) as engine,
            pytest.raises(StoreUnusable, match="permission denied"),
        ):
            engine.handle(CreateWants(wants=((Ref("report@y"),),)))
        environments.drop("branch")

    assert shop_on_server.environments.opened() == {}


def test_a_role_that_only_reads_opens_an_environment_that_is_not_pinned(
    shop_on_server: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """CREATE ROLE readers LOGIN; GRANT USAGE ON SCHEMA databuild TO readers;
        GRANT SELECT ON ALL TABLES IN SCHEMA databuild TO readers"""

    with as_role("readers", shop_on_server, monkeypatch, script) as environments:
        with pytest.raises(StoreUnusable, match="permission denied"):
            environments.create("branch")
        opened = environments.create("branch", is_pinned=False)
        with environments._engine_of(Path(opened.home)) as engine:
            assert base_of(engine) is not None
        environments.drop("branch")

    assert not Path(opened.home).exists()
