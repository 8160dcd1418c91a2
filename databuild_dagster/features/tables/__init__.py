"""Iceberg and Delta tables of the live partitions, for other engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from databuild_dagster.feature import Command, Feature

if TYPE_CHECKING:
    from databuild_dagster.bindings.orchestration.duties import Duty
    from databuild_dagster.data.keepers import OpenKeeper
    from databuild_dagster.shapes.checks import Check
    from databuild_dagster.shapes.measures import Measure
    from databuild_dagster.shapes.status_parts import StatusPart


def _duties() -> tuple[Duty, ...]:
    from databuild_dagster.features.tables.duties import DUTIES

    return DUTIES


def _checks() -> tuple[Check, ...]:
    from databuild_dagster.features.tables.checks import CHECKS

    return CHECKS


def _status_parts() -> tuple[StatusPart, ...]:
    from databuild_dagster.features.tables.status_parts import STATUS_PARTS

    return STATUS_PARTS


def _measures() -> tuple[Measure, ...]:
    from databuild_dagster.features.tables.measures import MEASURES

    return MEASURES


def _keeps() -> tuple[OpenKeeper, ...]:
    from databuild_dagster.tables.keeping import open_published_files

    return (open_published_files,)


FEATURE = Feature(
    name="tables",
    summary="Datasets are published as Iceberg and Delta tables.",
    duties=_duties,
    checks=_checks,
    status_parts=_status_parts,
    measures=_measures,
    commands=(
        Command(
            "publish",
            "databuild_dagster.features.tables.commands:publish",
            "Bring the table of DATASET up to date by hand.",
            section="Maintain",
            after="Maintain",
        ),
    ),
    keeps=_keeps,
)
