"""The log of a Delta table has checkpoints, and a damaged version is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from databuild_dagster.features.tables.delta import DeltaLog
from databuild_dagster.features.tables.errors import TableDamaged
from databuild_dagster.features.tables.opening import place_of
from tests.support.published import DAYS, PublishedWorld
from tests.support.table_readers import rows_as_of, rows_by_reader


def test_a_table_with_checkpoints_reads_as_one_without(delta: PublishedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("databuild_dagster.features.tables.delta.CHECKPOINT_EVERY", 2)
    for number in range(5):
        delta.build(DAYS[0], {"x": [number]})
        delta.publish()
        delta.taint(delta.ref(DAYS[0]))
    delta.build(DAYS[0], {"x": [9]})

    delta.publish()

    folder = Path(delta.warehouse.dataset_dir("sales"), "_delta_log")
    assert [path.name for path in sorted(folder.glob("*.checkpoint.parquet"))] == [
        f"{version:020}.checkpoint.parquet" for version in (1, 3, 5)
    ]
    for reader, rows in rows_by_reader(delta, 5).items():
        assert rows == rows_as_of(delta, delta.seq), reader


def test_a_version_that_is_no_json_is_one_sentence(delta: PublishedWorld) -> None:
    delta.build(DAYS[0], {"x": [1]})
    delta.publish()
    place = place_of(delta.spec, delta.warehouse.root)
    Path(place.root, "_delta_log", f"{0:020}.json").write_text("{")

    with pytest.raises(TableDamaged, match="version 0 of its log is no JSON"):
        DeltaLog(place).actions(0)


def test_a_version_without_a_time_hides_no_earlier_version_from_gc(delta: PublishedWorld) -> None:
    delta.build(DAYS[0], {"x": [1]})
    delta.publish()
    first = set(delta.table().files())
    delta.taint(delta.ref(DAYS[0]))
    delta.publish()
    log = DeltaLog(place_of(delta.spec, delta.warehouse.root))

    log.commit(2, [{"txn": {"appId": "another", "version": 1}}])

    assert delta.table().kept(since=1.0) == first
