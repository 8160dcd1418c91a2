"""The application that Dagster's web server mounts at /databuild: the API, the pages, and their files.

Its answers have headers that allow no other host's files, no inline script or style, no frame, and no guessing of types. The web
server announces where its pages are, so that builders link to them, now and every hour.
"""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from threading import Thread
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.orchestrator_notes import ANNOUNCE_EVERY_SECONDS, note_pages
from databuild_dagster.engine.wording import encoded
from databuild_dagster.feature import rows
from databuild_dagster.model.errors import DatabuildError, NotFound
from databuild_dagster.model.logs import log_failure, logger
from databuild_dagster.model.records import error_as_json
from databuild_dagster.web import openapi
from databuild_dagster.web.acting import Acting
from databuild_dagster.web.action import Action
from databuild_dagster.web.actions import actions
from databuild_dagster.web.api import routes
from databuild_dagster.web.authority import Authority
from databuild_dagster.web.pages import DONE, Pages, pages
from databuild_dagster.web.parameters import read_parameters
from databuild_dagster.web.refusals import OnlyPosted, OnlyRead, status_of, without_place
from databuild_dagster.web.routes import ApiRoute, Page, Probe
from databuild_dagster.web.settings import DEFAULTS, Settings, settings_of_environment
from databuild_dagster.web.state import State
from databuild_dagster.web.streams import LogStreams

#: Where Dagster's web server has the application, below its path prefix.
MOUNT: Final = "/databuild"
#: Below it each answer is JSON, errors included.
API: Final = "/api"
STATIC: Final = Path(__file__).parent / "static"

Endpoint = Callable[[Request], Awaitable[Response]]


class NoSuchPage(NotFound):
    """There is no page or url {name!r} below /databuild."""

    hint = "/databuild/ is the first page; /databuild/api/v1/openapi.json describes the API."


def pages_routes(instance: Any, path_prefix: str, *, is_read_only: bool = False) -> list[BaseRoute]:
    """The routes of the application in the web server of a Dagster instance. Raises `BadSetting`."""
    root = path_prefix + MOUNT
    settings = settings_of_environment(read_only=is_read_only)
    if not is_read_only:
        announce_pages(partial(engine_for, instance), root)
    mount = Mount(root, app=make_application(State.of_instance(instance), path_prefix, settings))
    return [Route(root, WithoutSlash(mount)), mount]


def make_application(state: State, path_prefix: str = "", settings: Settings = DEFAULTS) -> ASGIApp:
    """The application over a build state; urls in its pages begin with the prefix."""
    streams = LogStreams(state)
    rendered = Pages(state, path_prefix, MOUNT, is_read_only=settings.read_only)
    acting = Acting(state, rendered, Authority(settings, path_prefix + MOUNT))
    api = [Route(route.path, _api_endpoint(state, streams, route), methods=["GET"]) for route in routes()]
    api += [Route(action.path, _action_endpoint(acting, action), methods=["POST"]) for action in actions()]
    api.append(Route(openapi.PATH, _document, methods=["GET"]))
    application = Starlette(
        routes=[
            Mount(openapi.root(), app=Router(api, redirect_slashes=False)),
            Mount("/static", _Files(directory=STATIC)),
            *(Route(page.path, _page_endpoint(state, rendered, page), methods=["GET"]) for page in pages()),
            *(
                Route(probe.path, _probe_endpoint(state, probe), methods=["GET"])
                for probe in rows(lambda feature: feature.probes)
            ),
            *(
                Route(f"/confirm/{action.name}", partial(acting.confirm, action), methods=["GET"])
                for action in actions()
            ),
        ],
        exception_handlers={
            DatabuildError: partial(_refused, rendered),
            HTTPException: partial(_refused, rendered),
            Exception: partial(_refused, rendered),
        },
    )
    # As above: a redirect would repeat the header Host of the request.
    application.router.redirect_slashes = False
    # Around all of it: Starlette answers mistakes of ours outside of its middleware.
    return SecurityHeaders(application)


class WithoutSlash:
    """The address of the pages without its last slash: it leads to the first page, and refuses what that page refuses."""

    def __init__(self, mount: Mount) -> None:
        self._mount = mount

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in ("GET", "HEAD"):
            first_page = RedirectResponse(self._mount.path + "/")
            await SecurityHeaders(first_page)(scope, receive, send)
            return
        scope = {**scope, "path": scope["path"] + "/"}
        _, of_mount = self._mount.matches(scope)
        await self._mount.handle({**scope, **of_mount}, receive, send)


class _Files(StaticFiles):
    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers["Cache-Control"] = KEEP_FILES
        return response


class _EventStream(StreamingResponse):
    """Gives its place back however the client leaves, also before the first byte."""

    def __init__(self, streams: LogStreams, after: int | None) -> None:
        super().__init__(streams.follow(after), media_type="text/event-stream")
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.leave()


def _api_endpoint(state: State, streams: LogStreams, route: ApiRoute) -> Endpoint:
    async def answer(request: Request) -> Response:
        values = _values(request, route)
        if route.is_stream:
            # A browser that connects again says what it has.
            last = request.headers.get("last-event-id", "")
            after = int(last) if last.isascii() and last.isdecimal() and len(last) < 17 else values["after"]
            if request.method == "HEAD":
                return Response(media_type="text/event-stream")
            streams.take_place()
            try:
                # Before the first byte, so that a store in trouble has its own status.
                await streams.start()
            except BaseException:
                streams.leave()
                raise
            return _EventStream(streams, after)
        return _json(await state.ask(lambda: route.function(state, **values)))

    return answer


def _action_endpoint(acting: Acting, action: Action) -> Endpoint:
    async def answer(request: Request) -> Response:
        found = await acting.call(action, request)
        return found if isinstance(found, Response) else _json(found)

    return answer


def _page_endpoint(state: State, rendered: Pages, page: Page) -> Endpoint:
    async def answer(request: Request) -> Response:
        query = _query(request)
        others = [pair for pair in query if pair[0] != DONE.name]
        values = read_parameters(page.parameters, others, _n_bytes(request))
        done = read_parameters((DONE,), [pair for pair in query if pair[0] == DONE.name], 0)[DONE.name]
        html = await state.ask(lambda: rendered.render(page, values, urlencode(others), done))
        return Response(html, media_type="text/html")

    return answer


def _probe_endpoint(state: State, probe: Probe) -> Endpoint:
    async def answer(_: Request) -> Response:
        return _json(*await probe.ask(state))

    return answer


def _values(request: Request, route: ApiRoute) -> dict[str, Any]:
    return read_parameters(route.parameters, _query(request), _n_bytes(request))


def _query(request: Request) -> list[tuple[str, str]]:
    # Parsing what is too long would cost something.
    return request.query_params.multi_items() if _n_bytes(request) <= 100_000 else []


def _n_bytes(request: Request) -> int:
    return len(request.scope["query_string"])


async def _document(_: Request) -> Response:
    return _json(openapi.openapi_document())


def _json(value: Any, status: int = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(value, enc_hook=encoded), status, media_type="application/json")


async def _refused(rendered: Pages, request: Request, error: Exception) -> Response:
    """The sentence of an error: as JSON below the API, as a page elsewhere."""
    status = status_of(error)
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    error = _as_ours(error, request)
    if isinstance(error, DatabuildError):
        sentence = error_as_json(error)
    else:
        message = f"The web server has made a mistake ({type(error).__name__}); its log has the traceback."
        sentence = {"type": type(error).__name__, "message": message, "hint": ""}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    is_form = request.method == "POST" and "text/html" in request.headers.get("accept", "")
    if _is_of_api(rendered, request) and not is_form:
        answer = _json({"error": sentence}, status)
    else:
        answer = Response(rendered.render_error(sentence, status), status, media_type="text/html")
    answer.headers.update(headers)
    return answer


def _is_of_api(rendered: Pages, request: Request) -> bool:
    path = request.scope["path"].removeprefix(rendered.urls.root)
    return bool(path == API or path.startswith(API + "/"))


def _as_ours(error: Exception, request: Request) -> Exception:
    """An error without the places of files."""
    url = request.url.path
    if isinstance(error, HTTPException):
        if error.status_code != HTTPStatus.METHOD_NOT_ALLOWED:
            return NoSuchPage(kind="url", name=url)
        is_action = "POST" in (error.headers or {}).get("Allow", "")
        return (OnlyPosted if is_action else OnlyRead)(place=url, method=request.method)
    return without_place(error, url)


_logger = logger(__name__)


def announce_pages(open_engine: Callable[[], Engine], root: str) -> None:
    """Announce pages at a path until the process ends; a store in trouble is a line in the log, and is tried again."""
    Thread(target=_announce, args=(open_engine, root), name="databuild-announce", daemon=True).start()


def _announce(open_engine: Callable[[], Engine], root: str) -> None:
    while True:
        try:
            note_pages(open_engine(), root)
        except Exception as error:
            log_failure(_logger, "the pages could not be announced, so Dagster's pages get no links to them", error)
        time.sleep(ANNOUNCE_EVERY_SECONDS)


POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
#: Of files that an upgrade changes; the state changes all the time.
KEEP_FILES: Final = "no-cache"
KEEP_NOTHING: Final = "no-store"


class SecurityHeaders:
    """Adds the headers to each answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", KEEP_NOTHING)
            await send(message)

        await self._app(scope, receive, send_with_headers)
