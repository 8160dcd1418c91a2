"""The outages in `databuild status`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from databuild_dagster.cli.state import the_engine
from databuild_dagster.features.outages.behind import outages_with_refs
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.shapes.contributions import Shown, StatusPart

if TYPE_CHECKING:
    from dagster import DagsterInstance


def _outages(datasets: Collection[DatasetSpec], instance: Callable[[], DagsterInstance]) -> Shown:
    found = outages_with_refs(the_engine())
    return Shown([outage.shape for outage in found], [outage.sentence for outage in found])


STATUS_PARTS = (StatusPart("outages", _outages),)
