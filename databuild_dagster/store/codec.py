"""Events to versioned JSON and back. A stored shape is permanent: upcasters raise old versions to the present version."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import inspect

from databuild_dagster.model.events import EVENT_TYPES, Fact
from databuild_dagster.model.wording import utf8

_encoder = msgspec.json.Encoder()
_names = {cls: str(cls.__struct_config__.tag) for cls in EVENT_TYPES}
_decoders: dict[str, msgspec.json.Decoder[Fact]] = {name: msgspec.json.Decoder(cls) for cls, name in _names.items()}
_shapes = dict(zip(_names.values(), inspect.multi_type_info(_names), strict=True))
#: The newest version of each stored shape, where it is not 1.
_versions: dict[str, int] = dict.fromkeys(
    (
        "DatasetRegistered",
        "JobRunCanceled",
        "JobRunDepMissed",
        "JobRunFailed",
        "JobRunLost",
        "JobRunSucceeded",
        "WantCanceled",
        "WantCreated",
    ),
    2,
) | {"DatasetRegistered": 3}
#: From (name, version) to the payload of the next version. Each version has a field more, whose default the fold takes for the
#: version before.
_upcasters: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {
    (name, version): lambda payload: payload for name, newest in _versions.items() for version in range(1, newest)
}


class UnknownShape(msgspec.ValidationError):
    """An unknown type or version: newer code or a foreign program wrote it."""


def encode(fact: Fact) -> tuple[str, int, str]:
    """(type, version, payload) of a fact. Raises `UnicodeEncodeError` for a text that has to be `escaped`."""
    name = _names[type(fact)]
    return name, _versions.get(name, 1), _encoder.encode(fact).decode()


def escaped(fact: Fact) -> Fact:
    """The fact with what UTF-8 cannot hold escaped in each of its texts."""
    return msgspec.convert(_with_utf8(msgspec.to_builtins(fact)), type(fact))


def _with_utf8(value: Any) -> Any:
    match value:
        case str():
            return utf8(value)
        case list() | tuple():
            return [_with_utf8(item) for item in value]
        case dict():
            return {_with_utf8(key): _with_utf8(item) for key, item in value.items()}
        case _:
            return value


def decode(name: str, version: int, payload: str) -> Fact:
    """The fact of a stored event, raised version by version. Raises `msgspec.MsgspecError`."""
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
    """Names in a payload without a field of its shape, which decoding ignores.

    Our code writes no such name, so such a name is damaged. Old versions are not checked, because only their upcasters know their
    shapes.
    """
    if version != _versions.get(name, 1):
        return []
    return list(_unknown(_shapes[name], msgspec.json.decode(payload), ""))


def _unknown(shape: inspect.Type, value: Any, path: str) -> Iterator[str]:
    match shape:
        case inspect.StructType(fields=fields, tag_field=tag) if isinstance(value, dict):
            types = {field.encode_name: field.type for field in fields}
            for key, inner in value.items():
                if key in types:
                    yield from _unknown(types[key], inner, f"{path}{key}.")
                elif key != tag:
                    yield f"{path}{key}"
        case inspect.VarTupleType(item_type=item_type):
            for item in value:
                yield from _unknown(item_type, item, path)
        case inspect.UnionType(types=choices) if value is not None:
            for choice in choices:
                yield from _unknown(choice, value, path)
