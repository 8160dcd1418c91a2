"""Two instances of a ref differ in what their records say, and in nothing else (rules 15, 4.6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from databuild_dagster.features.compare import differences
from databuild_dagster.features.compare.differences import (
    NeverBuilt,
    NothingToCompare,
    diff_of,
    instances_to_compare,
)
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import CodeSpec
from databuild_dagster.model.events import MadeWith
from tests.features.compare.launches import launch
from tests.support.catalog import dataset
from tests.support.published import DELTA, PublishedWorld
from tests.support.walk import Walk
from tests.support.world import COMPLETE, World

NAMES = "abcde"


@pytest.fixture
def world() -> Iterator[World]:
    world = World([dataset(name) for name in NAMES])
    yield world
    world.close()


@pytest.fixture
def sales(tmp_path: Path) -> Iterator[PublishedWorld]:
    """A store with real files."""
    world = PublishedWorld(tmp_path / "home", DELTA)
    yield world
    world.close()


def rebuild(world: World, ref: str, *inputs: str) -> str:
    world.taint(ref)
    return world.succeed(ref, inputs=inputs)


def test_inputs_are_added_removed_and_changed(world: World) -> None:
    world.live("a", "b", "c", "d")
    first = world.succeed("e", inputs=["a", "b", "c"])
    old_b = world.uuid("b")
    new_b = rebuild(world, "b")
    second = rebuild(world, "e", "b", "c", "d")

    found = diff_of(world.queries, first, second).inputs

    assert [(change.ref, change.change) for change in found.changes] == [
        ("a", "removed"),
        ("b", "changed"),
        ("d", "added"),
    ]
    assert (found.changes[1].a, found.changes[1].b) == (old_b, new_b)
    assert (found.added, found.removed, found.changed, found.same) == (1, 1, 1, 1)


def test_the_differences_of_inputs_are_those_of_the_lists(world: World) -> None:
    """Of all pairs of instances after commands in any order."""
    world.live(*NAMES)
    Walk(world, 3).take(250)
    instances = [instance for name in NAMES for instance in world.queries.instances.history(name)]
    refs = {instance.uuid: instance.ref for instance in instances}

    n_changes = 0
    for first in instances:
        for second in instances:
            before, after = ({refs[uuid]: uuid for uuid in one.inputs} for one in (first, second))
            found = diff_of(world.queries, first.uuid, second.uuid).inputs
            expected = {
                ref: (before.get(ref), after.get(ref))
                for ref in before.keys() | after.keys()
                if before.get(ref) != after.get(ref)
            }
            assert {change.ref: (change.a, change.b) for change in found.changes} == expected
            assert found.same == len(before.items() & after.items())
            assert found.added + found.removed + found.changed == len(expected)
            n_changes += len(expected)

    assert n_changes > 0


def test_more_differing_inputs_than_are_named_are_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "MAX_INPUTS", 1)
    world.live("a", "b")
    first = world.succeed("e")

    found = diff_of(world.queries, first, rebuild(world, "e", "a", "b")).inputs

    assert ([change.ref for change in found.changes], found.added) == (["a"], 2)


def test_an_input_whose_files_were_replaced_has_the_same_rows(world: World) -> None:
    world.live("a")
    first = world.succeed("e", inputs=["a"])
    world.handle(c.ReplaceFiles(ref="a", uuid=world.uuid("a"), job_run_id=world.ids(), manifest=COMPLETE))
    second = rebuild(world, "e", "a")

    (change,) = diff_of(world.queries, first, second).inputs.changes

    assert (change.change, change.same_rows) == ("changed", True)


def test_code_config_tags_and_versions_differ_by_name(world: World) -> None:
    config = {"ops": {"a": {"config": {"rate": 1, "days": [1, 2]}}}}
    changed = {"ops": {"a": {"config": {"rate": 2, "days": [1, 2], "new": {}}}}}
    launch(world, "a", MadeWith("code-1", config, {"spark": "x"}, {"pandas": "2", "dagster": "1"}))
    first = world.succeed("a")
    world.taint("a")
    launch(world, "a", MadeWith("code-2", changed, {}, {"pandas": "3", "dagster": "1"}))
    second = world.succeed("a")

    found = diff_of(world.queries, first, second).settings

    assert [(change.kind, change.name, change.a, change.b) for change in found] == [
        ("code", "digest", "code-1", "code-2"),
        ("config", "ops.a.config.new", None, {}),
        ("config", "ops.a.config.rate", 1, 2),
        ("tag", "spark", "x", None),
        ("version", "pandas", "2", "3"),
    ]


def test_rows_and_columns_differ_by_the_manifests(sales: PublishedWorld) -> None:
    before = pa.table({"n": pa.array([1, 2], pa.int32()), "gone": ["x", "y"], "kept": [1.5, 2.5]})
    after = pa.table({"new": [True], "n": pa.array([1], pa.int64()), "kept": [1.5]})
    first = sales.build("2024-01-01", before)
    sales.taint("sales@2024-01-01", reason="a bug")
    second = sales.build("2024-01-01", after, after)

    found = diff_of(sales.queries, first, second)

    assert [(column.name, column.change, column.a, column.b) for column in found.columns] == [
        ("new", "added", None, "boolean"),
        ("n", "changed", "integer", "long"),
        ("gone", "removed", "string", None),
    ]
    assert (found.a.rows, found.b.rows, found.a.n_files, found.b.n_files) == (2, 2, 1, 2)
    assert [taint.reason for taint in found.a.taints] == ["a bug"]
    assert (found.a.note, found.b.note) == (None, None)


def test_the_instance_before_is_the_last_one_that_was_live(world: World) -> None:
    world.live("a")
    first = world.uuid("a")
    world.taint("a")
    world.fail("a")
    world.taint("a")
    world.live("a")
    second = world.uuid("a")

    assert instances_to_compare(world.queries, "a", None, None) == (first, second)


def test_a_ref_with_one_instance_has_nothing_to_compare(world: World) -> None:
    world.live("a")

    with pytest.raises(NothingToCompare, match="a has no instance before"):
        instances_to_compare(world.queries, "a", None, None)
    with pytest.raises(NeverBuilt, match="b is missing"):
        instances_to_compare(world.queries, "b", None, None)


def test_code_differs_by_function_and_file(world: World) -> None:
    """Rule 4.7: the registrations of the two digests have the functions."""
    for digest, clean in (("tree-1:1", "x"), ("tree-1:2", "y")):
        code = CodeSpec(digest, (), (("a in shop.py", "s"), ("clean in shop.py", clean)))
        spec = msgspec.structs.replace(world.queries.datasets.known("a"), code=code)
        world.handle(c.RegisterDatasets(location=spec.location, datasets=(spec,)))
    built = []
    for digest, unknown in (("tree-1:1", ()), ("tree-1:2", ()), ("unknown", ("open reads a file in a in shop.py",))):
        launch(world, "a", MadeWith(digest, {}, {}, {}, unknown))
        built.append(world.succeed("a"))
        world.taint("a")

    known, unknown_code = (diff_of(world.queries, built[0], later).settings for later in built[1:])

    assert [(change.name, change.a, change.b) for change in known] == [
        ("clean in shop.py", "x", "y"),
        ("digest", "tree-1:1", "tree-1:2"),
    ]
    assert [(change.name, change.b) for change in unknown_code] == [
        ("digest", "unknown"),
        ("unknown", "open reads a file in a in shop.py"),
    ]
