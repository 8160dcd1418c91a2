"""Instances in an earlier warehouse are read by a Spark elsewhere, or refused: never read as empty (decision 0039)."""

import uuid

import pandas as pd
import pytest

from databuild_dagster.data.read_plan import manifests_in
from databuild_dagster.model.refs import parse_ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.spark.errors import FilesOutOfReach
from databuild_dagster.spark.frames import read_instances
from databuild_dagster.spark.keyed import read_keyed
from databuild_dagster.spark.staging import publish, stage_instance
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse.layout import Warehouse
from tests.spark.sorted_rows import rows


def written(warehouse, *values):
    """An instance that this process wrote, as the log names it."""
    ref = parse_ref("flights@2013-01-01")
    staged = stage_instance(pd.DataFrame({"n": values}), warehouse.new_staging_dir("run"), ref=ref)
    manifest = publish(staged, warehouse, ref=ref, uuid=str(uuid.uuid4()), job_run=str(uuid.uuid4()), inputs={})
    path = warehouse.manifest_path("flights", manifest.instance_uuid)
    return Canonical(manifest.ref, uuid=manifest.instance_uuid, state=InstanceState.LIVE, manifest_uri=path)


@pytest.fixture
def warehouse(bucket):
    return Warehouse(f"s3://{bucket}/warehouse")


def test_an_instance_of_an_earlier_bucket_is_read_with_those_of_the_new_one(sail, s3, bucket, warehouse):
    earlier = Warehouse(f"s3://{s3.make_bucket(f'{bucket}-earlier')}/ware house")
    found = [written(earlier, 1, 2), written(warehouse, 3)]

    manifests = manifests_in(warehouse, "flights", found)

    assert rows(read_instances(sail, warehouse, manifests)) == [(1,), (2,), (3,)]
    keyed = {"a": manifests[:1], "b": manifests[1:]}
    assert rows(read_keyed(sail, warehouse, keyed, None)) == [(1, "a"), (2, "a"), (3, "b")]


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_disk_that_spark_does_not_see_is_refused_and_not_read_as_empty(sail, tmp_path, warehouse, is_alone):
    earlier = Warehouse(str(tmp_path / "warehouse"))
    place = earlier if is_alone else warehouse
    found = [written(earlier, 1, 2), *([] if is_alone else [written(warehouse, 3)])]
    manifests = manifests_in(place, "flights", found)

    with pytest.raises(FilesOutOfReach, match="cannot be read by the Spark of sc://.*finds 0 of the 2 rows"):
        print(rows(read_instances(sail, place, manifests)))
