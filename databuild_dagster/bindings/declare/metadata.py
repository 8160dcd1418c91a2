"""Metadata that a user's code gives, checked while it runs: an error of Dagster after the success would end the whole step."""

import json
from collections.abc import Mapping
from typing import Any

import dagster as dg

from databuild_dagster.model.errors import DatabuildError


class InvalidMetadata(DatabuildError):
    """Dagster cannot store the metadata {name!r} of {of}: the value is a {type}."""

    hint = (
        "Give a text in UTF-8, a number of Python, a list or dict of these, or a dagster.MetadataValue; "
        "convert another value, as in float(value) or str(value)."
    )


def storable(metadata: Mapping[str, Any], of: str) -> Mapping[str, Any]:
    """The metadata as values of Dagster, which it can write to its event log and show. Raises `InvalidMetadata`."""
    found: dict[str, Any] = {}
    for name, value in metadata.items():
        try:
            event = dg.AssetMaterialization("metadata", metadata={name: value})
            json.dumps(json.loads(dg.serialize_value(event)), ensure_ascii=False).encode()
        except Exception as error:  # Dagster, json and the value's own class raise several kinds.
            kind = type(value)
            raise InvalidMetadata(name=name, of=of, type=f"{kind.__module__}.{kind.__qualname__}") from error
        found.update(event.metadata)
    return found
