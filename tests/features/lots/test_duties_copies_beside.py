"""A build's thread writes the copies of lots while launches run (rule 10.2)."""

import dagster as dg

from databuild_dagster import databuild_boundary
from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.data.ownership import Ownership
from databuild_dagster.features.lots.copies.lot_copies import keep_copies, refresh_copies
from databuild_dagster.features.lots.duties import CopiesBeside
from databuild_dagster.model import commands as c
from databuild_dagster.model.events import Arrival, ManifestFact
from databuild_dagster.model.refs import derive_partition_uuid
from databuild_dagster.warehouse.manifest import write_manifest
from tests.features.lots.deployed_world import DeployedWorld
from tests.support.catalog import HERE
from tests.support.object_store import S3Server
from tests.support.written import manifest_of

MAX_SECONDS = 60.0
DAYS = 31
daily = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")


class Lots(DeployedWorld):
    """The days of a month in a bucket, whose copies a thread writes."""

    def __init__(self, instance: dg.DagsterInstance, root: str) -> None:
        super().__init__(instance, root)
        self.deployment = Deployment(location=HERE, warehouse=root)
        self.deploy(databuild_boundary("days", partitions_def=daily))
        Ownership(self.engine.store).claim(self.warehouse)
        registered = list(self.queries.datasets.all(HERE).values())
        self.beside = CopiesBeside(instance, self.deployment, registered)

    def arrive_all(self) -> None:
        arrivals = []
        for day in daily.get_partition_keys():
            job_run, ref = self.engine.new_id(), f"days@{day}"
            uuid = derive_partition_uuid(job_run, ref)
            manifest = manifest_of(dataset="days", ref=ref, instance_uuid=uuid, job_run=job_run, files=())
            uri = write_manifest(self.warehouse, manifest)
            fact = ManifestFact(state=manifest.state.value, uri=uri, files=0, rows=0, bytes=0)
            arrivals.append(Arrival(job_run_id=job_run, ref=ref, origin=f"file:///{day}", manifest=fact))
        self.handle(c.ArriveLots(arrivals=tuple(arrivals)))


def test_the_thread_writes_what_the_log_has_at_the_end(instance: dg.DagsterInstance, s3: S3Server, bucket: str) -> None:
    lots = Lots(instance, f"s3://{bucket}/warehouse")
    lots.arrive_all()

    lots.beside.follow()
    lots.beside.finish(MAX_SECONDS)

    copies = [key for key in s3.keys(bucket) if "/datasets/name=days/" in key]
    assert len(copies) == DAYS
    assert keep_copies(instance, lots.deployment) is True, "nothing is left for the next tick"


def test_neighbors_are_listed_together_and_a_right_copy_is_not_read(
    instance: dg.DagsterInstance, s3: S3Server, bucket: str
) -> None:
    lots = Lots(instance, f"s3://{bucket}/warehouse")
    lots.arrive_all()
    keep_copies(instance, lots.deployment)
    s3.requests.clear()

    refresh_copies(instance, [f"days@{day}" for day in daily.get_partition_keys()])

    assert [path for _, path in s3.requests if path.endswith("manifest.json")] == []
    assert len(s3.requests) < DAYS / 4
