"""The refs that failed by themselves, and how many refs wait for each (rule 6.15)."""

from __future__ import annotations

from typing import Final, TypedDict

from databuild_dagster.engine.why.first_failures import FirstFailure
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.wording import one_line
from databuild_dagster.store.queries.queries import Queries

#: Failures that are named.
MAX_NAMED: Final = 20


class FailureShape(TypedDict):
    """A ref that failed by itself, and the number of refs that failed because of it; 10,001 for more than 10,000."""

    ref: Ref
    why: str
    n_waiting: int


class FailuresShape(TypedDict):
    """The newest failures that are not repaired."""

    failures: list[FailureShape]
    #: All that are not repaired, those above among them; 10,001 for more than 10,000.
    n: int


def newest_failures(queries: Queries) -> FailuresShape:
    """The refs that failed by themselves and are failed now, the last one first."""
    n, found = queries.failed_first(MAX_NAMED)
    named = [
        FirstFailure(ref, one_line(why or "its build failed"), queries.n_failed_because_of(ref)) for ref, why in found
    ]
    return {
        "failures": [{"ref": one.ref, "why": one.why, "n_waiting": one.n_waiting} for one in named],
        "n": n,
    }
