"""Alerts about missed SLAs, and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from databuild_dagster.feature import Feature

if TYPE_CHECKING:
    from databuild_dagster.bindings.declare.settings import Setting


def _settings() -> tuple[Setting[object], ...]:
    from databuild_dagster.features.notices.settings import SETTINGS

    return SETTINGS


FEATURE = Feature(
    name="notices",
    summary="Alerts are sent for missed SLAs; metrics are shown and exported.",
    settings=_settings,
)
