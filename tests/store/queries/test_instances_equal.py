"""What was built from rows that a later build has again: cut off from that build (rule 4.8)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from databuild_dagster.model import commands as c
from databuild_dagster.model.records import Time
from databuild_dagster.model.refs import Ref
from databuild_dagster.store.queries.instances import EqualInput
from tests.support.world import COMPLETE, World

EQUAL = replace(COMPLETE, content_hash="x:1")


@pytest.fixture
def read(world: World) -> str:
    """The instance of `a` from which `b` and `c` were built."""
    uuid = world.succeed("a", manifest=EQUAL)
    world.succeed("b", inputs=["a"])
    world.succeed("c", inputs=["a"])
    return uuid


def cut_off(world: World) -> tuple[list[EqualInput], int]:
    return world.queries.instances.equal_inputs([world.uuid("b")]), world.queries.instances.n_cut_off([Ref("a")])


def replaced(world: World, *, erased: bool) -> None:
    """The files of `a` by others; a compaction keeps the hash."""
    manifest, new_id = replace(COMPLETE if erased else EQUAL, uri="elsewhere"), world.ids()
    uuid = world.uuid("a")
    world.handle(c.ReplaceFiles(ref=Ref("a"), uuid=uuid, job_run_id=new_id, manifest=manifest, erased=erased))


def test_a_build_with_equal_rows_cuts_off_what_was_built_from_them(world: World, read: str) -> None:
    before = cut_off(world)
    world.taint("a")
    while_tainted = cut_off(world)
    world.clock.turn(10)
    now = world.succeed("a", manifest=EQUAL)
    world.taint("c")

    assert (before, while_tainted) == (([], 0), ([], 0))
    assert cut_off(world) == ([EqualInput(world.uuid("b"), Ref("a"), read, now, Time(world.clock.now))], 1)

    world.taint("a")
    world.succeed("a", manifest=replace(COMPLETE, content_hash="x:2"))

    assert cut_off(world) == ([], 0), "other rows"


@pytest.mark.parametrize("erased", [False, True], ids=["compacted", "erased"])
def test_other_files_cut_off_nothing(world: World, read: str, erased: bool) -> None:
    replaced(world, erased=erased)

    assert cut_off(world) == ([], 0)


@pytest.mark.parametrize("erased", [False, True], ids=["compacted", "erased"])
def test_what_is_cut_off_stays_so_after_a_compaction_alone(world: World, read: str, erased: bool) -> None:
    world.taint("a")
    world.succeed("a", manifest=EQUAL)
    built_at = Time(world.clock.now)
    world.clock.turn(10)
    for _ in range(2):
        replaced(world, erased=erased)

    kept = ([EqualInput(world.uuid("b"), Ref("a"), read, world.uuid("a"), built_at)], 2)

    assert cut_off(world) == (([], 0) if erased else kept)


def test_rows_that_an_erasure_has_left_are_not_those_of_the_first(world: World, read: str) -> None:
    world.taint("a")
    whole = world.succeed("a", manifest=EQUAL)
    replaced(world, erased=True)
    left = world.uuid("a")

    by_root = world.queries.instances.first_with_rows([whole, left])

    assert by_root == {whole: read, left: read}
    assert world.queries.instances.first_with_rows([whole, left], with_erased=False) == {whole: read}
