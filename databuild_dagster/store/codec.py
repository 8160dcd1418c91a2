"""Events to versioned JSON and back. A stored shape lives for ever: old versions are raised to today's by upcasters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from databuild_dagster.model.events import EVENT_TYPES, Fact

_encoder = msgspec.json.Encoder()
_names = {cls: str(cls.__struct_config__.tag) for cls in EVENT_TYPES}
_decoders: dict[str, msgspec.json.Decoder[Fact]] = {name: msgspec.json.Decoder(cls) for cls, name in _names.items()}
#: The newest version of each stored shape, where it is not 1.
_versions: dict[str, int] = {}
#: From (name, version) to the payload of the next version.
_upcasters: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {}


def encode(fact: Fact) -> tuple[str, int, str]:
    """(type, version, payload) of a fact."""
    name = _names[type(fact)]
    return name, _versions.get(name, 1), _encoder.encode(fact).decode()


def decode(name: str, version: int, payload: str) -> Fact:
    """Today's fact behind a stored one, raised version by version."""
    newest = _versions.get(name, 1)
    if version != newest:
        raw = msgspec.json.decode(payload)
        for step in range(version, newest):
            raw = _upcasters[name, step](raw)
        payload = _encoder.encode(raw).decode()
    return _decoders[name].decode(payload)
