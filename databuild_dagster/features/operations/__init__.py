"""Jobs over every partition of a dataset, which survive the death of any process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from databuild_dagster.feature import Feature

if TYPE_CHECKING:
    from databuild_dagster.bindings.authoring.definers import Definer
    from databuild_dagster.bindings.declare.settings import Setting


def _settings() -> tuple[Setting[object], ...]:
    from databuild_dagster.features.operations.operation_types import SETTINGS

    return SETTINGS


def _definers() -> tuple[Definer, ...]:
    from databuild_dagster.features.operations.definers import DEFINERS

    return DEFINERS


FEATURE = Feature(
    name="operations",
    summary="Operations run over all partitions of a dataset.",
    settings=_settings,
    definers=_definers,
)
