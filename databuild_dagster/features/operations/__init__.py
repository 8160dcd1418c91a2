"""Jobs over every partition of a dataset, which survive the death of any process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from databuild_dagster.feature import Feature

if TYPE_CHECKING:
    from databuild_dagster.web.action import Action
    from databuild_dagster.web.routes import ApiRoute, Page


def _routes() -> tuple[ApiRoute, ...]:
    from databuild_dagster.features.operations.pages import ROUTES

    return ROUTES


def _pages() -> tuple[Page, ...]:
    from databuild_dagster.features.operations.pages import PAGES

    return PAGES


def _actions() -> tuple[Action, ...]:
    from databuild_dagster.features.operations.actions import ACTIONS

    return ACTIONS


FEATURE = Feature(
    name="operations",
    summary="Operations run over all partitions of a dataset.",
    routes=_routes,
    pages=_pages,
    actions=_actions,
)
