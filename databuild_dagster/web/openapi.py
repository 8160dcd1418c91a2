"""The OpenAPI document of the API, made from its table of routes and the types of the answers."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from databuild_dagster.engine.wording import schema_of
from databuild_dagster.version import __version__
from databuild_dagster.web.acting import CONTROLS, FORM, JSON
from databuild_dagster.web.action import Action, Rehearsal
from databuild_dagster.web.actions import actions
from databuild_dagster.web.api import VERSION, routes
from databuild_dagster.web.authority import SESSION_COOKIE
from databuild_dagster.web.routes import ApiRoute

PATH: Final = "/openapi.json"
_REF: Final = "#/components/schemas/{name}"
_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["type", "message", "hint"],
            "properties": {name: {"type": "string"} for name in ("type", "message", "hint")},
        }
    },
}
_REFUSALS: Final = {
    "400": "A parameter that cannot be.",
    "404": "The url, or a name in it, is unknown.",
    "503": "The store cannot be read, or there are too many streams.",
}
_REFUSED_ACTIONS: Final = {
    "401": "No token, or not the token of this web server.",
    "403": "The web server is read-only or has no token, or the request comes from another site.",
    "409": "Another command came first.",
    "413": "The body is too large.",
    "415": "The body is no form and no JSON.",
}
_SECURITY: Final = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "The token that the web server was started with."},
    "page": {
        "type": "apiKey",
        "in": "cookie",
        "name": SESSION_COOKIE,
        "description": "Of a page of this server, with the field csrf and from the same origin.",
    },
}


def openapi_document() -> dict[str, Any]:
    """The document, in OpenAPI 3.1."""
    schemas, components = msgspec.json.schema_components(
        [route.answer for route in routes()], ref_template=_REF, schema_hook=schema_of
    )
    paths = {route.path: _operation(route, schema) for route, schema in zip(routes(), schemas, strict=True)}
    (*answers, rehearsal), of_actions = msgspec.json.schema_components(
        [*(action.answer for action in actions()), Rehearsal], ref_template=_REF, schema_hook=schema_of
    )
    for action, answer in zip(actions(), answers, strict=True):
        paths[action.path] = _action(action, {"anyOf": [answer, rehearsal]})
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "databuild",
            "version": __version__,
            "description": "The build state, and actions on it. Answers have the shapes of the command line's --json.",
        },
        # Relative to this document.
        "servers": [{"url": "."}],
        "paths": paths,
        "components": {"schemas": {**components, **of_actions, "Error": _ERROR}, "securitySchemes": _SECURITY},
    }


def _refusals(descriptions: Mapping[str, str]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}}
    return {code: {"description": description, "content": content} for code, description in descriptions.items()}


def _action(action: Action, schema: dict[str, Any]) -> dict[str, Any]:
    fields = [*action.parameters, *CONTROLS]
    body = {
        "type": "object",
        "additionalProperties": False,
        "required": [field.name for field in fields if field.required],
        "properties": {field.name: {**field.schema, "description": field.description} for field in fields},
    }
    return {
        "post": {
            "operationId": f"actions/{action.name}",
            "summary": action.summary,
            "security": [{"bearer": []}, {"page": []}],
            "requestBody": {"required": True, "content": {kind: {"schema": body} for kind in (JSON, FORM)}},
            "responses": {
                "200": {
                    "description": "The outcome of the action, or of its dry run.",
                    "content": {"application/json": {"schema": schema}},
                },
                **_refusals(_REFUSALS | _REFUSED_ACTIONS),
            },
        }
    }


def _operation(route: ApiRoute, schema: dict[str, Any]) -> dict[str, Any]:
    media = "text/event-stream" if route.is_stream else "application/json"
    return {
        "get": {
            "operationId": route.path.removeprefix("/"),
            "summary": route.summary,
            "parameters": [
                {
                    "name": parameter.name,
                    "in": "query",
                    "required": parameter.required,
                    "description": parameter.description,
                    "schema": dict(parameter.schema),
                }
                for parameter in route.parameters
            ],
            "responses": {
                "200": {"description": route.summary, "content": {media: {"schema": schema}}},
                **_refusals(_REFUSALS),
            },
        }
    }


def root() -> str:
    """The url of the API below the mount."""
    return f"/api/{VERSION}"
