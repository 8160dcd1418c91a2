"""The published JSON schema of a manifest, made from the class that reads and writes it (SPEC 10.2).

The text is shipped beside this module, so that other tools need run nothing of ours to have it."""

from __future__ import annotations

import json
from importlib.resources import files

import msgspec

from databuild_dagster.warehouse.manifest import SCHEMA_VERSION, Manifest

#: Its name in the package and among the reference pages.
SHIPPED = f"manifest-{SCHEMA_VERSION}.schema.json"


def manifest_schema() -> str:
    """As JSON text; what a manifest of this version has is allowed, and what it always has is required."""
    schema = msgspec.json.schema(Manifest)
    manifest = schema["$defs"]["Manifest"]
    properties = manifest["properties"]
    # Another version may have another shape: who checks with this schema is to be told.
    properties["schema_version"] = {"const": SCHEMA_VERSION, "description": "Another version has another schema."}
    properties["created_at"]["format"] = "date-time"
    # We write every field, also where it is as if it were not there.
    manifest["required"] = list(properties)
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A manifest of databuild", **schema}
    return json.dumps(whole, indent=2) + "\n"


def shipped_schema() -> str:
    """The text in the package."""
    return files("databuild_dagster.warehouse").joinpath(SHIPPED).read_text()
