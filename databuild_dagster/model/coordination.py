"""The answer to a request for a ref, by the state of its canonical instance, and the ends of delegations (rules 8.1, 8.3).

The claim of a Dagster run, a new want and `check_build_coordination` ask `answer_of`, so they cannot disagree.
"""

from databuild_dagster.model.machine import Label, Machine, Move
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState


class Answer(Label):
    """The answer to a request for a ref; the values are the kinds of the ledger."""

    #: This request builds it, or the orchestrator does so for it.
    BUILD = "built"
    #: An active delegation: a job run builds it, or waits for its inputs.
    JOIN = "joined"
    #: A historical delegation: it is live.
    REUSE = "reused"
    #: It failed, and a taint has to open it.
    REFUSE = "refused"


class DelegationOutcome(Label):
    """The outcome of a delegation."""

    #: An active delegation, whose ref is neither live nor failed yet.
    WAITING = "waiting"
    LIVE = "live"
    FAILED = "failed"
    #: It was refused at once.
    REFUSED = "refused"
    #: The requester stopped waiting: its TTL passed, or it was canceled.
    GIVEN_UP = "given up"


class DelegationCause(Label):
    """The causes of the start and the end of a delegation."""

    #: The answer that a request got.
    JOINED = "joined"
    REUSED = "reused"
    REFUSED = "refused"
    #: Its ref became live, or failed, by any job run (rule 8.3).
    REF_LIVE = "ref live"
    REF_FAILED = "ref failed"
    #: DelegationGivenUp, or the want that asked ended.
    GIVEN_UP = "given up"


_S, _A, _O, _C = InstanceState, Answer, DelegationOutcome, DelegationCause

#: A request that asks again has a new delegation in place of its old delegation, as a ref has a new instance.
DELEGATION = Machine[DelegationOutcome, DelegationCause](
    "delegation",
    [
        Move(None, _C.JOINED, _O.WAITING, "another job run builds the ref, or waits for its inputs"),
        Move(None, _C.REUSED, _O.LIVE, "the ref is live already"),
        Move(None, _C.REFUSED, _O.REFUSED, "the ref has failed; only a taint opens it"),
        Move(_O.WAITING, _C.REF_LIVE, _O.LIVE, "a job run made the ref live"),
        Move(_O.WAITING, _C.REF_FAILED, _O.FAILED, "the ref failed, or one of its inputs did"),
        Move(_O.WAITING, _C.GIVEN_UP, _O.GIVEN_UP, "the requester stopped waiting"),
    ],
    final=[_O.LIVE, _O.FAILED, _O.REFUSED, _O.GIVEN_UP],
)

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


def while_paused(answer: Answer, state: InstanceState | None) -> Answer:
    """The answer to a Dagster run for a paused ref (rule 6.13): a running build continues, and a new build does not begin."""
    goes_on = answer is Answer.REUSE or (answer is Answer.JOIN and state is InstanceState.BUILDING)
    return answer if goes_on else Answer.REFUSE


def answer_of(state: InstanceState | None, *, backs_off: bool) -> Answer:
    """The answer by a ref's canonical state; a ref whose next attempt is later is joined (rules 4.5, 6.8, 8.1)."""
    return _A.JOIN if backs_off and state is _S.UP_FOR_RETRY else ANSWERS[state]


def why_refused(ref: Ref, state: InstanceState | None, reason: str | None) -> str:
    """The reason of a refusal by a state."""
    return f"{ref} is {state.in_words if state else 'missing'}: {reason or 'its build failed'}"


#: The first outcome of a delegation, by its answer.
FIRST_OUTCOME = {
    answer: DELEGATION.next(None, cause)
    for answer, cause in ((_A.JOIN, _C.JOINED), (_A.REUSE, _C.REUSED), (_A.REFUSE, _C.REFUSED))
}

#: The cause by which a state of the ref ends an active delegation; in other states it waits on (rule 8.3).
ENDS_DELEGATION = {_S.LIVE: _C.REF_LIVE, _S.FAILED: _C.REF_FAILED, _S.UPSTREAM_FAILED: _C.REF_FAILED}

#: The messages of the answers.
MESSAGES = {
    _A.JOIN: "Delegated to active build during execution",
    _A.REUSE: "Delegated to historical build - partition already available",
    _A.REFUSE: "Refused - its build has failed, taint it to have it built again",
}
#: The message of a job run of which each ref was reused (rule 8.2).
SKIPPED_MESSAGE = "Job skipped - all target partitions already available"
