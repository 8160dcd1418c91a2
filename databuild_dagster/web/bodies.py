"""The body of an action, a form or JSON, as names and texts. Its size is bounded, and nothing is repeated unseen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Set
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from databuild_dagster.web.refusals import BadBody, BodyTooLarge, WrongMediaType

FORM: Final = "application/x-www-form-urlencoded"
JSON: Final = "application/json"
#: Bytes of a body, and fields in it.
MAX_BODY_BYTES: Final = 100_000
MAX_FIELDS: Final = 1_000
#: Seconds in which a body must come: one that never ends would keep its connection.
MAX_SECONDS: Final = 30

Fields = list[tuple[str, str]]


async def read_body(request: Request, of_json: Set[str] = frozenset()) -> Fields:
    """The fields in their order. Those of `of_json` take any JSON, and are given as its text.

    Raises `WrongMediaType`, `BodyTooLarge`, `BadBody`.
    """
    kind = media_type(request)
    if kind not in (FORM, JSON):
        raise WrongMediaType(given=kind[:100])
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdecimal() and (len(length) > 15 or int(length) > MAX_BODY_BYTES):
        raise BodyTooLarge(most=MAX_BODY_BYTES)
    try:
        async with asyncio.timeout(MAX_SECONDS):
            body = await _received(request)
    except ClientDisconnect:
        raise BadBody(why="it ended too early") from None
    except TimeoutError:
        raise BadBody(why=f"it did not come within {MAX_SECONDS} seconds") from None
    try:
        text = body.decode("utf-8")
        return parse_form(text) if kind == FORM else list(_of_json(text, of_json))
    except UnicodeDecodeError:
        raise BadBody(why="it is not UTF-8") from None
    except RecursionError:
        raise BadBody(why="it is nested too deeply") from None


async def _received(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise BodyTooLarge(most=MAX_BODY_BYTES)
    return bytes(body)


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def parse_form(text: str) -> Fields:
    """The fields of a form or a query. Raises `BadBody`."""
    try:
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except UnicodeDecodeError:
        raise BadBody(why="it is not UTF-8") from None
    except ValueError:
        raise BadBody(why=f"it has more than {MAX_FIELDS:,} fields") from None


def _of_json(text: str, of_json: Set[str]) -> Iterator[tuple[str, str]]:
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs)
    except ValueError:
        raise BadBody(why="it is no JSON") from None
    if not isinstance(pairs, _Pairs):
        raise BadBody(why="it is no JSON object")
    for name, value in pairs:
        if value is None:
            continue
        if name in of_json:
            yield name, json.dumps(_plain(value))
        elif isinstance(value, list) and not isinstance(value, _Pairs):
            if not all(isinstance(one, str) for one in value):
                raise BadBody(why=f"the list {name[:100]!r} may hold texts only")
            yield from ((name, one) for one in value)
        else:
            yield name, _text_of(value)


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object; a name that comes twice is there twice."""


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, _Pairs):
        return {name: _plain(member) for name, member in value}
    return [_plain(member) for member in value] if isinstance(value, list) else value
