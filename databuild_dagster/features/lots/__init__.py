"""Lots that arrive as files, arcs, parts, gap reports, and the copies that other tools read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from databuild_dagster.feature import Feature

if TYPE_CHECKING:
    from databuild_dagster.web.routes import ApiRoute, Page


def _routes() -> tuple[ApiRoute, ...]:
    from databuild_dagster.features.lots.pages import ROUTES

    return ROUTES


def _pages() -> tuple[Page, ...]:
    from databuild_dagster.features.lots.pages import PAGES

    return PAGES


FEATURE = Feature(
    name="lots",
    summary="Files of other programs become lots; gap reports; lots in parts; copies for other tools.",
    routes=_routes,
    pages=_pages,
)
