"""Environments as the command line, the API and the pages show them (rules 15)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from databuild_dagster.data.environment import environment_of
from databuild_dagster.data.home import DATABASE_NAME, sqlite_url
from databuild_dagster.features.environments.records import Opened, opening_of
from databuild_dagster.model.records import Column, Time, time_of
from databuild_dagster.store.errors import StoreUnusable
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import Store


class EnvironmentState(StrEnum):
    """Where an environment is in its life."""

    #: `databuild env create` did not come to its end.
    OPENING = "opening"
    OPEN = "open"
    #: Its base is not where it was, and it names files there.
    MOVED = "moved"
    #: It is being removed.
    CLOSING = "closing"
    #: Its time has passed: it borrows nothing more.
    OVER = "over"


class EnvironmentView(msgspec.Struct, frozen=True):
    """An environment of a base. `borrowed`, `built` and `bytes` are null where its log is not there or cannot be read."""

    name: Annotated[str, Column()]
    state: Annotated[EnvironmentState, Column()]
    opened_by: Annotated[str, Column(wide_only=True)]
    opened_at: Annotated[Time, Column("opened")]
    #: The seq of the last event of the base that it sees, and its time.
    pin: int
    pinned_at: Annotated[Time | None, Column("pinned", wide_only=True)]
    keep_until: Annotated[Time, Column()]
    borrowed: Annotated[int | None, Column()]
    built: Annotated[int | None, Column()]
    #: Written by what was built.
    bytes: Annotated[int | None, Column()]


class Figures(NamedTuple):
    """The numbers of instances that an environment has borrowed and built, and the bytes that the latter wrote."""

    borrowed: int
    built: int
    bytes: int


class EnvironmentFigures:
    """The figures of environments, read again when the log of an environment has changed."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[object, Figures | None]] = {}

    def of(self, opened: Opened) -> Figures | None:
        """None for an environment that was not opened to its end. Raises `StoreUnusable`."""
        stamp = (opened.id, *_stamps(Path(opened.home, DATABASE_NAME)))
        kept, figures = self._kept.get(opened.home, (None, None))
        if kept != stamp:
            figures = figures_of(opened)
            self._kept[opened.home] = stamp, figures
        return figures


def figures_of(opened: Opened) -> Figures | None:
    """Looks at every instance of the environment; None for an environment that was not opened to its end. Raises `StoreUnusable`."""
    home = Path(opened.home)
    if environment_of(home) is None or not (home / DATABASE_NAME).exists():
        return None
    store = Store(sqlite_url(home))
    try:
        opening = opening_of(store)
        is_open = opening is not None and opening.id == opened.id
        return Figures(*Queries(store).instances.borrowed_and_built()) if is_open else None
    finally:
        store.close()


def views_of(
    opened: Mapping[str, Opened], base: Queries, now: float, figures: EnvironmentFigures
) -> dict[str, EnvironmentView]:
    """Environments of a base by name, as they are now."""
    return {name: _view_of(one, base.events.time_of(one.pin), now, figures) for name, one in opened.items()}


def _view_of(opened: Opened, pinned_at: float | None, now: float, figures: EnvironmentFigures) -> EnvironmentView:
    try:
        found = figures.of(opened)
        is_left = found is None and opened.is_of_this_host
    except StoreUnusable:
        # A broken environment hides no other.
        found, is_left = None, False
    return EnvironmentView(
        name=opened.name,
        state=_state_of(opened, now, is_left=is_left),
        opened_by=opened.opened_by,
        opened_at=Time(opened.opened_at),
        pin=opened.pin,
        pinned_at=time_of(pinned_at),
        keep_until=Time(opened.keep_until),
        borrowed=None if found is None else found.borrowed,
        built=None if found is None else found.built,
        bytes=None if found is None else found.bytes,
    )


def _state_of(opened: Opened, now: float, *, is_left: bool) -> EnvironmentState:
    if opened.is_closing:
        return EnvironmentState.CLOSING
    if now >= opened.keep_until:
        return EnvironmentState.OVER
    if is_left:
        return EnvironmentState.MOVED if opened.is_moved else EnvironmentState.OPENING
    return EnvironmentState.OPEN


def _stamps(database: Path) -> list[tuple[int, int] | None]:
    """Of the file and of its log of writes, which change with each write."""
    found: list[tuple[int, int] | None] = []
    for path in (database, database.with_name(f"{database.name}-wal")):
        try:
            status = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((status.st_mtime_ns, status.st_size))
    return found
