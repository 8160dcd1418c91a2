"""The published schema is that of what is written and read (rule 10.2)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import msgspec
import pytest

from databuild_dagster.features.lots.copies.copies import lot_folder, manifest_copy
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    SHIPPED,
    Column,
    FileEntry,
    Manifest,
    ManifestState,
    TableSchema,
    UriType,
    manifest_schema,
    manifest_text,
    shipped_schema,
)

DOCS = Path(__file__).parents[2] / "docs" / "reference"


@pytest.fixture
def validator():
    schema = json.loads(shipped_schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def manifest_of(**changes):
    return Manifest(
        **{
            "dataset": "raw/flights",
            "ref": "raw/flights@2023-02-27-23:55",
            "lot_id": "20230227PT5M287",
            "instance_uuid": "5e0002a1-0f3d-bd95-db63-b1ac4bedec0f",
            "job_run": "0190b6a0-0000-7000-8000-000000000000",
            "attempt": 1,
            "state": ManifestState.COMPLETE,
            "files": (FileEntry("part-0.parquet", 3, 1, "sha256:00"),),
            "created_at": datetime(2023, 3, 1, tzinfo=UTC),
            "schema": TableSchema((Column("carrier", "string", True),), "{}"),
            "inputs": {"raw/days": "579bd65c-4ec2-280d-148b-69c8ddecd1b2"},
            **changes,
        }
    )


def test_what_is_shipped_and_what_the_docs_show_is_what_the_class_says():
    """`python tools/docs.py` writes both."""
    assert shipped_schema() == manifest_schema()
    assert (DOCS / SHIPPED).read_text() == manifest_schema()


@pytest.mark.parametrize(
    "manifest",
    [
        manifest_of(),
        manifest_of(lot_id=None, files=(), state=ManifestState.EMPTY, inputs={}, schema=TableSchema(())),
        manifest_of(uri_type=UriType.IDENTIFIER, files=(FileEntry("s3://b/k", 3, 1, ""),)),
        manifest_of(state=ManifestState.PARTIAL, comment="the disk was full", children=("part=1/manifest.json",)),
    ],
)
def test_every_manifest_and_every_copy_of_one_fits_it(validator, manifest):
    warehouse = Warehouse("/w")
    _, copy = manifest_copy(warehouse, lot_folder(warehouse, manifest.dataset, "0", manifest.lot_id), manifest)

    for contents in (manifest_text(manifest), copy):
        assert list(validator.iter_errors(json.loads(contents))) == []


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"state": "half"},
        {"uri_type": "url"},
        {"files": [{"uri": "part-0.parquet"}]},
        {"ref": None},
    ],
)
def test_what_we_would_not_read_does_not_fit(validator, change):
    assert list(validator.iter_errors({**json.loads(manifest_text(manifest_of())), **change}))


def test_a_field_that_is_left_out_does_not_fit(validator):
    whole = json.loads(manifest_text(manifest_of()))

    for name in msgspec.structs.fields(Manifest):
        assert list(validator.iter_errors({key: value for key, value in whole.items() if key != name.encode_name}))
