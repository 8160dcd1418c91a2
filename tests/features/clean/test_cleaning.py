"""A clean-up that dies at any line leaves something to go on with, and takes away nothing that anybody reads (rule 10.8).

Without Dagster and Spark: the store, a warehouse with files in it, and processes that are killed.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from databuild_dagster.data.home import DATABASE_NAME
from databuild_dagster.engine.holders import new_id, this_process
from databuild_dagster.model import commands as c
from databuild_dagster.model.states import InstanceState
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    ManifestState,
    file_paths,
    read_manifest,
)
from tests.support.attempts import Attempts, attempts
from tests.support.catalog import dataset
from tests.support.dead_process import dead_process
from tests.support.homes import ASSETS, Home, a_home
from tests.support.object_store import S3Server
from tests.support.world import World

__all__ = ["attempts"]

#: More steps than any clean-up of these has.
MOST_STEPS = 400


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = a_home(tmp_path, f"sqlite:///{tmp_path}/build.db")
    yield made
    made.assert_sound()
    made.world.store.close()


# What goes


def test_of_what_is_superseded_the_manifest_stays_and_says_so(home: Home) -> None:
    """Rule 10.2: manifest → removed."""
    first, second = home.live("a"), home.live_again("a")
    before = read_manifest(home.warehouse, "a", first)

    done = home.cleaner.carry_out(home.gc())

    assert [instance.uuid for instance in done.going] == [first]
    assert home.files("a", first) == ["manifest.json"]
    after = read_manifest(home.warehouse, "a", first)
    assert (after.state, after.files, after.inputs) == (ManifestState.REMOVED, before.files, before.inputs)
    assert home.files("a", second) == ["manifest.json", "part-0.parquet"]
    assert home.gc().is_empty


def test_how_many_stay_and_for_how_long_is_for_who_asks(home: Home) -> None:
    built = [home.live("a"), home.live_again("a"), home.live_again("a")]
    home.world.clock.turn(100)
    built.append(home.live_again("a"))

    assert {instance.uuid for instance in home.gc().going} == set(built[:3])
    assert [instance.uuid for instance in home.gc(keep=2).going] == built[:1]
    assert {instance.uuid for instance in home.gc(older_than_seconds=50).going} == set(built[:2])
    assert home.gc(keep=3).going == []


def test_what_a_process_that_may_live_is_writing_stays(home: Home) -> None:
    """Rule 6.9: it hears that it was canceled by its next heartbeat."""
    home.world.want("a")
    launch = home.world.buffer("a")
    home.world.start_launch(launch, holder=this_process())
    home.store("a", manifest=False)
    assert home.cleaner.plan_clean().going == []
    home.world.cancel("a")

    (kept,) = home.cleaner.plan_clean().kept

    assert "its process may still be writing" in kept.why
    home.world.clock.turn(3700)
    assert len(home.cleaner.plan_clean().going) == 1


def test_files_that_came_from_outside_are_never_ours_to_remove(home: Home, tmp_path: Path) -> None:
    """Rule 10.6"""
    for number in (1, 2):
        (tmp_path / f"{number}.parquet").write_bytes(b"theirs")
        home.arrived("a", str(tmp_path / f"{number}.parquet"))

    plan = home.gc(tainted=True)

    assert plan.going == []
    assert [item.why for item in plan.kept] == ["its files came from outside and belong to another program"]


def test_what_a_kept_manifest_of_another_warehouse_lists_stays(home: Home, tmp_path: Path) -> None:
    """A code location may have adopted what lies in another one's."""
    first = home.live("a")
    home.live_again("a")
    listed = file_paths(home.warehouse, read_manifest(home.warehouse, "a", first))[0]
    lister = Home(home.world, Warehouse(str(tmp_path / "elsewhere"))).arrived("b", listed)

    plan = home.gc()

    assert plan.going == []
    assert [item.why for item in plan.kept] == [f"instance {lister} of b lists its files"]
    home.warehouse = Warehouse(str(tmp_path / "elsewhere"))
    home.world.taint("a")


def test_data_that_was_reverted_to_after_the_plan_stays(home: Home) -> None:
    first, second = home.live("a"), home.live_again("a")
    plan = home.gc()
    home.world.handle(c.RevertCanonical(ref="a", uuid=first))

    done = home.cleaner.carry_out(plan)

    assert (done.going, [instance.uuid for instance in done.kept]) == ([], [first])
    assert home.files("a", first) == ["manifest.json", "part-0.parquet"]
    assert [instance.uuid for instance in home.gc().going] == [second]


def test_what_the_dead_write_after_all_is_removed_once_more(home: Home) -> None:
    """Its record stands in its place, so it can never pass for complete."""
    uuid = home.failed("a")
    home.cleaner.carry_out(home.cleaner.plan_clean())
    late = Path(home.warehouse.instance_dir("a", uuid), "part-9.parquet")
    late.write_bytes(b"too late")

    done = home.cleaner.carry_out(home.cleaner.plan_clean())

    assert [instance.uuid for instance in done.finished] == [uuid]
    assert not late.exists()
    assert home.cleaner.plan_clean().is_empty


# Killed anywhere


def killed_at_step(step: int, act: Callable[[], object]) -> bool:
    """Whether a forked child was killed at its n-th step: a file made, renamed or removed, or the store's file written."""
    pid = os.fork()
    if pid == 0:
        # A collection would write to every object of the parent, and the kernel would copy each of their pages.
        gc.disable()
        count = 0

        def die_in_time(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal count
            if event in ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "os.mkdir", "os.link") or (
                event == "open" and len(arguments) > 2 and int(str(arguments[2] or 0)) & os.O_CREAT
            ):
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(die_in_time)
            act()
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


@pytest.mark.long("each step of a clean-up kills its process once")
def test_a_clean_up_killed_at_any_step_is_finished_by_the_next_one(tmp_path: Path) -> None:
    """Each time from the same beginning, so that no step is passed over."""
    there, before = tmp_path / "there", tmp_path / "before"
    there.mkdir()
    url = f"sqlite:///{there}/{DATABASE_NAME}"
    home = a_home(there, url)
    live = {asset: [home.live(asset), home.live_again(asset), home.live_again(asset)][-1] for asset in ASSETS}
    home.world.taint("b")
    home.failed("b")
    home.world.taint("b")
    live["b"] = home.live("b")
    home.world.store.close()
    shutil.copytree(there, before)

    def clean_up(home: Home) -> None:
        home.world.engine.new_id = new_id  # Another process has other ids.
        home.cleaner.carry_out(home.gc())
        home.cleaner.carry_out(home.cleaner.plan_clean())

    for step in range(1, MOST_STEPS):
        shutil.rmtree(there)
        shutil.copytree(before, there)
        home = Home(World(url=url), home.warehouse)
        was_killed = killed_at_step(step, partial(clean_up, home))
        if was_killed:
            home.assert_sound()
            clean_up(home)
        home.assert_sound()
        home.assert_nothing_is_half_gone()
        assert home.gc().is_empty
        assert home.cleaner.plan_clean().is_empty
        histories = {asset: home.world.queries.instances.history(asset) for asset in ASSETS}
        assert {
            asset: [instance.uuid for instance in of if instance.manifest_state != "removed"]
            for asset, of in histories.items()
        } == {asset: [uuid] for asset, uuid in live.items()}
        home.world.store.close()
        if not was_killed:
            break
    else:
        raise AssertionError(f"not done after {MOST_STEPS} steps")
    assert step > 20


# In any order


@settings(max_examples=25, deadline=None)
@given(
    deeds=st.lists(
        st.tuples(
            st.sampled_from(
                ["live", "fail", "taint", "revert", "gc", "gc tainted", "clean", "start", "lose", "die in gc"]
            ),
            st.sampled_from(ASSETS),
            st.integers(0, 30),
        ),
        max_size=14,
    )
)
def test_live_data_can_be_read_after_any_order_of_commands(
    tmp_path_factory: pytest.TempPathFactory, deeds: list[tuple[str, str, int]]
) -> None:
    home = a_home(tmp_path_factory.mktemp("any"))
    for deed, asset, number in deeds:
        _do(home, deed, asset, number)
        home.assert_sound()
    for asset in ASSETS:
        if home.world.state(asset) is InstanceState.BUILDING:
            home.world.fail(asset)
    home.world.clock.turn(3700)
    home.cleaner.carry_out(home.cleaner.plan_clean())
    home.cleaner.carry_out(home.gc())
    home.assert_sound()
    home.assert_nothing_is_half_gone()
    home.world.store.close()


def _do(home: Home, deed: str, asset: str, number: int) -> None:
    world = home.world
    state = world.state(asset)
    world.clock.turn(700)
    match deed:
        case "live" | "fail" | "start" | "lose":
            if state in (InstanceState.FAILED, InstanceState.LIVE):
                world.taint(asset)
            if deed == "live":
                home.live(asset)
            elif deed == "fail":
                home.failed(asset)
            elif deed == "start":
                home.store(asset, manifest=False)
            else:
                home.store(asset, manifest=number % 2 == 0)
                world.lose(asset)
        case "taint" if state in (InstanceState.LIVE, InstanceState.FAILED):
            world.taint(asset)
        case "revert" if state not in (None, InstanceState.BUILDING):
            there = [
                instance.uuid
                for instance in world.queries.instances.history(asset)
                if instance.live_at is not None and instance.manifest_state != "removed" and not instance.canonical
            ]
            if there:
                world.handle(c.RevertCanonical(ref=asset, uuid=there[number % len(there)]))
        case "gc":
            home.cleaner.carry_out(home.gc(keep=number % 3))
        case "gc tainted":
            home.cleaner.carry_out(home.gc(tainted=True))
        case "clean":
            home.cleaner.carry_out(home.cleaner.plan_clean())
        case "die in gc":
            # What it had recorded, without having touched a file.
            if going := home.gc().going:
                world.handle(c.RemoveManifests(uuids=tuple(instance.uuid for instance in going), reason="superseded"))


# In an object store


def test_a_bucket_that_does_not_answer_is_named_and_the_next_gc_finishes(s3: S3Server, bucket: str) -> None:
    home = Home(World([dataset(name) for name in ASSETS]), Warehouse(f"s3://{bucket}/warehouse"))
    first = home.live("a")
    home.live_again("a")
    plan = home.gc()
    s3.refusals += [(403, "AccessDenied", "DELETE")]

    done = home.cleaner.carry_out(plan)

    assert [what for what, _ in done.failed] == ["a"]
    assert [instance.uuid for instance in home.gc().unfinished] == [first]
    assert [instance.uuid for instance in home.cleaner.carry_out(home.gc()).finished] == [first]
    home.assert_sound()


# Attempts of a Spark elsewhere


def test_an_attempt_of_a_dead_launch_goes_with_its_leftovers(attempts: Attempts) -> None:
    """Its dead process is known on this machine, so the hour need not pass."""
    launch = attempts.world.buffer("days@1", "days@2")
    attempts.world.start_launch(launch, holder=dead_process())
    job_run = attempts.world.job_run("days@1")
    attempts.write(job_run, "days@1", "days@2")
    assert attempts.cleaner.plan_clean().leftovers == [], "it is not known to be dead"
    attempts.world.lose("days@1")

    (found,) = attempts.clean().leftovers

    assert (found.ref, found.files, found.bytes) == ("days@1", 3, 8)
    assert job_run in found.why
    assert attempts.files() == []


def test_files_that_a_writer_adds_late_are_removed_and_those_in_use_stay(attempts: Attempts) -> None:
    lost = attempts.write(attempts.world.job_run("days@1"), "days@1")
    attempts.world.lose("days@1")
    attempts.world.clock.turn(3700)
    (retried,) = attempts.live("days@1")
    attempts.clean()
    attempts.add(lost, "days@1", "part-7.parquet")
    attempts.world.clock.turn(3700)
    attempts.add(attempts.folder_of(retried), "days@1", "part-8.parquet")

    assert sorted(left.files for left in attempts.clean().leftovers) == [1, 1]

    assert attempts.files() == sorted(
        [*attempts.listed(retried), f"{os.path.basename(attempts.folder_of(retried))}/_SUCCESS"]
    )
    assert attempts.cleaner.plan_clean().is_empty


def test_gc_removes_the_files_of_a_superseded_instance_and_leaves_its_batch(attempts: Attempts) -> None:
    first, second = attempts.live("days@1", "days@2")
    attempts.world.taint("days@1")
    (third,) = attempts.live("days@1")

    done = attempts.cleaner.carry_out(attempts.cleaner.plan_gc(keep=0, older_than_seconds=0.0))

    assert [going.uuid for going in done.going] == [first.instance_uuid]
    data = [name for name in attempts.files() if name.endswith(".parquet")]
    assert data == attempts.listed(second, third)


def test_files_of_an_attempt_that_another_warehouse_lists_stay(attempts: Attempts, tmp_path: Path) -> None:
    (first,) = attempts.live("days@1")
    attempts.world.taint("days@1")
    attempts.live("days@1")
    (path,) = file_paths(attempts.warehouse, first)
    lister = Home(attempts.world, Warehouse(str(tmp_path / "elsewhere"))).arrived("days@2", path)

    plan = attempts.cleaner.plan_gc(keep=0, older_than_seconds=0.0)

    assert plan.going == []
    assert [kept.why for kept in plan.kept] == [f"instance {lister} of days@2 lists its files"]
