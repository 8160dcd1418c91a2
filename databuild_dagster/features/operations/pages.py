"""The urls and the pages of operations."""

from pathlib import Path
from typing import Any, Final

from databuild_dagster.features.operations.followed_operations import (
    FollowedOperations,
    OperationDetail,
    OperationsPage,
)
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.web.parameters import MAX_SEQ, number, text
from databuild_dagster.web.routes import ApiRoute, Ask, Page, or_error, parameters_of
from databuild_dagster.web.state import State

MAX_OPERATIONS: Final = 100
#: Ended operations of a page.
MAX_ENDED: Final = 30
TEMPLATES: Final = Path(__file__).parent / "templates"


def operations(state: State, dataset: str | None, before: int | None, limit: int) -> OperationsPage:
    """The operations on a dataset, or on all."""
    if dataset is not None:
        state.engine.queries.datasets.known(dataset)
    return state.made_once(_followed).operations(dataset, before, limit)


def operation(state: State, id: str, within: str | None, offset: int) -> OperationDetail:
    """An operation with its jobs."""
    return state.made_once(_followed).operation(OperationId.parse(id), within or "", offset)


def _followed(state: State) -> FollowedOperations:
    return FollowedOperations(state.engine)


ROUTES: Final = (
    ApiRoute(
        "/operations",
        "The running operations, and those that ended last.",
        operations,
        OperationsPage,
        (
            text("dataset", "Only operations on this asset."),
            number("before", "Only operations that ended before this event.", None, 1, MAX_SEQ),
            number("limit", "The number of running operations at most, and of ended ones.", 50, 1, MAX_OPERATIONS),
        ),
    ),
    ApiRoute(
        "/operation",
        "One operation with its jobs, and its report without rows of data.",
        operation,
        OperationDetail,
        (
            text("id", "The id of the operation.", required=True),
            text("within", "Only partitions whose keys begin so, in the grid."),
            number("offset", "The number of partitions before the first of the grid.", 0, 0, 10_000_000),
        ),
    ),
)


def _operations_page(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    found, error = or_error(lambda: ask("operations", limit=MAX_ENDED, **values))
    return {"values": values, "found": found, "error": error}


def _operation_page(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    return {"values": values, "operation": ask("operation", **values)}


PAGES: Final = (
    Page(
        "/operations",
        "operations.html",
        _operations_page,
        parameters_of(ROUTES, "/operations", without=("limit",)),
        entry="Operations",
        entry_after="/plan",
        folder=TEMPLATES,
    ),
    Page(
        "/operation",
        "operation.html",
        _operation_page,
        parameters_of(ROUTES, "/operation"),
        below="/operations",
        folder=TEMPLATES,
    ),
)
