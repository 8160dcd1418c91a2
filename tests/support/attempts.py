"""Attempts as a Spark elsewhere leaves them, with manifests that list their files: on a disk, without Spark."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from databuild_dagster.data.lost_run_output import WarehouseRemains
from databuild_dagster.model.events import ManifestFact
from databuild_dagster.model.refs import asset_of, derive_partition_uuid, partition_key_of
from databuild_dagster.warehouse.layout import MANIFEST_NAME, Warehouse, attempt_of
from databuild_dagster.warehouse.manifest import (
    FileEntry,
    Manifest,
    ManifestState,
    TableSchema,
    file_paths,
    write_manifest,
)

from .catalog import dataset
from .world import World

if TYPE_CHECKING:
    from databuild_dagster.features.clean.cleaning import Cleaner, CleaningResult

DAYS = ("1", "2", "3")


@dataclass
class Attempts:
    """A store and a warehouse whose dataset `days` a Spark elsewhere writes."""

    world: World
    warehouse: Warehouse

    def write(self, job_run: str, *refs: str, name: str = "part-0.parquet") -> str:
        """The folder of one call's attempt, with a file for each ref and the mark of a finished write."""
        folder = self.warehouse.new_attempt_dir("days", f"{job_run}-0a1b2c3d")
        for ref in refs:
            self.add(folder, ref, name)
        self.warehouse.storage.create_only(f"{folder}/_SUCCESS", b"")
        return folder

    def add(self, folder: str, ref: str, name: str) -> None:
        """One more file of the attempt, as a late task writes it."""
        self.warehouse.storage.create_only(f"{folder}/{self._within(ref)}/{name}", b"rows")

    def _within(self, ref: str) -> str:
        return f"partition_key={partition_key_of(ref)}"

    def manifest(self, ref: str, folder: str, job_run: str, state: ManifestState) -> Manifest:
        return Manifest(
            dataset=asset_of(ref),
            ref=ref,
            instance_uuid=derive_partition_uuid(job_run, ref),
            job_run=job_run,
            attempt=1,
            state=state,
            files=(FileEntry(f"../{os.path.basename(folder)}/{self._within(ref)}/part-0.parquet", 4, 1, "etag:0"),),
            created_at=datetime.now(UTC),
            schema=TableSchema(()),
        )

    def publish(self, ref: str, folder: str, state: ManifestState = ManifestState.COMPLETE) -> Manifest:
        """Write the manifest of the job run that builds a ref, before its event."""
        manifest = self.manifest(ref, folder, self.world.job_run(ref), state)
        write_manifest(self.warehouse, manifest)
        return manifest

    def succeed(self, manifest: Manifest) -> None:
        uri = self.warehouse.manifest_path(manifest.dataset, manifest.instance_uuid)
        self.world.succeed(manifest.ref, manifest=ManifestFact(manifest.state.value, uri, files=1, rows=1, bytes=4))

    def live(self, *refs: str) -> list[Manifest]:
        """Build refs by one call; the manifests."""
        self.world.start(*refs)
        folder = self.write(self.world.job_run(refs[0]), *refs)
        manifests = [self.publish(ref, folder) for ref in refs]
        for manifest in manifests:
            self.succeed(manifest)
        return manifests

    def folder_of(self, manifest: Manifest) -> str:
        """The folder of the attempt whose files a manifest lists."""
        return attempt_of(file_paths(self.warehouse, manifest)[0])

    @property
    def cleaner(self) -> Cleaner:
        from databuild_dagster.features.clean.cleaning import Cleaner

        return Cleaner(self.world.engine, self.warehouse.root)

    @property
    def remains(self) -> WarehouseRemains:
        return WarehouseRemains(self.world.engine, self.warehouse.root)

    def clean(self) -> CleaningResult:
        """`databuild gc --leftovers --yes`."""
        return self.cleaner.carry_out(self.cleaner.plan_clean())

    def files(self) -> list[str]:
        """Every data file and mark, below the folder of the dataset's data."""
        data = f"{self.warehouse.dataset_dir('days')}/data/"
        listed = self.warehouse.all_files(data.rstrip("/"))
        return sorted(file.path.removeprefix(data) for file in listed if not file.path.endswith(MANIFEST_NAME))

    def listed(self, *manifests: Manifest) -> list[str]:
        """The same names, of the files that these manifests list."""
        return sorted(file.uri.removeprefix("../") for manifest in manifests for file in manifest.files)


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    return Attempts(World([dataset("days", keys=DAYS)]), Warehouse(str(tmp_path / "warehouse")))
