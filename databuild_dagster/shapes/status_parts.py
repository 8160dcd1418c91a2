"""Parts of `databuild status` that features bring."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from databuild_dagster.model.datasets import DatasetSpec

if TYPE_CHECKING:
    from dagster import DagsterInstance


class Shown(NamedTuple):
    """A part as the answer has it."""

    #: For JSON.
    shape: object
    #: For people; none where all is well.
    sentences: list[str]


@dataclass(frozen=True)
class StatusPart:
    """What a feature says of all datasets."""

    #: Its field of the JSON answer.
    field: str
    #: Dagster is imported when the instance is called.
    show: Callable[[Collection[DatasetSpec], Callable[[], DagsterInstance]], Shown]
