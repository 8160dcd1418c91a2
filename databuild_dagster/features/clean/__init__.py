"""Data that no reader needs is removed: replaced instances, leftovers, orphans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from databuild_dagster.feature import Command, Feature

if TYPE_CHECKING:
    from databuild_dagster.shapes.checks import Check


def _checks() -> tuple[Check, ...]:
    from databuild_dagster.features.clean.checks import CHECKS

    return CHECKS


FEATURE = Feature(
    name="clean",
    summary="`databuild gc` removes data that no reader needs.",
    checks=_checks,
    commands=(
        Command(
            "gc",
            "databuild_dagster.features.clean.commands:gc",
            "Remove replaced data, or what failed attempts left.",
            section="Maintain",
            after="Maintain",
        ),
    ),
)
