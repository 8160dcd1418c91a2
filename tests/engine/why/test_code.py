"""What changed in the code of an asset since its live partitions were built (rule 4.7)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from databuild_dagster.engine.why.code import OtherCode, other_code, registered_codes
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import CodeSpec, DatasetSpec
from databuild_dagster.model.events import MadeWith, OutputFact, RunSuccess
from tests.support.catalog import HERE, dataset
from tests.support.world import COMPLETE, World

BEFORE = CodeSpec("tree-1:1", (), (("sales in shop.py", "a"), ("clean in shop.py", "b"), ("OLD in shop.py", "c")))
NOW = CodeSpec("tree-1:2", (), (("sales in shop.py", "a"), ("clean in shop.py", "x"), ("NEW in shop.py", "y")))


def with_code(code: CodeSpec, code_version: str | None = None) -> DatasetSpec:
    return replace(dataset("sales", code_version=code_version), code=code)


@pytest.fixture
def world() -> World:
    """A live partition of the code `BEFORE`."""
    world = World([with_code(BEFORE)])
    launch = c.StartLaunch(
        launch_id=world.buffer("sales"), dagster_run_id="run", holder="h", made_with=MadeWith(code=BEFORE.digest)
    )
    world.handle(launch)
    output = OutputFact(ref="sales", manifest=COMPLETE)
    world.handle(c.SucceedJobRuns(runs=(RunSuccess(world.canonical("sales").job_run or "", (output,)),)))
    return world


def found(world: World, spec: DatasetSpec) -> list[OtherCode]:
    world.handle(c.RegisterDatasets(location=HERE, datasets=(spec,)))
    return other_code(world.queries, [spec], {"sales": [world.canonical("sales")]})


def test_the_same_code_is_not_mentioned(world: World) -> None:
    assert found(world, with_code(BEFORE)) == []


def test_changed_functions_are_named_with_their_files(world: World) -> None:
    (other,) = found(world, with_code(NOW))

    assert other.changes == ["clean in shop.py changed", "NEW in shop.py is new", "OLD in shop.py is no longer used"]
    assert other.words == (
        "sales: other code built 1 live partition: clean in shop.py changed, NEW in shop.py is new, OLD in shop.py is no longer used; "
        "`databuild build --fresh sales` builds again."
    )


def test_unknown_code_says_why_and_what_to_do(world: World) -> None:
    (other,) = found(world, with_code(CodeSpec(unknown=("open reads a file in sales in shop.py",))))

    assert other.words == (
        "sales: other code may have built 1 live partition; `databuild build --fresh sales` builds again; "
        "its code is unknown, because "
        "open reads a file in sales in shop.py; a code_version names it."
    )


def test_a_code_version_decides_alone(world: World) -> None:
    (other,) = found(world, with_code(CodeSpec(unknown=("open reads a file",)), "1"))

    assert (other.partitions, other.changes, other.unknown) == (1, [], [])


def test_each_code_of_a_dataset_is_found_by_its_digest(world: World) -> None:
    found(world, with_code(NOW))

    assert registered_codes(world.queries, ["sales"]) == {("sales", "tree-1:1"): BEFORE, ("sales", "tree-1:2"): NOW}
