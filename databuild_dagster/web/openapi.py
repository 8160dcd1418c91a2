"""The OpenAPI document of the API, made from its table of routes and the types of the answers."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from databuild_dagster.version import __version__
from databuild_dagster.web.api import ROUTES, VERSION
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


def openapi_document() -> dict[str, Any]:
    """The document, in OpenAPI 3.1."""
    schemas, components = msgspec.json.schema_components([route.answer for route in ROUTES], ref_template=_REF)
    paths = {route.path: _operation(route, schema) for route, schema in zip(ROUTES, schemas, strict=True)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "databuild",
            "version": __version__,
            "description": "The build state, read-only. Answers have the shapes of the command line's --json.",
        },
        # Relative to this document.
        "servers": [{"url": "."}],
        "paths": paths,
        "components": {"schemas": {**components, "Error": _ERROR}},
    }


def _operation(route: ApiRoute, schema: dict[str, Any]) -> dict[str, Any]:
    media = "text/event-stream" if route.is_stream else "application/json"
    refusals = {
        code: {
            "description": description,
            "content": {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}},
        }
        for code, description in _REFUSALS.items()
    }
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
                **refusals,
            },
        }
    }


def root() -> str:
    """The url of the API below the mount."""
    return f"/api/{VERSION}"
