"""Iceberg and Delta tables of the live partitions, for other engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from databuild_dagster.feature import Command, Feature

if TYPE_CHECKING:
    from databuild_dagster.bindings.orchestration.duties import Duty


def _duties() -> tuple[Duty, ...]:
    from databuild_dagster.features.tables.duties import DUTIES

    return DUTIES


FEATURE = Feature(
    name="tables",
    summary="Datasets are published as Iceberg and Delta tables.",
    duties=_duties,
    commands=(
        Command(
            "publish",
            "databuild_dagster.features.tables.commands:publish",
            "Bring the table of DATASET up to date by hand.",
            section="Maintain",
            after="Maintain",
        ),
    ),
)
