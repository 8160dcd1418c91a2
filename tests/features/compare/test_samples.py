"""Rows are shown of what readers see, where the author allows it, and by no path (rules 15, 5.7)."""

from __future__ import annotations

import datetime
import decimal
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from databuild_dagster.calls.cells import MAX_CELL, cell_text
from databuild_dagster.features.compare.samples import (
    NoRowsHere,
    RowsUnreadable,
    SampleColumn,
    SampleNotAllowed,
    sample_of,
)
from databuild_dagster.model import commands as c
from tests.support.catalog import HERE
from tests.support.published import DELTA, PublishedWorld

DAY = "sales@2024-01-01"


def allow(world: PublishedWorld, sample: bool | msgspec.UnsetType) -> None:
    specs = tuple(msgspec.structs.replace(spec, sample=sample) for spec in world.specs)
    world.handle(c.RegisterDatasets(location=HERE, datasets=specs))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PublishedWorld]:
    world = PublishedWorld(tmp_path / "home", DELTA)
    allow(world, True)
    yield world
    world.close()


def test_the_first_rows_of_the_canonical_instance_are_shown(world: PublishedWorld) -> None:
    rows = pa.table({"n": list(range(50)), "name": [f"name {n}" for n in range(50)]})
    uuid = world.build("2024-01-01", pa.table({"n": pa.array([], pa.int64()), "name": pa.array([], pa.string())}), rows)

    found = sample_of(world.queries, DAY)

    assert (found.uuid, found.n_rows, found.n_files, found.file) == (uuid, 50, 2, "part-1.parquet")
    assert found.columns == [SampleColumn("n", "long"), SampleColumn("name", "string")]
    assert found.rows == [[str(n), f"name {n}"] for n in range(20)]


@pytest.mark.parametrize("sample", [msgspec.UNSET, False])
def test_no_row_is_shown_where_the_author_has_not_allowed_it(
    world: PublishedWorld, sample: bool | msgspec.UnsetType
) -> None:
    world.build("2024-01-01", {"n": [1]})
    sample_of(world.queries, DAY)

    allow(world, sample)

    with pytest.raises(
        SampleNotAllowed, match="The pages show no rows of sales, because its author has not allowed it"
    ):
        sample_of(world.queries, DAY)


def test_tainted_rows_are_shown_with_their_state(world: PublishedWorld) -> None:
    world.build("2024-01-01", {"n": [1]})
    world.taint(DAY)

    assert (sample_of(world.queries, DAY).state, sample_of(world.queries, DAY).rows) == ("Tainted", [["1"]])


def test_an_empty_instance_has_columns_and_no_rows(world: PublishedWorld) -> None:
    world.build("2024-01-01")

    assert (sample_of(world.queries, DAY).rows, sample_of(world.queries, DAY).file) == ([], None)


def test_what_has_no_data_is_refused_with_its_state(world: PublishedWorld) -> None:
    with pytest.raises(NoRowsHere, match="nothing has built it"):
        sample_of(world.queries, DAY)
    world.start(DAY)
    with pytest.raises(NoRowsHere, match="it is building, and has no data"):
        sample_of(world.queries, DAY)


def test_a_lost_file_is_an_error_without_its_path(world: PublishedWorld) -> None:
    world.build("2024-01-01", {"n": [1]})
    (file,) = world.warehouse.storage.find(f"{world.warehouse.root}/sales/data/*/*.parquet")
    os.unlink(file[0])

    with pytest.raises(RowsUnreadable) as raised:
        sample_of(world.queries, DAY)

    assert str(world.home) not in str(raised.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("plain", "plain"),
        (True, "true"),
        (2.5, "2.5"),
        (float("nan"), "null"),
        (decimal.Decimal("1.20"), "1.20"),
        (datetime.date(2024, 1, 2), "2024-01-02"),
        (b"\x00\xff", "0x00ff"),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        ("x" * 500, "x" * MAX_CELL + "…"),
    ],
)
def test_a_cell_is_one_short_text(value: object, text: str | None) -> None:
    assert cell_text(value) == text
