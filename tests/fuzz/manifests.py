"""Manifests as another writer, or a disk, may leave them. Each is read, or refused by a typed error (rules 10)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    Column,
    FileEntry,
    TableSchema,
    file_paths,
    local_paths,
    manifest_fact,
    manifest_text,
    missing_files,
    read_manifest,
    read_manifests,
    with_whole_uris,
    write_manifest,
)
from tests.support.written import ASSET, UUID, manifest_of

from .values import mutated, mutated_bytes

NAME = "manifests"
N_IN_CI = 1000


class Manifests:
    def __init__(self, folder: Path) -> None:
        self.warehouse = Warehouse(str(folder))
        names = ("part-0.parquet", "part-1.parquet")
        manifest = manifest_of(
            files=tuple(FileEntry(uri=name, bytes=3, rows=1, checksum="sha256:00") for name in names),
            schema=TableSchema((Column("carrier", "string", True),)),
            inputs={"raw/days@2013-01-01": UUID},
        )
        write_manifest(self.warehouse, manifest)
        self.path = Path(self.warehouse.manifest_path(ASSET, UUID))
        self.contents = self.path.read_bytes()
        for name in names:
            (self.path.parent / name).write_bytes(b"abc")

    def make(self, random: Random) -> dict[str, Any]:
        if random.random() < 0.4:
            return {"bytes": mutated_bytes(random, self.contents).decode("latin-1")}
        value = json.loads(self.contents)
        for _ in range(random.choice((1, 1, 1, 2, 5))):
            value = mutated(random, value)
        return {"json": value}

    def feed(self, given: dict[str, Any]) -> None:
        contents = given["bytes"].encode("latin-1") if "bytes" in given else json.dumps(given["json"]).encode()
        self.path.write_bytes(contents)
        try:
            manifest = read_manifest(self.warehouse, ASSET, UUID)
            paths = file_paths(self.warehouse, manifest)
            assert all(path.startswith(str(self.path.parent)) for path in paths)
            missing_files(self.warehouse, manifest)
            with_whole_uris(self.warehouse, manifest)
            manifest_fact(manifest, str(self.path))
            manifest_text(manifest)
            read_manifests(self.warehouse, ASSET, [UUID])
            local_paths(self.warehouse, [manifest])
        except DatabuildError as refused:
            assert str(refused)


@contextmanager
def ready(folder: Path) -> Iterator[Manifests]:
    yield Manifests(folder)
