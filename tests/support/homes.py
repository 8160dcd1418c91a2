"""A store and a warehouse as a Dagster instance has them, without Dagster and Spark."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.events import Arrival, ManifestFact
from databuild_dagster.model.refs import asset_of, derive_partition_uuid
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    FileEntry,
    Manifest,
    ManifestState,
    TableSchema,
    UriType,
    missing_files,
    read_manifest,
    write_manifest,
)

from .catalog import dataset
from .world import World

if TYPE_CHECKING:
    from databuild_dagster.features.clean.cleaning import Cleaner, CleaningPlan

ASSETS = ("a", "b")


@dataclass
class Home:
    """A store and a warehouse, as a Dagster instance has them."""

    world: World
    warehouse: Warehouse

    @property
    def cleaner(self) -> Cleaner:
        from databuild_dagster.features.clean.cleaning import Cleaner

        return Cleaner(self.world.engine, self.warehouse.root)

    def store(self, ref: str, state: ManifestState = ManifestState.COMPLETE, *, manifest: bool = True) -> str:
        """Write the files of the job run that builds a ref, before its report; the uuid."""
        job_run = self.world.job_run(ref)
        uuid = derive_partition_uuid(job_run, ref)
        contents = f"rows of {uuid}".encode()
        self.warehouse.storage.create_only(f"{self.warehouse.instance_dir(ref, uuid)}/part-0.parquet", contents)
        if manifest:
            write_manifest(self.warehouse, self.manifest_of(ref, uuid, job_run, state, len(contents)))
        return uuid

    def manifest_of(self, ref: str, uuid: str, job_run: str, state: ManifestState, size_bytes: int) -> Manifest:
        return Manifest(
            dataset=asset_of(ref),
            ref=ref,
            instance_uuid=uuid,
            job_run=job_run,
            attempt=1,
            state=state,
            files=(FileEntry("part-0.parquet", size_bytes, 1, "sha256:0"),),
            created_at=datetime.now(UTC),
            schema=TableSchema(()),
        )

    def live(self, ref: str) -> str:
        uuid = self.store(ref)
        uri, size_bytes = self.warehouse.manifest_path(ref, uuid), len(f"rows of {uuid}")
        self.world.succeed(ref, manifest=ManifestFact("complete", uri, files=1, rows=1, bytes=size_bytes))
        return uuid

    def live_again(self, ref: str) -> str:
        self.world.taint(ref)
        return self.live(ref)

    def failed(self, ref: str) -> str:
        """As a check that does not pass leaves it."""
        uuid = self.store(ref, ManifestState.PARTIAL)
        self.world.fail(ref)
        return uuid

    def arrived(self, ref: str, path: str) -> str:
        """A file of another program, listed in its place."""
        job_run = self.world.ids()
        uuid = derive_partition_uuid(job_run, ref)
        size_bytes = os.path.getsize(path)
        listed = Manifest(
            **{
                name: getattr(self.manifest_of(ref, uuid, job_run, ManifestState.COMPLETE, 0), name)
                for name in Manifest.__struct_fields__
                if name not in ("files", "uri_type")
            },
            uri_type=UriType.IDENTIFIER,
            files=(FileEntry(path, size_bytes, 1, "sha256:0"),),
        )
        uri = write_manifest(self.warehouse, listed)
        fact = ManifestFact("complete", uri, files=1, rows=1, bytes=size_bytes)
        arrival = Arrival(job_run_id=job_run, ref=ref, origin=path, manifest=fact)
        self.world.handle(c.ArriveLots(arrivals=(arrival,)))
        return uuid

    def gc(self, keep: int = 0, older_than_seconds: float = 0.0, *, tainted: bool = False) -> CleaningPlan:
        return self.cleaner.plan_gc(keep=keep, older_than_seconds=older_than_seconds, tainted=tainted)

    def files(self, ref: str, uuid: str) -> list[str]:
        folder = Path(self.warehouse.instance_dir(ref, uuid))
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def state_of(self, ref: str, uuid: str) -> ManifestState:
        return read_manifest(self.warehouse, ref, uuid).state

    def assert_sound(self) -> None:
        """I7: what is live has one manifest, complete, and all its files; and the log folds to what is there."""
        assert self.world.check() == []
        for asset in ASSETS:
            for live_instance in self.world.queries.instances.live(asset):
                manifest = read_manifest(self.warehouse, asset, live_instance.uuid)
                assert manifest.state is ManifestState.COMPLETE
                assert missing_files(self.warehouse, manifest) == ()

    def assert_nothing_is_half_gone(self) -> None:
        """Either all of an instance is there, or its manifest says that nothing is."""
        for asset in ASSETS:
            for instance in self.world.queries.instances.history(asset):
                if instance.manifest_state == "removed":
                    assert self.files(asset, instance.uuid) in (["manifest.json"], [])
                elif instance.live_at is not None:
                    assert len(self.files(asset, instance.uuid)) == 2


def a_home(folder: Path, url: str = "sqlite://") -> Home:
    return Home(World([dataset(name) for name in ASSETS], url=url), Warehouse(str(folder / "warehouse")))


class Homes:
    """Homes that a test makes, copies and moves."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def opened(self, folder: Path, root: str | None = None, *, first_id: int = 1) -> Home:
        url = f"sqlite:///{folder}/databuild.db"
        home = self.of(url, root or str(folder / "warehouse"), first_id=first_id)
        self._stack.callback(lambda: folder.exists() and home.assert_sound())
        return home

    def of(self, url: str, root: str, *, first_id: int = 1) -> Home:
        world = World([dataset(name) for name in ASSETS], url=url, first_id=first_id)
        self._stack.callback(world.close)
        return Home(world, Warehouse(root))

    def copied(self, folder: Path, into: Path, root: str | None = None) -> Home:
        shutil.copytree(folder, into)
        return self.opened(into, root, first_id=100_000)


@pytest.fixture
def homes() -> Iterator[Homes]:
    with ExitStack() as stack:
        yield Homes(stack)
