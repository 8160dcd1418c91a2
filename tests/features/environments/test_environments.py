"""An environment is opened and removed whole, wherever the command was killed (rules 16.1, 16.6)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from databuild_dagster.data.environment import FILE_NAME, environment_of, folder_of
from databuild_dagster.data.home import DATABASE_NAME, warehouse_of_home
from databuild_dagster.data.ownership import MARKER_NAME, Ownership, RootOfAnother, plan_take_over
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.orchestrator_notes import RESTART_SECONDS, note_tick
from databuild_dagster.engine.tick_pass import TickLimits
from databuild_dagster.features.environments import errors
from databuild_dagster.features.environments.borrowing import provide
from databuild_dagster.features.environments.environments import Environments
from databuild_dagster.features.environments.keeping import Pins
from databuild_dagster.features.environments.promoting import promote
from databuild_dagster.features.environments.records import close_in, forget_in, opened_in
from databuild_dagster.features.environments.views import figures_of
from databuild_dagster.model.refs import Ref
from databuild_dagster.warehouse.errors import StorageTrouble
from databuild_dagster.warehouse.layout import Warehouse
from tests.features.environments.conftest import Shop, borrow
from tests.features.environments.test_keeping import kept_by, rebuilt
from tests.support.crashes import AT_STATEMENTS, MOST_STATEMENTS, fewest, killed_at, on_each_statement
from tests.support.object_store import S3Server


def test_an_environment_has_a_home_and_a_root_beside_its_base(shop: Shop) -> None:
    opened = shop.environments.create("branch")

    folder = folder_of(shop.home, "branch")
    assert (opened.home, opened.root) == (str(folder / "home"), str(folder / "data"))
    assert warehouse_of_home(Path(opened.home)) == opened.root
    assert shop.environments.opened() == {"branch": opened}
    assert figures_of(opened) == (0, 0, 0)


@pytest.mark.parametrize("is_pinned", [True, False])
def test_a_damaged_environment_stops_no_command_about_another(shop: Shop, *, is_pinned: bool) -> None:
    opened = shop.environments.create("damaged", is_pinned=is_pinned)
    shop.branch()
    for file in Path(opened.home).glob(f"{DATABASE_NAME}*"):
        file.unlink()
    (Path(opened.home) / DATABASE_NAME).write_bytes(b"SQLite format 3\0" + b"garbage" * 1000)

    assert set(shop.environments.opened()) == ({"branch", "damaged"} if is_pinned else {"branch"})
    assert shop.environments.refresh("branch").name == "branch"


def test_a_root_may_be_named(shop: Shop, tmp_path: Path) -> None:
    opened = shop.environments.create("branch", root=str(tmp_path / "elsewhere"))

    assert Path(opened.root, ".databuild.json").exists()
    shop.environments.drop("branch")
    assert not Path(opened.root).exists()


def test_a_root_behind_a_link_is_removed_with_its_environment(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    shop.environments.create("branch", root=str(tmp_path / "link"))

    shop.environments.drop("branch")

    assert not (tmp_path / "disk").exists()


def test_a_removal_that_was_killed_between_two_files_is_continued(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "elsewhere"
    shop.environments.create("branch", root=str(root))
    for name in ("clean", "report"):
        (root / name).mkdir()
        (root / name / "part.parquet").touch()
    remove, seen = os.unlink, list[str]()

    def unlink(path: str, **named: Any) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(path)
        remove(path, **named)

    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(os, "unlink", unlink)
        shop.environments.drop("branch")
    assert root.exists()

    shop.environments.drop("branch")

    assert not root.exists()
    assert shop.environments.opened() == {}


def test_an_environment_owns_its_root_and_nothing_of_its_base(shop: Shop) -> None:
    branch = shop.branch()
    own, of_base = Warehouse(shop.environments.opened()["branch"].root), Warehouse(str(shop.home / "warehouse"))

    ownership = Ownership(branch.store)

    assert ownership.why_not(own) is None
    assert not ownership.may_write(of_base)
    with pytest.raises(RootOfAnother):
        ownership.claim(Warehouse(str(shop.home.with_name("free"))))
    assert plan_take_over(branch.store, [of_base, own])[0].root == own.root
    assert Ownership(shop.base.store).why_not(own) is not None


def test_a_name_in_use_and_a_bad_name_are_refused(shop: Shop) -> None:
    shop.environments.create("branch")
    seq = shop.base.seq

    with pytest.raises(errors.EnvironmentExists):
        shop.environments.create("branch")
    for name in ("", "Branch", "-x", "a/b", "x" * 41):
        with pytest.raises(errors.BadEnvironmentName):
            shop.environments.create(name)
    assert shop.base.seq == seq


@pytest.mark.parametrize("days", [0, -1, 3651, float("nan"), float("inf")])
def test_a_time_to_keep_that_is_no_number_of_days_is_refused(shop: Shop, days: float) -> None:
    """The log of the base would have a record that nobody can read."""
    with pytest.raises(errors.BadDays):
        shop.environments.create("branch", days=days)

    assert opened_in(shop.base.store) == {}


def test_an_environment_is_no_base(shop: Shop) -> None:
    opened = shop.environments.create("branch")

    with pytest.raises(errors.BaseIsEnvironment):
        Environments(Path(opened.home), shop.environments._open).create("further")


def test_a_root_in_a_home_or_with_files_is_refused(shop: Shop, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(shop.home, other)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.csv").touch()
    (tmp_path / "warehouse").mkdir()
    Ownership(shop.base.store).claim(Warehouse(str(tmp_path / "warehouse")))
    seq = shop.base.seq

    for root in (
        shop.home / "data",
        other / "data" / "deep",
        tmp_path / "full",
        tmp_path / "full" / "a.csv",
        tmp_path / "warehouse" / "raw",
        folder_of(shop.home, "branch") / "home",
        folder_of(shop.home, "next") / "data",
    ):
        with pytest.raises(errors.BadRoot):
            shop.environments.create("branch", root=str(root))
    assert shop.base.seq == seq
    assert shop.environments.opened() == {}


def test_a_root_in_a_bucket_is_removed_whole_and_alone(shop: Shop, s3: S3Server, bucket: str) -> None:
    client = s3.client()
    for key in ("branches/a-2/x.parquet", "branches/b", "other/.databuild.json"):
        client.put_object(Bucket=bucket, Key=key, Body=b"x")
    before = s3.keys(bucket)
    s3.refusals.append((403, "AccessDenied", f"GET /{bucket}/{MARKER_NAME}"))
    opened = shop.environments.create("branch", root=f"s3://{bucket}/branches/a/")
    assert s3.refusals == [], "the user has no rights above"
    for key in ("clean/data/part.parquet", "clean/.hidden/x", "report/data/part.parquet"):
        client.put_object(Bucket=bucket, Key=f"branches/a/{key}", Body=b"x")

    assert opened.root == f"s3://{bucket}/branches/a"
    assert Ownership(shop.base.store).why_not(Warehouse(opened.root)) is not None
    for root in ("branches", "branches/a", "branches/a/clean", "other/x"):
        with pytest.raises(errors.BadRoot):
            shop.environments.create("next", root=f"s3://{bucket}/{root}")
    with pytest.raises(StorageTrouble):
        shop.environments.create("next", root="s3://no-such-bucket/x")
    s3.refusals.append((403, "AccessDenied", f"DELETE /{bucket}/branches/a/report"))
    with pytest.raises(StorageTrouble):
        shop.environments.drop("branch")
    assert f"branches/a/{MARKER_NAME}" in s3.keys(bucket)

    shop.environments.drop("branch")

    assert s3.keys(bucket) == before
    assert shop.environments.opened() == {}


def test_an_environment_that_is_not_pinned_records_nothing_in_its_base(shop: Shop) -> None:
    seq = shop.base.seq

    branch = shop.branch(is_pinned=False)

    opened = shop.environments.opened()["branch"]
    assert (shop.base.seq, opened.pin) == (seq, seq)
    assert len(borrow(branch, "raw@x").live) == 1
    assert figures_of(opened)[:2] == (1, 0)
    assert kept_by(Pins(shop.base.engine), shop.base, rebuilt(shop.base, "other@x")) == set()
    for is_pinned in (True, False):
        with pytest.raises(errors.EnvironmentExists):
            shop.environments.create("branch", is_pinned=is_pinned)
    launch = branch.buffer("clean@x")
    branch.start_launch(launch, holder=this_process())
    with pytest.raises(errors.InUse):
        shop.environments.drop("branch")


def test_an_environment_that_is_not_pinned_is_over_after_its_time(shop: Shop) -> None:
    opened = shop.environments.create("branch", is_pinned=False, days=1)
    shop.base.clock.turn(86_400)

    with shop.environments._engine_of(Path(opened.home)) as engine, pytest.raises(errors.EnvironmentOver):
        provide(engine, [Ref("report@x")])


def test_a_removed_environment_leaves_its_name_and_all_data_of_the_base(shop: Shop) -> None:
    borrow(shop.branch(), "report@x")
    before = shop.base.canonical("report@x")

    shop.environments.drop("branch")

    assert not folder_of(shop.home, "branch").exists()
    assert shop.base.canonical("report@x") == before
    assert shop.environments.create("branch").pin == shop.base.seq
    for name in ("other", "../base.environments/other"):
        with pytest.raises(errors.NoEnvironment):
            shop.environments.drop(name)


def test_an_environment_in_which_a_process_builds_is_not_removed(shop: Shop) -> None:
    branch = shop.branch()
    launch = branch.buffer("clean@x")
    branch.start_launch(launch, holder=this_process())

    with pytest.raises(errors.InUse):
        shop.environments.drop("branch")

    assert not shop.environments.opened()["branch"].is_closing


def test_an_environment_whose_orchestrator_ticks_is_not_removed(shop: Shop) -> None:
    branch = shop.branch()
    (location,) = {spec.location for spec in branch.engine.queries.datasets.all().values()}
    note_tick(branch.engine, location, TickLimits(), interval_seconds=5.0)

    with pytest.raises(errors.InUse, match="`databuild dev`"):
        shop.environments.drop("branch")
    assert not shop.environments.opened()["branch"].is_closing

    shop.base.clock.turn(RESTART_SECONDS + 1)
    shop.environments.drop("branch")


def test_a_build_that_begins_while_the_environment_closes_keeps_it(shop: Shop) -> None:
    branch = shop.branch()
    launches = [branch.buffer("clean@x")]

    def begin(statement: str) -> None:
        if "INSERT" in statement and launches:
            branch.start_launch(launches.pop(), holder=this_process())

    def trace(engine: Engine) -> None:
        if engine.store.path == shop.base.store.path:
            connection: Any = engine.store._connection()
            connection.set_trace_callback(begin)

    shop.traced = trace

    with pytest.raises(errors.InUse):
        shop.environments.drop("branch")

    assert Path(shop.environments.opened()["branch"].home).exists()


def test_a_closing_environment_is_not_opened_again(shop: Shop) -> None:
    shop.environments.create("branch")
    close_in(shop.base.engine, opened_in(shop.base.store)["branch"])

    with pytest.raises(errors.EnvironmentClosing):
        shop.environments.create("branch")

    shop.environments.drop("branch")
    shop.environments.create("branch")


def test_an_environment_that_is_removed_while_it_is_opened_is_closing(shop: Shop) -> None:
    def forget(_: str) -> None:
        if "branch" in opened_in(shop.base.store):
            forget_in(shop.base.engine, "branch")

    def trace(engine: Engine) -> None:
        connection: Any = engine.store._connection()
        connection.set_trace_callback(forget)

    shop.traced = trace

    with pytest.raises(errors.EnvironmentClosing):
        shop.environments.create("branch")


def test_a_command_on_an_environment_whose_home_is_removed_meanwhile_is_refused(shop: Shop) -> None:
    opened = shop.environments.create("branch")

    def remove(engine: Engine) -> None:
        if engine.store.path == str(Path(opened.home, DATABASE_NAME)):
            Path(opened.home, FILE_NAME).unlink()

    commands = (
        lambda: promote(shop.environments, "branch", actor="user:kate"),
        lambda: shop.environments.refresh("branch"),
    )
    for command in commands:
        shop.traced = remove
        with pytest.raises(errors.EnvironmentClosing):
            command()
        shop.traced = lambda engine: None
        shop.environments.drop("branch")
        shop.environments.create("branch")


def test_an_environment_that_a_restored_base_does_not_know_can_be_removed(shop: Shop) -> None:
    shop.base.close()
    copy = shop.home.with_name("copy")
    shutil.copytree(shop.home, copy)
    opened = shop.environments.create("branch")
    shutil.rmtree(shop.home)
    copy.rename(shop.home)

    with pytest.raises(errors.EnvironmentExists):
        shop.environments.create("branch")
    Path(opened.home, FILE_NAME).unlink()  # A removal was killed here.
    shop.environments.drop("branch")

    assert not Path(opened.home).exists()
    shop.environments.create("branch")


class Statements:
    """The statements of every store that a command opens, for `killed_at`."""

    path = ""

    def __init__(self, shop: Shop) -> None:
        self._call: Callable[[str], None] | None = None
        shop.traced = self._trace

    def _connection(self) -> Statements:
        return self

    def set_trace_callback(self, call: Callable[[str], None]) -> None:
        self._call = call
        on_each_statement(SimpleNamespace(path=None), call)

    def _trace(self, engine: Engine) -> None:
        if self._call is not None and engine.store.path is not None:
            connection: Any = engine.store._connection()
            connection.set_trace_callback(self._call)


@pytest.mark.long("it kills a process at each statement of a command")
@pytest.mark.databases("sqlite", "postgres")
@pytest.mark.parametrize("counter", AT_STATEMENTS)
@pytest.mark.parametrize("command", ["create", "create unpinned", "drop"])
def test_a_command_that_was_killed_anywhere_is_repeated(any_shop: Shop, command: str, counter: Any) -> None:
    shop = any_shop
    shop.base.close()
    world = SimpleNamespace(store=Statements(shop))
    create = partial(shop.environments.create, "branch", is_pinned=command != "create unpinned")
    act = partial(shop.environments.drop, "branch") if command == "drop" else create

    for statement in range(1, MOST_STATEMENTS):
        if command == "drop":
            create()
        is_killed = killed_at(world, statement, lambda _: act(), counter)
        if is_killed:
            found = shop.environments.opened().get("branch")
            if command == "drop" and found is not None:
                shop.environments.drop("branch")
            if command != "drop" and (found is None or figures_of(found) is None):
                create()
        found = shop.environments.opened().get("branch")
        if command != "drop":
            assert found is not None
            assert figures_of(found) == (0, 0, 0)
            assert environment_of(Path(found.home)) is not None
            shop.environments.drop("branch")
        else:
            assert found is None
        assert not folder_of(shop.home, "branch").exists()
        if not is_killed:
            break
    assert statement > fewest(counter)


def test_both_sides_of_an_environment_that_is_not_open_are_refused(shop: Shop) -> None:
    def opened(name: str) -> None:
        with shop.environments.both(name):
            pass

    with pytest.raises(errors.NoEnvironment):
        opened("branch")
    found = shop.environments.create("branch")
    opened("branch")
    shutil.rmtree(found.home)
    with pytest.raises(errors.NotOpened):
        opened("branch")
    close_in(shop.base.engine, found)
    with pytest.raises(errors.EnvironmentClosing):
        opened("branch")
