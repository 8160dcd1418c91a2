"""A tick leaves a table as it is while requests build again all that a snapshot would take out (rule 10.10)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from databuild_dagster.engine.follower import ProcessCursors
from databuild_dagster.features.tables.awaited import MAX_SECONDS
from databuild_dagster.features.tables.live_files import Touches
from databuild_dagster.features.tables.publisher import Published, follow
from databuild_dagster.model import commands as c
from databuild_dagster.model.decide.delegations import BY_DAGSTER_RUN, BY_REQUEST
from databuild_dagster.model.events import Erasure
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.rows import VERIFIES
from tests.support.published import DAYS, ICEBERG, PublishedWorld
from tests.support.table_readers import keeps_rows, newest_snapshot, snapshots

FIRST, SECOND, THIRD, _ = DAYS


class KeepingWorld(PublishedWorld):
    """An asset whose builds compare their rows, and the looks of ticks at its table."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, ICEBERG)
        self.specs = (msgspec.structs.replace(self.spec, same_data=True),)
        self.cursors = ProcessCursors(self.engine)

    def look(self, **options: bool) -> Published | None:
        touches = Touches(self.queries)
        return follow(
            self.engine, self.spec, self.warehouse.root, self.cursors, head=self.seq, touches=touches, **options
        )

    def request(self, *days: str) -> None:
        """Ask for builds of live partitions, which begin at once."""
        refs = tuple(map(self.ref, days))
        self.handle(c.CreateWants(wants=(refs,), rebuild=True))
        self.start(*refs)

    def finish(self, day: str, number: int = 1) -> None:
        self.build(day, {"x": [number]}, content_hash=f"arrow-1:{number}")

    @property
    def n_files(self) -> int:
        return len(self.table().files())


@pytest.fixture
def world(tmp_path: Path) -> KeepingWorld:
    """Two partitions are in the table."""
    world = KeepingWorld(tmp_path)
    world.finish(FIRST)
    world.finish(SECOND)
    world.look()
    return world


def test_equal_rows_of_a_request_are_one_snapshot_without_a_change_of_rows(world: KeepingWorld) -> None:
    world.request(FIRST, SECOND)
    waited = [world.look()]
    world.finish(FIRST)
    waited.append(world.look())
    world.finish(SECOND)

    world.look()

    assert waited == [None, None]
    assert [keeps_rows(world, snapshot) for snapshot in snapshots(world)] == [False, True]
    assert world.n_files == 2


def test_other_rows_of_a_request_replace_the_earlier_rows(world: KeepingWorld) -> None:
    world.request(FIRST, SECOND)
    world.look()
    world.finish(FIRST, 2)

    world.look()

    assert not keeps_rows(world, newest_snapshot(world))
    assert world.n_files == 1, "those of the second are being built"


def test_a_request_that_fails_takes_its_rows_out(world: KeepingWorld) -> None:
    world.request(FIRST)
    world.fail(world.ref(FIRST))

    world.look()

    assert world.n_files == 1


def test_a_request_is_awaited_for_a_bounded_time(world: KeepingWorld) -> None:
    world.request(FIRST)
    world.clock.turn(MAX_SECONDS)
    assert world.look() is None
    world.clock.turn(1.0)

    world.look()

    assert world.n_files == 1


def test_rows_that_a_person_called_wrong_leave_at_once_also_during_a_request(world: KeepingWorld) -> None:
    seen = world.canonical(world.ref(FIRST)).uuid
    world.request(FIRST, SECOND)
    assert world.look() is None
    world.handle(c.TaintPartitions(uuids=(seen,), reason="the till was broken"))

    world.look()

    assert world.n_files == 0


@pytest.mark.parametrize("reason", [f"{BY_DAGSTER_RUN} 0f3a", f"{VERIFIES}0f3a"])
def test_builds_of_dagster_and_second_builds_are_awaited_too(world: KeepingWorld, reason: str) -> None:
    seen = world.canonical(world.ref(FIRST)).uuid
    world.handle(c.TaintPartitions(uuids=(seen,), reason=reason))

    assert world.look() is None

    world.start(world.ref(FIRST))
    world.finish(FIRST)
    world.look()
    assert keeps_rows(world, newest_snapshot(world))


def test_a_request_whose_build_is_tried_again_is_awaited(world: KeepingWorld) -> None:
    world.request(FIRST)

    world.fail(world.ref(FIRST), kind="transient")

    assert world.look() is None


@pytest.mark.parametrize(
    "taint",
    [
        c.TaintPartitions(refs=(Ref(f"sales@{FIRST}"),), reason=f"{BY_REQUEST} by Bob; the till was broken"),
        c.TaintPartitions(refs=(Ref(f"sales@{FIRST}"),), reason="the till was broken", downstream=True),
    ],
    ids=["its reason begins as that of a request", "with what was made of it"],
)
def test_a_taint_of_a_person_is_no_request(world: KeepingWorld, taint: c.TaintPartitions) -> None:
    world.handle(taint)

    world.look()

    assert world.n_files == 1


def test_erased_rows_leave_at_once_also_during_a_request(world: KeepingWorld) -> None:
    seen = world.canonical(world.ref(FIRST)).uuid
    world.request(FIRST, SECOND)
    world.handle(
        c.RemoveManifests(uuids=(seen,), reason="erased", erasure=Erasure(where_sha256="0f3a", reason="a request"))
    )

    world.look()

    assert world.n_files == 0


def test_rows_that_a_person_called_wrong_await_no_request_of_others(world: KeepingWorld) -> None:
    world.request(FIRST)
    world.taint(world.ref(SECOND))

    world.look()

    assert world.n_files == 0


def test_new_rows_of_another_partition_wait_for_no_request(world: KeepingWorld) -> None:
    world.request(FIRST)
    world.finish(THIRD, 3)

    world.look()

    assert world.n_files == 2


def test_the_last_look_of_a_process_waits_for_no_request(world: KeepingWorld) -> None:
    world.request(FIRST)

    world.look(is_last=True)

    assert world.n_files == 1


def test_builds_that_compare_no_rows_are_not_awaited(world: KeepingWorld) -> None:
    world.specs = (msgspec.structs.replace(world.spec, same_data=msgspec.UNSET),)
    world.request(FIRST)

    world.look()

    assert world.n_files == 1
