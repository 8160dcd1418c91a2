"""What follows from a supposition, with nothing recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from databuild_dagster.feature import Feature

if TYPE_CHECKING:
    from databuild_dagster.web.routes import ApiRoute


def _routes() -> tuple[ApiRoute, ...]:
    from databuild_dagster.features.what_if.pages import ROUTES

    return ROUTES


FEATURE = Feature(
    name="what_if",
    summary="The consequences of a taint, of new code or of missing data are simulated.",
    routes=_routes,
)
