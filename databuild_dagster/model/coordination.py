"""What whoever asks for a ref gets, by the state of its canonical instance: a table with one row per state (SPEC 8.1).

The claim of a Dagster run, a new want and `check_build_coordination` read it, so they cannot disagree.
"""

from __future__ import annotations

from databuild_dagster.model.machine import Label
from databuild_dagster.model.states import InstanceState


class Answer(Label):
    """Exactly one of these for each ref that is asked for; their names are the kinds of the ledger."""

    #: This request builds it, or the orchestrator does so for it.
    BUILD = "built"
    #: An active delegation: somebody builds it, or waits for its inputs.
    JOIN = "joined"
    #: A historical delegation: it is live.
    REUSE = "reused"
    #: It failed, and stays so until somebody opens it.
    REFUSE = "refused"


class DelegationOutcome(Label):
    """What became of a delegation."""

    #: An active one, whose ref is neither live nor failed yet.
    WAITING = "waiting"
    LIVE = "live"
    FAILED = "failed"
    #: It was never served, and said so at once.
    REFUSED = "refused"
    #: The requester waits no longer: its time was up, or it was taken back.
    GIVEN_UP = "given up"


_S, _A, _O = InstanceState, Answer, DelegationOutcome

ANSWERS: dict[InstanceState | None, Answer] = {
    None: _A.BUILD,
    _S.TAINTED: _A.BUILD,
    _S.UP_FOR_RETRY: _A.BUILD,
    _S.BUILDING: _A.JOIN,
    _S.UPSTREAM_BUILDING: _A.JOIN,
    _S.LIVE: _A.REUSE,
    _S.FAILED: _A.REFUSE,
    _S.UPSTREAM_FAILED: _A.REFUSE,
}

#: The outcome a delegation is born with.
FIRST_OUTCOME = {_A.JOIN: _O.WAITING, _A.REUSE: _O.LIVE, _A.REFUSE: _O.REFUSED}

#: How the ref's becoming so ends an active delegation; in every other state it goes on waiting (SPEC 8.3).
LAST_OUTCOME = {_S.LIVE: _O.LIVE, _S.FAILED: _O.FAILED, _S.UPSTREAM_FAILED: _O.FAILED}

#: The delegation seed's words for it.
MESSAGES = {
    _A.JOIN: "Delegated to active build during execution",
    _A.REUSE: "Delegated to historical build - partition already available",
    _A.REFUSE: "Refused - its build has failed, taint it to have it built again",
}
