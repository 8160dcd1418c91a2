"""The pages that look closer: two instances compared, a receipt, a few rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from databuild_dagster.model.refs import asset_of
from databuild_dagster.shapes.bounded import BoundedInstance
from databuild_dagster.shapes.differences import one_before
from databuild_dagster.web.routes import Ask

#: Instances of a receipt that a page shows; the API has more.
MAX_ENTRIES: Final = 100


def diff_page(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    """Two instances side by side."""
    found = ask("diff", **values)
    return {"diff": found, "dataset": asset_of(found["b"]["ref"])}


def receipt_page(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    """What an instance was made of."""
    found = ask("receipt", instance=values["instance"], limit=MAX_ENTRIES)
    return {"receipt": found, "dataset": asset_of(found["ref"])}


def sample_page(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    """A few rows."""
    found = ask("sample", ref=values["ref"])
    return {"sample": found, "dataset": asset_of(found["ref"])}


def pair_to_compare(history: Sequence[BoundedInstance], canonical: str | None) -> tuple[str, str] | None:
    """The instances that the page of a partition offers to compare: the canonical or newest one, and the one before it."""
    if len(history) < 2:
        return None
    known = [(instance["uuid"], instance["live_since"] is not None) for instance in history]
    second = canonical if canonical in dict(known[1:]) else known[-1][0]
    first = one_before(known, second)
    return None if first is None else (first, second)
