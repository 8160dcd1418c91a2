"""The status of the answer to each error."""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException

from databuild_dagster.bindings.registry.instance import UnsupportedInstance
from databuild_dagster.model.errors import (
    CommandIdUsed,
    Conflict,
    DatabuildError,
    NotFound,
    Refused,
    UnknownAsset,
    UnknownPartition,
)
from databuild_dagster.store.errors import StoreUnusable
from databuild_dagster.web.refusals import ActionRefused


def status_of(error: Exception) -> int:
    match error:
        case HTTPException(status_code=status):
            return status
        case NotFound() | UnknownAsset() | UnknownPartition():
            return HTTPStatus.NOT_FOUND
        case ActionRefused():
            return error.status
        case Conflict() | CommandIdUsed():
            return HTTPStatus.CONFLICT
        case StoreUnusable():
            return HTTPStatus.SERVICE_UNAVAILABLE
        case Refused():
            return HTTPStatus.BAD_REQUEST
        case DatabuildError() | UnsupportedInstance():
            return HTTPStatus.SERVICE_UNAVAILABLE
        case _:
            return HTTPStatus.INTERNAL_SERVER_ERROR
