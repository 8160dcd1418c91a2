"""Actions over HTTP: the url that does an action, and the page that shows what it would touch and asks for a confirmation.

The form of the page posts to the url of the API. A browser is sent on to the page that it came from, with the command's id in the
url: the page shows the events of the command, which the log has. A body is a form or JSON; its size is bounded, and nothing is
repeated unseen.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from http import HTTPStatus
from operator import itemgetter
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from databuild_dagster.engine.holders import new_id
from databuild_dagster.model.command_ids import bare, with_fingerprint
from databuild_dagster.model.errors import CommandIdUsed, DatabuildError
from databuild_dagster.model.records import error_as_json
from databuild_dagster.web import refusals
from databuild_dagster.web.action import Action, By, Rehearsal
from databuild_dagster.web.authority import MAX_NAME, Actor, Authority, check_is_opened
from databuild_dagster.web.pages import DONE, Pages, page_paths
from databuild_dagster.web.parameters import MAX_QUERY_BYTES, Parameter, QueryTooLong, flag, is_true, read_fields, text
from databuild_dagster.web.state import State

MAX_COMMAND_ID: Final = 100
#: Fields of every action, beside its own.
ACTOR: Final = text("actor", f"The name of the person or program that acts, of at most {MAX_NAME} characters.")
COMMAND_ID: Final = text(
    "command_id",
    f"A text of at most {MAX_COMMAND_ID} characters. The action is done once for it and answers the same again; with another "
    "actor or other fields, the call is refused.",
)
DRY_RUN: Final = flag("dry_run", "Answer what the action would do, and do nothing.")
CSRF: Final = text("csrf", "Of the form of a page: its token.")
#: A whole url: the percent signs of a key make it longer than the key.
BACK: Final = text("back", "Of the form of a page: the page to show afterwards.", most=MAX_QUERY_BYTES)
CONTROLS: Final = (ACTOR, COMMAND_ID, DRY_RUN, CSRF, BACK)
_CONTROL_NAMES: Final = frozenset(control.name for control in CONTROLS)
_HTML: Final = "text/html"


class BadCommandId(refusals.ActionRefused):
    """The command_id of this action is not possible: it has at most {most} letters, digits, dots and hyphens."""

    status = HTTPStatus.BAD_REQUEST


@dataclass(frozen=True)
class Input:
    """A field of the form that a person fills in."""

    parameter: Parameter
    value: str

    @property
    def label(self) -> str:
        return self.parameter.name.replace("_", " ").capitalize()


@dataclass(frozen=True)
class Switch:
    """A field that is on or off; its url shows the page with the other value."""

    parameter: Parameter
    is_on: bool
    url: str


class Acting:
    """Does the actions of a web server, and renders their confirmations."""

    def __init__(self, state: State, pages: Pages, authority: Authority) -> None:
        self._state = state
        self._pages = pages
        self._authority = authority

    async def call(self, action: Action, request: Request) -> Any:
        """The answer of an action, or of its dry run; a `Response` for a browser. Raises a `DatabuildError`."""
        self._authority.check_writable()
        fields = await read_body(request, {known.name for known in action.parameters if known.is_json})
        controls = read_fields(CONTROLS, [field for field in fields if field[0] in _CONTROL_NAMES])
        own = [field for field in fields if field[0] not in _CONTROL_NAMES]
        is_page = _HTML in request.headers.get("accept", "")
        try:
            actor = self._authority.actor(request, controls["csrf"], controls["actor"])
            by = By(actor.text, command_id(action, controls["command_id"], actor.text, own))
            values = read_fields(action.parameters, own)
            if controls["dry_run"]:
                return await self._state.act(lambda: action.rehearsal(self._state, values, by.actor))
            answer = await self._state.act(lambda: action.act(self._state, values, by))
        except refusals.OtherOrigin:
            raise
        except DatabuildError as error:
            if not is_page or controls["csrf"] is None or refusals.names_a_place(error):
                raise
            return await self._confirmation(action, request, own, controls, error)
        return self._sent_back(request, actor, by, controls["back"]) if is_page else answer

    def _sent_back(self, request: Request, actor: Actor, by: By, back: str | None) -> Response:
        response = RedirectResponse(self._pages.urls.root + page_after(back, bare(by.command_id)), HTTPStatus.SEE_OTHER)
        if actor.typed is not None:
            self._authority.keep_name(request, response, actor.typed)
        return response

    # The confirmation

    async def confirm(self, action: Action, request: Request) -> Response:
        """The page that says what an action would touch. Raises a `DatabuildError`."""
        self._authority.check_writable()
        check_is_opened(request)
        query = request.scope["query_string"]
        if len(query) > MAX_QUERY_BYTES:
            raise QueryTooLong(what="the query", value=len(query), most=MAX_QUERY_BYTES)
        fields = parse_form(query.decode("ascii", "replace"))
        controls = read_fields([BACK], [field for field in fields if field[0] == BACK.name])
        return await self._confirmation(action, request, [field for field in fields if field[0] != BACK.name], controls)

    async def _confirmation(
        self,
        action: Action,
        request: Request,
        fields: Fields,
        controls: Mapping[str, Any],
        error: DatabuildError | None = None,
    ) -> Response:
        shown = _Form(action, fields, controls.get("back") or "/", self._pages.urls.root)
        rehearsal, refused = None, None
        if not shown.lacks:
            rehearsal, refused = await self._rehearsed(action, shown, self._acts_as(request))
        session, token = self._authority.page_token(request)
        html = self._pages.render_template(
            "confirm.html",
            form=shown,
            action=action,
            rehearsal=rehearsal,
            refused=None if refused is None else error_as_json(refused),
            error=None if error is None else error_as_json(error),
            asks_for_name=self._authority.asks_for_names,
            name=controls.get("actor") or self._authority.typed_name(request),
            max_name=MAX_NAME,
            acts_as=self._acts_as(request),
            csrf=token,
            command_id=_kept_id(controls, error) or new_id(),
        )
        of_rehearsal = HTTPStatus.OK if refused is None else getattr(refused, "status", HTTPStatus.BAD_REQUEST)
        status = of_rehearsal if error is None else refusals.status_of(error)
        response = Response(html, status, media_type=_HTML)
        self._authority.keep_session(request, response, session)
        return response

    async def _rehearsed(
        self, action: Action, form: _Form, actor: str
    ) -> tuple[Rehearsal | None, DatabuildError | None]:
        try:
            return await self._state.act(lambda: action.rehearsal(self._state, form.values(), actor)), None
        except DatabuildError as refused:
            if refusals.names_a_place(refused):
                raise
            return None, refused

    def _acts_as(self, request: Request) -> str:
        """The actor as far as it is known; raises `NoUserOfProxy`."""
        try:
            return self._authority.actor_of_page(request).text
        except refusals.NoName:
            return "web"


class _Form:
    """The fields of a confirmation: what it is about, what is switched on, and what a person types."""

    def __init__(self, action: Action, fields: Fields, back: str, root: str) -> None:
        self._parameters = [replace(parameter, required=False) for parameter in action.parameters]
        self._fields = [field for field in fields if field[1] != ""]
        self.back = page_after(back, None)
        by_name = {parameter.name: parameter for parameter in action.parameters}
        is_asked = {name for name in action.subjects if not any(field[0] == name for field in self._fields)}
        #: A subject that the page must ask for before anything can be rehearsed.
        self.lacks = [by_name[name] for name in action.subjects if name in is_asked]
        if len(self.lacks) < len(action.subjects) and not any(found.required for found in self.lacks):
            self.lacks = []
        self.given = self._fields
        self.subjects = [field for field in self._fields if field[0] in action.subjects]
        others = [parameter for parameter in action.parameters if parameter.name not in action.subjects]
        given = dict(self._fields)
        self.switches = [self._switch(parameter, root, action) for parameter in others if _is_switch(parameter)]
        self.inputs = [
            Input(parameter, given.get(parameter.name, "")) for parameter in others if not _is_switch(parameter)
        ]

    def values(self) -> dict[str, Any]:
        """Raises `InvalidRequest`."""
        return read_fields(self._parameters, self._fields)

    @property
    def switched_on(self) -> list[str]:
        return [switch.parameter.name for switch in self.switches if switch.is_on]

    def _switch(self, parameter: Parameter, root: str, action: Action) -> Switch:
        is_on = any(name == parameter.name and is_true(value) for name, value in self._fields)
        others = [field for field in self._fields if field[0] != parameter.name]
        query = [*others, *([] if is_on else [(parameter.name, "true")]), (BACK.name, self.back)]
        return Switch(parameter, is_on, f"{root}/confirm/{action.name}?{urlencode(query)}")


def _is_switch(parameter: Parameter) -> bool:
    return parameter.schema.get("type") == "boolean"


def _kept_id(controls: Mapping[str, Any], error: DatabuildError | None) -> str | None:
    """The id of a form that was refused: nothing was recorded under it, unless the id itself was used before."""
    kept: str | None = controls.get("command_id")
    return None if isinstance(error, CommandIdUsed) else kept


def command_id(action: Action, given: str | None, actor: str, fields: Fields) -> str:
    """The unique id of the command, with a fingerprint of its actor and fields. Raises `BadCommandId`.

    Values are compared as they were sent: a time from now, such as 12h, means a different time at each call.
    """
    name = given or new_id()
    if len(name) > MAX_COMMAND_ID or not (name.isascii() and name.replace("-", "").replace(".", "").isalnum()):
        raise BadCommandId(most=MAX_COMMAND_ID)
    sent = sorted((field for field in fields if field[1] != ""), key=itemgetter(0))
    return with_fingerprint(f"web/{action.name}/{name}", [actor, *map(list, sent)])


def page_after(back: str | None, done: str | None) -> str:
    """The page below the mount that a form names, with the id of the command; the first page for any other text."""
    path, _, query = (back or "").partition("?")
    if path not in page_paths():
        path, query = "/", ""
    try:
        fields = [field for field in parse_form(query) if field[0] != DONE.name]
    except refusals.BadBody:
        # The command may be done: its answer must be no refusal.
        path, fields = "/", []
    if done is not None:
        fields.append((DONE.name, done))
    return path + (f"?{urlencode(fields)}" if fields else "")


FORM: Final = "application/x-www-form-urlencoded"
JSON: Final = "application/json"
#: Bytes of a body, and fields in it.
MAX_BODY_BYTES: Final = 100_000
MAX_FIELDS: Final = 1_000
#: Seconds in which a body must arrive: a body that never ends would keep its connection.
MAX_SECONDS: Final = 30

Fields = list[tuple[str, str]]


async def read_body(request: Request, of_json: Set[str] = frozenset()) -> Fields:
    """The fields in their order. The fields named in `of_json` take any JSON, and are returned as its text.

    Raises `WrongMediaType`, `BodyTooLarge`, `BadBody`.
    """
    kind = media_type(request)
    if kind not in (FORM, JSON):
        raise refusals.WrongMediaType(given=kind[:100])
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdecimal() and (len(length) > 15 or int(length) > MAX_BODY_BYTES):
        raise refusals.BodyTooLarge(most=MAX_BODY_BYTES)
    try:
        async with asyncio.timeout(MAX_SECONDS):
            body = await _received(request)
    except ClientDisconnect:
        raise refusals.BadBody(why="it ended too early") from None
    except TimeoutError:
        raise refusals.BadBody(why=f"it did not come within {MAX_SECONDS} seconds") from None
    try:
        text = body.decode("utf-8")
        return parse_form(text) if kind == FORM else list(_of_json(text, of_json))
    except UnicodeDecodeError:
        raise refusals.BadBody(why="it is not UTF-8") from None
    except RecursionError:
        raise refusals.BadBody(why="it is nested too deeply") from None


async def _received(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise refusals.BodyTooLarge(most=MAX_BODY_BYTES)
    return bytes(body)


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def parse_form(text: str) -> Fields:
    """The fields of a form or a query. Raises `BadBody`."""
    try:
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except UnicodeDecodeError:
        raise refusals.BadBody(why="it is not UTF-8") from None
    except ValueError:
        raise refusals.BadBody(why=f"it has more than {MAX_FIELDS:,} fields") from None


def _of_json(text: str, of_json: Set[str]) -> Iterator[tuple[str, str]]:
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs)
    except ValueError:
        raise refusals.BadBody(why="it is no JSON") from None
    if not isinstance(pairs, _Pairs):
        raise refusals.BadBody(why="it is no JSON object")
    for name, value in pairs:
        if value is None:
            continue
        if name in of_json:
            yield name, json.dumps(_plain(value))
        elif isinstance(value, list) and not isinstance(value, _Pairs):
            if not all(isinstance(one, str) for one in value):
                raise refusals.BadBody(why=f"the list {name[:100]!r} may hold texts only")
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
