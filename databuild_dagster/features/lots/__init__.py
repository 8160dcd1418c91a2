"""Lots that arrive as files, arcs, parts, gap reports, and the copies that other tools read."""

from databuild_dagster.feature import Feature

FEATURE = Feature(
    name="lots",
    summary="Files of other programs become lots; gap reports; lots in parts; copies for other tools.",
)
