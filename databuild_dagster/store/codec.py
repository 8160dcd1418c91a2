"""Events to versioned JSON and back. A stored shape lives for ever: old versions are raised to today's by upcasters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import inspect

from databuild_dagster.model.events import EVENT_TYPES, Fact

_encoder = msgspec.json.Encoder()
_names = {cls: str(cls.__struct_config__.tag) for cls in EVENT_TYPES}
_decoders: dict[str, msgspec.json.Decoder[Fact]] = {name: msgspec.json.Decoder(cls) for cls, name in _names.items()}
_shapes = dict(zip(_names.values(), inspect.multi_type_info(_names), strict=True))
#: The newest version of each stored shape, where it is not 1.
_versions: dict[str, int] = {}
#: From (name, version) to the payload of the next version.
_upcasters: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {}


class UnknownShape(msgspec.ValidationError):
    """Not a type, or not a version, that is known here: newer code wrote it, or something else did."""


def encode(fact: Fact) -> tuple[str, int, str]:
    """(type, version, payload) of a fact."""
    name = _names[type(fact)]
    return name, _versions.get(name, 1), _encoder.encode(fact).decode()


def decode(name: str, version: int, payload: str) -> Fact:
    """Today's fact behind a stored one, raised version by version. Raises `msgspec.MsgspecError`."""
    if name not in _decoders:
        raise UnknownShape("no event of this type is known here")
    newest = _versions.get(name, 1)
    if version != newest:
        if not 1 <= version < newest:
            raise UnknownShape(f"the newest version known here is {newest}")
        raw = msgspec.json.decode(payload)
        for step in range(version, newest):
            raw = _upcasters[name, step](raw)
        payload = _encoder.encode(raw).decode()
    return _decoders[name].decode(payload)


def unknown_fields(name: str, version: int, payload: str) -> list[str]:
    """What a payload says that its shape has no field for, which decoding passes over in silence.

    Nobody of ours writes such a thing, so it is a field whose name was damaged. Old versions are not asked: what was
    known of their shapes is in their upcasters.
    """
    if version != _versions.get(name, 1):
        return []
    return list(_unknown(_shapes[name], msgspec.json.decode(payload), ""))


def _unknown(shape: inspect.Type, said: Any, path: str) -> Iterator[str]:
    match shape:
        case inspect.StructType(fields=fields, tag_field=tag) if isinstance(said, dict):
            types = {field.encode_name: field.type for field in fields}
            for key, value in said.items():
                if key in types:
                    yield from _unknown(types[key], value, f"{path}{key}.")
                elif key != tag:
                    yield f"{path}{key}"
        case inspect.VarTupleType(item_type=item_type):
            for each in said:
                yield from _unknown(item_type, each, path)
        case inspect.UnionType(types=choices) if said is not None:
            for choice in choices:
                yield from _unknown(choice, said, path)
