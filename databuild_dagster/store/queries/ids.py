"""Ids in full or by their end, as tables print them (rule 2.3).

Ids of the same moment begin alike (UUIDv7), so their ends tell them apart.
"""

import re
from enum import Enum

from databuild_dagster.model.errors import LIKENESS_OF_IDS, NotFound, Refused, near_names
from databuild_dagster.model.wording import SHORT_ID, few_of
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.queries.asking import Asking

_FULL = 36
_ID = re.compile(rf"[0-9a-f-]{{{SHORT_ID},{_FULL}}}")
_IN_TEXT = re.compile(r"(?<!Dagster run )(?<![0-9a-f-])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f-])")
#: Enough of a beginning to be no other text. A person copies it from a page or a log.
_BEGINNING = re.compile(r"[0-9a-f]{4}[0-9a-f-]*")
#: Ids that a message about a beginning names.
_MAX_SHOWN = 2
#: Candidates that an error names, and the newest ids among which near ids are looked for.
_MAX_CANDIDATES = 5
_MAX_NEAR = 100


class IdKind(Enum):
    """The entity that an id names; the value is its name in messages."""

    WANT = "want or request"
    #: Also a Dagster run, and a launch.
    REQUEST = "request"
    JOB_RUN = "job run"
    INSTANCE = "instance"
    TAINT = "taint"


#: The column with the ids of each kind; the column of requests has an id several times.
_COLUMNS = {
    IdKind.WANT: (("wants", "want_id"), ("wants", "request_id")),
    IdKind.REQUEST: (
        ("wants", "request_id"),
        ("launches", "dagster_run_id"),
        ("launches", "launch_id"),
        ("delegations", "requester"),
    ),
    IdKind.JOB_RUN: (("job_runs", "job_run_id"),),
    IdKind.INSTANCE: (("instances", "uuid"),),
    IdKind.TAINT: (("taints", "taint_id"),),
}


class AmbiguousId(Refused):
    """{name!r} is the end of several ids of a {kind}: {candidates}."""

    hint = "Give more of its end, or the whole id."


def may_be_id(text: str) -> bool:
    """The text has the form of an id or of the end of an id."""
    return _ID.fullmatch(text) is not None


def short_id(id: str) -> str:
    """The end of an id, by which the command line knows it; a name that is no id is unchanged."""
    return id[-SHORT_ID:] if may_be_id(id) and len(id) == _FULL else id


def with_short_ids(text: str) -> str:
    """A sentence with the end of each id of ours; Dagster finds its runs by their whole ids."""
    return _IN_TEXT.sub(lambda found: short_id(found[0]), text)


class IdQueries(Asking):
    """Ids by their ends."""

    def full(self, kind: IdKind, text: str) -> str:
        """The id that a text names in full or by its last characters.

        An end is compared with every id of the kind. Raises `NotFound` with near ids, and `AmbiguousId`.
        """
        found = self._ids(kind, "=", text)
        if not found and may_be_id(text) and len(text) < _FULL:
            found = self._ids(kind, "LIKE", f"%{text}")
        if not found:
            # An end is like the ends of ids.
            names = [id[-max(len(text), 1) :] for id in self._newest(kind)]
            if not near_names(text, names, LIKENESS_OF_IDS) and _BEGINNING.fullmatch(text):
                self._refuse_beginning(kind, text)
            raise NotFound(kind=kind.value, name=text, names=names)
        if len(found) > 1:
            few = few_of(sorted(found), _MAX_CANDIDATES)
            raise AmbiguousId(kind=kind.value, name=text, candidates=few)
        return found.pop()

    def like(self, kind: IdKind, text: str, most: int) -> list[str]:
        """The ids that are a text, end with it, or begin with it: `most` of each column at most, in their order.

        A text that is no whole id is compared with every id of the kind.
        """
        is_whole = len(text) == _FULL
        condition, given = ("{0} = ?", [text]) if is_whole else ("{0} LIKE ? OR {0} LIKE ?", [f"%{text}", f"{text}%"])
        return sorted(
            {
                id
                for table, column in _COLUMNS[kind]
                for (id,) in self._all(
                    f"SELECT DISTINCT {column} FROM {PREFIX}{table} WHERE {condition.format(column)} LIMIT ?",
                    *given,
                    most,
                )
            }
        )

    def _refuse_beginning(self, kind: IdKind, text: str) -> None:
        """Raises `NotFound` with ids that begin with a text, if there are any."""
        begun = {
            id
            for table, column in _COLUMNS[kind]
            for (id,) in self._all(
                f"SELECT DISTINCT {column} FROM {PREFIX}{table} WHERE {column} LIKE ? LIMIT ?",
                f"{text}%",
                _MAX_SHOWN + 1,
            )
        }
        if begun:
            others = " and others" if len(begun) > _MAX_SHOWN else ""
            begins = f"It is the beginning of {', '.join(sorted(begun)[:_MAX_SHOWN])}{others}"
            raise NotFound(kind=kind.value, name=text, suggestion=f"{begins}: give the end of the id, or all of it.")

    def _ids(self, kind: IdKind, is_like: str, pattern: str) -> set[str]:
        """The ids of a kind that compare so with a pattern."""
        return {
            id
            for table, column in _COLUMNS[kind]
            for (id,) in self._all(f"SELECT DISTINCT {column} FROM {PREFIX}{table} WHERE {column} {is_like} ?", pattern)
        }

    def _newest(self, kind: IdKind) -> list[str]:
        """The newest ids of a kind, from the tables whose rows are numbered."""
        return [
            id
            for table, column in _COLUMNS[kind]
            if table != "delegations"
            for (id,) in self._all(f"SELECT {column} FROM {PREFIX}{table} ORDER BY id DESC LIMIT ?", _MAX_NEAR)
            if id is not None
        ]
