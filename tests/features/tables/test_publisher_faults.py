"""A publisher that fails at any call of catalog or storage repeats nothing and leaves out nothing (rule 10.10)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from databuild_dagster.model.datasets import TableSpec
from tests.features.tables.catalogs import configure, in_python
from tests.support.faulty_disk import failing_call
from tests.support.published import DAYS, DELTA, ICEBERG, PublishedWorld
from tests.support.table_readers import keeps_rows, newest_snapshot, rows_as_of, rows_by_reader, snapshots

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
    rows = {"x": [1]}
    for day in DAYS[:2]:
        world.build(day, rows, content_hash="arrow-1:1")
    failed = set[str]()
    for number in range(1, MOST_CALLS):
        # Of two instances one has other rows, and after them two have equal rows.
        world.taint(world.ref(DAYS[0]))
        world.build(DAYS[0], rows, content_hash="arrow-1:1")
        world.taint(world.ref(DAYS[1]))
        world.build(DAYS[1], {"x": [number // 2]}, content_hash=f"arrow-1:{number // 2}")

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
    before = None
    n_equal = 0
    for snapshot, seq in sorted(snapshots(world).items(), key=lambda found: found[1]):
        now = rows_as_of(world, seq)
        for reader, found in rows_by_reader(world, snapshot).items():
            assert found == now, reader
        assert keeps_rows(world, snapshot) is (now == before)
        n_equal += now == before
        before = now
    assert n_equal > 1
    world.close()
