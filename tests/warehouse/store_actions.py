"""What a process does with a warehouse in an object store, each of which a store in trouble refuses."""

from __future__ import annotations

from databuild_dagster.warehouse.files import read_table
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import missing_files, read_manifest, write_manifest
from databuild_dagster.warehouse.object_store import forget_connections
from tests.support.written import OTHER, UUID, manifest_of, numbers, publish


def do_stage(warehouse: Warehouse) -> None:
    forget_connections()
    warehouse.new_staging_dir(UUID)


def do_upload(warehouse: Warehouse) -> None:
    publish(warehouse, numbers(1), numbers(2))


def do_write_manifest(warehouse: Warehouse) -> None:
    write_manifest(warehouse, manifest_of())


def do_read_manifest(warehouse: Warehouse) -> None:
    read_manifest(warehouse, "raw/flights", OTHER)


def do_fetch(warehouse: Warehouse) -> None:
    read_table(warehouse, [read_manifest(warehouse, "raw/flights", OTHER)])


def do_check(warehouse: Warehouse) -> None:
    missing_files(warehouse, manifest_of(files=()))


def do_discard(warehouse: Warehouse) -> None:
    warehouse.remove_instance("raw/flights", OTHER)


EVERYTHING = [do_stage, do_upload, do_write_manifest, do_read_manifest, do_fetch, do_check, do_discard]
