"""Actions over HTTP: the url that does one, and the page that says what it would touch and asks for a confirmation.

The form of the page posts to the url of the API. A browser is sent on to the page that it came from, with the command's id in the
url: the page shows the events of the command, which the log has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from operator import itemgetter
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from databuild_dagster.engine.ids import new_id
from databuild_dagster.model.command_ids import bare, with_fingerprint
from databuild_dagster.model.errors import CommandIdUsed, DatabuildError
from databuild_dagster.shapes.fields import error_as_json
from databuild_dagster.web.action import Action, By
from databuild_dagster.web.authority import MAX_NAME, Actor, Authority, check_is_opened
from databuild_dagster.web.bodies import Fields, parse_form, read_body
from databuild_dagster.web.pages import DONE, Pages, page_paths
from databuild_dagster.web.parameters import MAX_QUERY_BYTES, Parameter, QueryTooLong, flag, is_true, read_fields, text
from databuild_dagster.web.refusals import ActionRefused, BadBody, NoName, OtherOrigin, names_a_place
from databuild_dagster.web.rehearsal import RehearsalShape
from databuild_dagster.web.state import State
from databuild_dagster.web.statuses import status_of

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


class BadCommandId(ActionRefused):
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
    """Does the actions of one web server, and renders their confirmations."""

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
        except OtherOrigin:
            raise
        except DatabuildError as error:
            if not is_page or controls["csrf"] is None or names_a_place(error):
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
        status = of_rehearsal if error is None else status_of(error)
        response = Response(html, status, media_type=_HTML)
        self._authority.keep_session(request, response, session)
        return response

    async def _rehearsed(
        self, action: Action, form: _Form, actor: str
    ) -> tuple[RehearsalShape | None, DatabuildError | None]:
        try:
            return await self._state.act(lambda: action.rehearsal(self._state, form.values(), actor)), None
        except DatabuildError as refused:
            if names_a_place(refused):
                raise
            return None, refused

    def _acts_as(self, request: Request) -> str:
        """The actor as far as it is known; raises `NoUserOfProxy`."""
        try:
            return self._authority.actor_of_page(request).text
        except NoName:
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
    """The id of the command, which no other action has, with a fingerprint of its actor and fields. Raises `BadCommandId`.

    Values are compared as they were sent: a time from now, such as 12h, is another one at each call.
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
    except BadBody:
        # The command may be done: its answer must be no refusal.
        path, fields = "/", []
    if done is not None:
        fields.append((DONE.name, done))
    return path + (f"?{urlencode(fields)}" if fields else "")
