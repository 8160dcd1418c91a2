"""Fewer files with the same rows (rule 9.8)."""

import uuid

import pytest

from databuild_dagster.features.operations.spark import compacting
from databuild_dagster.features.operations.spark.compacting import (
    NotTheSame,
    compact_instance,
    contents_of,
    files_after,
)
from databuild_dagster.model.refs import derive_partition_uuid
from databuild_dagster.spark.frames import read_instances
from databuild_dagster.spark.staging import staging
from databuild_dagster.warehouse.manifest import read_manifest
from tests.spark.test_frames import EVERYTHING


@pytest.fixture
def compact(spark, warehouse):
    def compact(manifest, **more):
        job_run = str(uuid.uuid4())
        identity = derive_partition_uuid(job_run, manifest.ref)
        with staging(warehouse, job_run) as folder:
            return compact_instance(spark, warehouse, manifest, folder, uuid=identity, job_run=job_run, **more)

    return compact


def test_small_files_become_one_with_the_same_rows_and_columns(spark, warehouse, write, compact):
    """Rule 9.8: for all types"""
    frame = (
        spark.range(0, 20, 1, 10)
        .crossJoin(spark.sql(EVERYTHING))
        .selectExpr("*", "double('NaN') AS nan", "id AS `odd ``name`")
    )
    manifest = write(frame, inputs={"a": str(uuid.uuid4())})

    compacted = compact(manifest)

    assert (len(manifest.files), len(compacted.files)) == (10, 1)
    assert (compacted.rows, compacted.schema, compacted.inputs) == (manifest.rows, manifest.schema, manifest.inputs)
    assert manifest.instance_uuid in compacted.comment
    assert read_manifest(warehouse, "flights", compacted.instance_uuid) == compacted
    before, after = (read_instances(spark, warehouse, [item]) for item in (manifest, compacted))
    assert contents_of(before) == contents_of(after)
    assert sorted(map(str, before.collect())) == sorted(map(str, after.collect()))


def test_a_target_says_how_many_files_there_will_be(spark, write, compact):
    """Rule 9.8"""
    manifest = write(spark.range(0, 10_000, 1, 10).selectExpr("id", "uuid() AS text"))

    assert files_after(manifest, manifest.bytes // 4 + 1) == 4
    assert 1 < len(compact(manifest, target_bytes=manifest.bytes // 4 + 1).files) <= 4
    assert files_after(manifest, 1) == 10, "what is large enough stays as it is"
    assert files_after(manifest) == 1


def test_contents_are_the_same_in_any_order_and_differ_by_one_value(spark):
    """Rule 9.8"""
    rows = [(1, "a"), (2, "b"), (2, "b")]

    def contents(found):
        return contents_of(spark.createDataFrame(found, "id long, s string"))

    assert contents(rows) == contents(rows[::-1])
    assert contents(rows) != contents(rows[:2])
    assert contents(rows) != contents([(1, "a"), (2, "b"), (2, "c")])
    assert contents([]).rows == 0


def test_rows_that_are_not_the_same_are_not_published(spark, warehouse, write, compact, monkeypatch):
    """Rule 9.8: as if a writer had lost a row"""
    manifest = write(spark.range(0, 10, 1, 2).selectExpr("id"))
    before = warehouse.staging_dirs()
    real = compacting.stage_instance
    monkeypatch.setattr(compacting, "stage_instance", lambda frame, *args, **more: real(frame.limit(9), *args, **more))

    with pytest.raises(NotTheSame, match="9 rows.*instead of 10 rows"):
        compact(manifest)

    assert warehouse.staging_dirs() == before
