"""Alerts about missed SLAs, and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from databuild_dagster.feature import Command, Feature

if TYPE_CHECKING:
    from databuild_dagster.bindings.orchestration.duties import Duty


def _duties() -> tuple[Duty, ...]:
    from databuild_dagster.features.notices.duties import DUTIES

    return DUTIES


FEATURE = Feature(
    name="notices",
    summary="Alerts are sent for missed SLAs; metrics are shown and exported.",
    duties=_duties,
    commands=(
        Command(
            "ledger metrics",
            "databuild_dagster.features.notices.commands:metrics",
            "Show success rates, and builds and seconds saved.",
            section="By subject",
            after="list",
        ),
    ),
)
