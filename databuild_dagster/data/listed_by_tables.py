"""The files that published tables list, or may list soon: a clean-up leaves them alone (rule 10.10).

A publisher reads the log, and commits its snapshot seconds later. So the data of an instance that left after the table's newest
snapshot may be in the next one, although readers of the dataset do not see it any longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final, Protocol

from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.refs import asset_of
from databuild_dagster.store.removals import Removable

#: Why such data stays.
AWAITED: Final = "its table is behind the log, so a publication that runs now may list its files"
#: Why it stays where no snapshot says how far a first publication is.
NEVER_PUBLISHED: Final = (
    "its table was never published, so a first publication may list its files; `databuild gc` may remove it after `databuild "
    "publish {asset}`, or after the next tick"
)


class TableFiles(Protocol):
    """The files that the published tables of datasets list. The methods raise a `DatabuildError` for a table that cannot be read."""

    def kept(self, asset: str, older_than_seconds: float) -> set[str]:
        """The files of the snapshots that `expire` leaves; empty for a dataset without a table."""

    def expire(self, asset: str, older_than_seconds: float) -> int:
        """Forget the snapshots that were replaced so long ago; returns their number."""

    def published_to(self, asset: str) -> int | None:
        """The event up to which the table is published, 0 before its first snapshot; None for a table of another store or none."""


def why_awaited(asset: str, published_to: int) -> str:
    """Why data that left after that event stays."""
    return AWAITED if published_to else NEVER_PUBLISHED.format(asset=asset)


def awaited(tables: TableFiles, found: Iterable[Removable]) -> dict[str, str]:
    """By uuid why instances stay that the next snapshot of their table may list; all of a table that cannot be read."""
    once_live = sorted((one for one in found if one.held.was_live), key=lambda one: asset_of(one.ref))
    why: dict[str, str] = {}
    for asset, of_asset in groupby(once_live, key=lambda one: asset_of(one.ref)):
        instances = list(of_asset)
        try:
            published_to = tables.published_to(asset)
        except DatabuildError:
            why |= {one.uuid: AWAITED for one in instances}
            continue
        if published_to is not None:
            left = [one.uuid for one in instances if one.held.left_seq > published_to]
            why |= dict.fromkeys(left, why_awaited(asset, published_to))
    return why
