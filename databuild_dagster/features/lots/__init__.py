"""Lots that arrive as files, arcs, parts, gap reports, and the copies that other tools read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from databuild_dagster.feature import Command, Feature

if TYPE_CHECKING:
    from databuild_dagster.bindings.orchestration.duties import Duty
    from databuild_dagster.data.keepers import OpenKeeper
    from databuild_dagster.shapes.checks import Check


def _duties() -> tuple[Duty, ...]:
    from databuild_dagster.features.lots.duties import DUTIES

    return DUTIES


def _checks() -> tuple[Check, ...]:
    from databuild_dagster.features.lots.checks import CHECKS

    return CHECKS


def _keeps() -> tuple[OpenKeeper, ...]:
    from databuild_dagster.features.lots.copy_keeper import open_copy_keeper

    return (open_copy_keeper,)


FEATURE = Feature(
    name="lots",
    summary="Files of other programs become lots; gap reports; lots in parts; copies for other tools.",
    duties=_duties,
    checks=_checks,
    commands=(
        Command(
            "adopt",
            "databuild_dagster.features.lots.commands.adopt:adopt",
            "Record existing Parquet files as partitions of ASSET.",
            section="Correct",
            after="resume",
        ),
        Command(
            "lot list",
            "databuild_dagster.features.lots.commands.lots:lots",
            "Count the lots of DATASET, or of all, by state.",
            section="By subject",
            after="log",
            group="List lots and gaps, and record lots that arrive.",
        ),
        Command(
            "lot gaps",
            "databuild_dagster.features.lots.commands.gaps:gaps",
            "Show which lots of DATASET are missing, and why.",
            section="By subject",
            after="list",
        ),
        Command(
            "lot arrive",
            "databuild_dagster.features.lots.commands.lot:arrive",
            "Record that LOT of DATASET arrived as Parquet files.",
            section="By subject",
            after="gaps",
        ),
        Command(
            "lot look",
            "databuild_dagster.features.lots.commands.lot:look",
            "Record the files that wait in landing folders.",
            section="By subject",
            after="arrive",
        ),
        Command(
            "arc list",
            "databuild_dagster.features.lots.commands.arc:list_arcs",
            "Count the lots of ARC, or of every arc, by state.",
            section="By subject",
            after="lot",
            group="List arcs: assets that subscribe to others.",
        ),
    ),
    keeps=_keeps,
)
