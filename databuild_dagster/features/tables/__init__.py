"""Iceberg and Delta tables of the live partitions, for other engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from databuild_dagster.feature import Command, Feature

if TYPE_CHECKING:
    from databuild_dagster.bindings.orchestration.duties import Duty
    from databuild_dagster.data.keepers import OpenKeeper


def _duties() -> tuple[Duty, ...]:
    from databuild_dagster.features.tables.duties import DUTIES

    return DUTIES


def _keeps() -> tuple[OpenKeeper, ...]:
    from databuild_dagster.tables.keeping import open_published_files

    return (open_published_files,)


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
    keeps=_keeps,
)
