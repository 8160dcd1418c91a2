"""Receipts of instances, the differences of two, and samples of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from databuild_dagster.feature import Feature

if TYPE_CHECKING:
    from databuild_dagster.web.routes import ApiRoute, Page


def _routes() -> tuple[ApiRoute, ...]:
    from databuild_dagster.features.compare.pages import ROUTES

    return ROUTES


def _pages() -> tuple[Page, ...]:
    from databuild_dagster.features.compare.pages import PAGES

    return PAGES


FEATURE = Feature(
    name="compare",
    summary="Receipts, differences of two instances, samples of rows.",
    routes=_routes,
    pages=_pages,
)
