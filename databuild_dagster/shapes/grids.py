"""Partitions with known marks as a grid of cells, laid out as a calendar where their keys are dates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Final

from databuild_dagster.model.refs import make_ref
from databuild_dagster.shapes.calendar import MAX_CELLS, CellShape, GridShape, grid_of, level_of
from databuild_dagster.shapes.marks import mark_of_many

#: Of more partitions, a grid has pages and no groups: each group would cost a look at all of them.
MAX_GROUPED: Final = 150_000


class Grid:
    """The partitions of one asset, whose marks change."""

    def __init__(self, asset: str, keys: Iterable[str]) -> None:
        self._asset = asset
        self._keys = list(keys)

    def shape(self, mark_of: Callable[[str], str], *, within: str = "", offset: int = 0) -> GridShape:
        """The cells of a part: one for each partition, or for each group of them if they are too many."""
        keys = [key for key in self._keys if key.startswith(within)] if within else self._keys
        level = self._level if not within else _level(keys, len(within))
        if level is None:
            cells = [self._cell(key, mark_of(key)) for key in keys[offset : offset + MAX_CELLS]]
        else:
            cells = _grouped(keys, level, mark_of)
        return grid_of(cells, within, len(keys), offset, is_grouped=level is not None)

    @cached_property
    def _level(self) -> int | None:
        return _level(self._keys, 0)

    def _cell(self, key: str, mark: str) -> CellShape:
        return {
            "title": key or self._asset,
            "mark": mark,
            "n": 1,
            "ref": make_ref(self._asset, key or None),
            "counts": {},
        }


def _level(keys: list[str], n_within: int) -> int | None:
    return level_of(keys, n_within) if MAX_CELLS < len(keys) <= MAX_GROUPED else None


def _grouped(keys: list[str], level: int, mark_of: Callable[[str], str]) -> list[CellShape]:
    groups: dict[str, dict[str, int]] = {}
    beginnings = (key[:level] for key in keys)
    for (beginning, mark), n in Counter(zip(beginnings, map(mark_of, keys), strict=True)).items():
        groups.setdefault(beginning, {})[mark] = n
    return [
        {"title": beginning, "mark": mark_of_many(counts), "n": sum(counts.values()), "ref": None, "counts": counts}
        for beginning, counts in groups.items()
    ]
