"""A publisher that fails at any call of catalog or storage repeats nothing and leaves out nothing (rule 10.10)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from databuild_dagster.model.datasets import TableSpec
from tests.features.tables.catalogs import configure, in_python
from tests.support.faulty_disk import failing_call
from tests.support.published import DAYS, DELTA, ICEBERG, PublishedWorld
from tests.support.table_readers import newest_snapshot, rows_as_of, rows_by_reader, snapshots

#: More calls than a publication makes.
MOST_CALLS = 400


@pytest.mark.parametrize(
    "table", [msgspec.structs.replace(ICEBERG, catalog="databuild"), DELTA], ids=["iceberg", "delta"]
)
def test_a_publisher_that_fails_at_any_call_is_followed_by_a_right_one(
    table: TableSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, "databuild", **in_python(tmp_path / "home"))
    world = PublishedWorld(tmp_path / "home", table)
    root = world.warehouse.root
    world.build(DAYS[0], {"x": [0]})
    failed = set[str]()
    for number in range(1, MOST_CALLS):
        world.taint(world.ref(DAYS[0]))
        world.build(DAYS[0], {"x": [number]})

        with failing_call(root, number) as fault:
            try:
                world.publish()
            except Exception as error:
                assert fault.failed is not None, error
        if fault.failed is None:
            break
        failed.add(fault.failed.replace(root, "").split(" of ")[0])
        published = world.publish()

        found = snapshots(world)
        assert sorted(found.values()) == sorted(set(found.values()))
        newest = newest_snapshot(world)
        assert found[newest] <= published.seq
        assert set(map(tuple, rows_by_reader(world, newest).values())) == {tuple(rows_as_of(world, world.seq))}

    assert fault.failed is None, "each call has failed once"
    assert {"open"} <= failed
    for snapshot, seq in snapshots(world).items():
        for reader, rows in rows_by_reader(world, snapshot).items():
            assert rows == rows_as_of(world, seq), reader
    world.close()
