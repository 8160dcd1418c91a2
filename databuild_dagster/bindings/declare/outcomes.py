"""The outcomes of an asset's function besides a frame: empty on purpose, an input missing, a transient error; and its metadata."""

import json
import math
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

import dagster as dg
from dagster import AssetKey, RetryRequested

from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.refs import AnyRef, PartitionRef, Ref, parse_ref

_ByName = Mapping[str, AnyRef | Iterable[AnyRef]]


class Empty(Enum):
    """The type of `EMPTY`, an enum with a single member, so that type checkers can narrow it."""

    #: This partition correctly has no data.
    EMPTY = "empty"


#: Returned instead of a frame: the partition is live and has no rows.
EMPTY: Final = Empty.EMPTY


class DepMiss(Exception):
    """Raised by an asset's function that needs refs that are not live. When they are live, it is called again.

    `DepMiss(ref, …)` applies to everything that the call builds. If its refs miss different inputs, pass a mapping: from
    the partition key in a batched asset, from the output's name in a multi-asset that is not batched.
    """

    def __init__(self, *refs: AnyRef | Iterable[AnyRef] | _ByName) -> None:
        mappings = [given for given in refs if isinstance(given, Mapping)]
        if mappings and len(refs) > 1:
            raise TypeError("DepMiss takes refs, or one mapping to refs, not both.")
        self.by_name = {str(name): texts_of([needed]) for mapping in mappings for name, needed in mapping.items()}
        self.refs = texts_of(self.by_name.values() if mappings else refs)
        if not self.refs or not all(self.by_name.values()):
            raise ValueError("DepMiss needs the refs that are missing, for example DepMiss('sales@2013-01-01').")
        super().__init__(f"Missing: {', '.join(self.refs)}.")


def texts_of(refs: Iterable[Any]) -> tuple[Ref, ...]:
    """The refs of refs and collections of refs, in order, each once. Raises `InvalidRef`, and TypeError for other types."""
    texts: dict[Ref, None] = {}
    for given in refs:
        several = isinstance(given, Collection | Iterator) and not isinstance(given, (str, AssetKey))
        for ref in given if several else [given]:
            if not isinstance(ref, (str, PartitionRef)):
                raise TypeError(f"{ref!r} is no ref; write a PartitionRef, or a text such as 'sales@2013-01-01'.")
            texts[parse_ref(ref)] = None
    return tuple(texts)


class Transient(Exception):
    """Raised by an asset's function when a retry may help: a service was down, a connection broke."""


#: What a function raises to say that a retry may help; Dagster's own means the same, and the engine counts the retries (rule 6.8).
MAY_RETRY: Final = (Transient, RetryRequested)


class BadResult(Exception):
    """An asset's function returned an invalid result; the message has the valid ones."""


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


#: Numbers of an output that the log records, and the letters of a name.
MAX_NUMBERS: Final = 20
MAX_NAME: Final = 100


def numbers_of(metadata: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of metadata, by name: the first `MAX_NUMBERS`, without the package's own numbers and without long names."""
    found: dict[str, float] = {}
    for name, value in metadata.items():
        if not isinstance(value, dg.IntMetadataValue | dg.FloatMetadataValue) or value.value is None:
            continue
        if name.startswith("databuild/") or len(name) > MAX_NAME or abs(value.value) > sys.float_info.max:
            continue
        if math.isfinite(value.value) and len(found) < MAX_NUMBERS:
            found[name] = float(value.value)
    return found
