"""The subjects that are set aside, with their reasons (rule 11.7)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from databuild_dagster.model.set_aside import Subject
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import PREFIX, one_of
from databuild_dagster.store.queries.asking import Asking
from databuild_dagster.store.selection import Selection


class Aside(NamedTuple):
    """A subject that is set aside."""

    kind: Subject
    name: str
    location: str
    reason: str
    #: The time at which this reason began.
    since: float


_ASIDE = Selection(Aside, "s")
_FROM = f"FROM {PREFIX}set_aside s WHERE s.reason IS NOT NULL"
#: By the index of those that are set aside now.
_NOW = "AND s.name > ''"
#: Mostly there is none, and this takes a fifth of the time of a query with a list of names.
_ANY = f"SELECT 1 {_FROM} {_NOW} LIMIT 1"
_SUBJECTS = {subject.value: subject for subject in Subject}


class AsideQueries(Asking):
    """Subjects that are set aside."""

    def set_aside(self) -> list[Aside]:
        """All, the oldest first."""
        return _ASIDE.rows(self._all(f"SELECT {_ASIDE.columns} {_FROM} {_NOW} ORDER BY s.since, s.name"))

    def reasons(self, location: str) -> dict[str, tuple[Subject, str]]:
        """The kind and the reason of each subject of a location, by name. Each tick reads them."""
        sql = f"SELECT s.name, s.kind, s.reason {_FROM} {_NOW} AND s.location = ?"
        return {name: (_SUBJECTS[kind], reason) for name, kind, reason in self._all(sql, location)}

    def set_aside_of_boundary(self, asset: str) -> list[Aside]:
        """Its lots, and the files for no lot, by name."""
        kinds = one_of((Subject.LOT, Subject.FILE))
        sql = f"SELECT {_ASIDE.columns} {_FROM} AND s.kind IN {kinds} AND substr(s.name, 1, ?) = ? ORDER BY s.name"
        return _ASIDE.rows(self._all(sql, len(asset) + 1, asset + "@"))

    def asides_of(self, names: Iterable[str]) -> list[Aside]:
        """Those of these names, in any location."""
        if not self._all(_ANY):
            return []
        sql = f"SELECT {_ASIDE.columns} {_FROM} AND s.name IN (SELECT value FROM json_each(?)) ORDER BY s.since, s.name"
        return _ASIDE.rows(self._all(sql, Keys(names)))
