"""The lag of published tables for a command. Dagster has the cursors of the ticks, and is imported only where a dataset is published."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING

from databuild_dagster.cli.state import the_instance
from databuild_dagster.model.datasets import DatasetSpec

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from databuild_dagster.features.tables.table_lags import TableLag


class TableLags:
    """Answers as often as it is asked, over one Dagster instance."""

    def of(self, datasets: Collection[DatasetSpec]) -> list[TableLag]:
        if not any(spec.table for spec in datasets):
            return []
        from databuild_dagster.features.tables.table_lags import table_lags

        return table_lags(self._instance, datasets)

    @cached_property
    def _instance(self) -> DagsterInstance:
        return the_instance()
