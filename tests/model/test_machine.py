"""A badly drawn table does not import, and a move that is not drawn does not happen (rules 3.5, 4.3, 6.1)."""

from __future__ import annotations

import ast
from enum import Enum
from pathlib import Path

import pytest

from databuild_dagster.model import machine as machine_module
from databuild_dagster.model.coordination import DELEGATION, DelegationCause, DelegationOutcome
from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.machine import Machine, Move
from databuild_dagster.model.operations.states import (
    JOB,
    OPERATION,
    JobCause,
    JobState,
    OperationCause,
    OperationState,
)
from databuild_dagster.model.states import (
    INSTANCE,
    JOB_RUN,
    WANT,
    InstanceCause,
    InstanceState,
    JobRunCause,
    JobRunState,
    WantCause,
    WantState,
)

DATABASES = ()
MODEL = Path(machine_module.__file__).parent


class Lamp(Enum):
    OFF = "off"
    ON = "on"


class Hand(Enum):
    MOUNTS = "mounts"
    PRESSES = "presses"


MOUNTED = Move(None, Hand.MOUNTS, Lamp.OFF, "it hangs")
SWITCHED_ON = Move(Lamp.OFF, Hand.PRESSES, Lamp.ON, "it is dark")
SWITCHED_OFF = Move(Lamp.ON, Hand.PRESSES, Lamp.OFF, "it is late")


def test_a_well_drawn_table_is_looked_up():
    lamp = Machine("lamp", [MOUNTED, SWITCHED_ON, SWITCHED_OFF])

    assert lamp.next(None, Hand.MOUNTS) is Lamp.OFF
    assert lamp.next(Lamp.OFF, Hand.PRESSES) is Lamp.ON


def test_two_rows_for_one_case_do_not_import():
    with pytest.raises(ValueError, match="two rows for off on presses"):
        Machine("lamp", [MOUNTED, SWITCHED_ON, Move(Lamp.OFF, Hand.PRESSES, Lamp.OFF, "it is broken"), SWITCHED_OFF])


def test_a_state_that_nothing_leads_to_does_not_import():
    with pytest.raises(ValueError, match="nothing leads to on"):
        Machine("lamp", [MOUNTED, SWITCHED_OFF], final=[Lamp.OFF])


def test_a_state_without_a_way_out_must_be_said_to_be_final():
    with pytest.raises(ValueError, match="no way out of on"):
        Machine("lamp", [MOUNTED, SWITCHED_ON])
    assert Machine("lamp", [MOUNTED, SWITCHED_ON], final=[Lamp.ON]).final == {Lamp.ON}


def test_a_final_state_is_not_left():
    with pytest.raises(ValueError, match="final states are left: on"):
        Machine("lamp", [MOUNTED, SWITCHED_ON, SWITCHED_OFF], final=[Lamp.ON])


# Rule 4.3 by hand, so that the table is compared with something that is not itself.
_I, _IC = InstanceState, InstanceCause
INSTANCE_MOVES = {
    (None, _IC.BUFFERED): _I.BUILDING,
    (None, _IC.ARRIVED): _I.LIVE,
    (None, _IC.BORROWED): _I.LIVE,
    (None, _IC.PROMOTED): _I.LIVE,
    (_I.BUILDING, _IC.SUCCEEDED): _I.LIVE,
    (_I.BUILDING, _IC.GAVE_UP): _I.FAILED,
    (_I.BUILDING, _IC.MISSED_UNBUILDABLE): _I.FAILED,
    (_I.BUILDING, _IC.ON_CYCLE): _I.FAILED,
    (_I.BUILDING, _IC.STOPPED): _I.FAILED,
    (_I.BUILDING, _IC.TOO_MANY_MISSES): _I.FAILED,
    (_I.BUILDING, _IC.MISSED): _I.UPSTREAM_BUILDING,
    (_I.BUILDING, _IC.WILL_RETRY): _I.UP_FOR_RETRY,
    (_I.BUILDING, _IC.CANCELED): _I.UP_FOR_RETRY,
    (_I.BUILDING, _IC.OTHERS_MISSED): _I.UP_FOR_RETRY,
    (_I.BUILDING, _IC.MISSED_BUT_LIVE): _I.UP_FOR_RETRY,
    (_I.BUILDING, _IC.MISSED_FAILED): _I.UPSTREAM_FAILED,
    (_I.UPSTREAM_BUILDING, _IC.DEPS_LIVE): _I.UP_FOR_RETRY,
    (_I.UPSTREAM_BUILDING, _IC.UNWANTED): _I.UP_FOR_RETRY,
    (_I.UPSTREAM_BUILDING, _IC.DEP_FAILED): _I.UPSTREAM_FAILED,
    (_I.UPSTREAM_BUILDING, _IC.ON_CYCLE): _I.FAILED,
    (_I.UPSTREAM_FAILED, _IC.REPAIRED): _I.UP_FOR_RETRY,
    (_I.LIVE, _IC.TAINTED): _I.TAINTED,
    (_I.FAILED, _IC.TAINTED): _I.TAINTED,
    (_I.UPSTREAM_FAILED, _IC.TAINTED): _I.TAINTED,
    (_I.TAINTED, _IC.UNTAINTED): _I.LIVE,
    (_I.TAINTED, _IC.REVERTED): _I.LIVE,
    (_I.TAINTED, _IC.RETURNED): _I.LIVE,
}

# Rule 6.1.
_J, _JC = JobRunState, JobRunCause
JOB_RUN_MOVES = {
    (None, _JC.BUFFERED): _J.QUEUED,
    (None, _JC.SKIPPED): _J.SKIPPED,
    (None, _JC.ARRIVED): _J.SUCCEEDED,
    (None, _JC.BORROWED): _J.SUCCEEDED,
    (None, _JC.PROMOTED): _J.SUCCEEDED,
    (_J.QUEUED, _JC.STARTED): _J.RUNNING,
    (_J.QUEUED, _JC.DEP_MISSED): _J.DEP_MISSED,
    (_J.QUEUED, _JC.CANCELED): _J.CANCELED,
    (_J.QUEUED, _JC.LOST): _J.LOST,
    (_J.RUNNING, _JC.SUCCEEDED): _J.SUCCEEDED,
    (_J.RUNNING, _JC.DEP_MISSED): _J.DEP_MISSED,
    (_J.RUNNING, _JC.FAILED): _J.FAILED,
    (_J.RUNNING, _JC.CANCELED): _J.CANCELED,
    (_J.RUNNING, _JC.LOST): _J.LOST,
}

# Rules 5.1-5.5, 6.10.
_W, _WC = WantState, WantCause
WANT_MOVES = {
    (None, _WC.CREATED): _W.NEW,
    (_W.NEW, _WC.REFS_IDLE): _W.IDLE,
    (_W.NEW, _WC.REFS_BUILDING): _W.BUILDING,
    (_W.NEW, _WC.REFS_UPSTREAM_BUILDING): _W.UPSTREAM_BUILDING,
    (_W.NEW, _WC.REFS_LIVE): _W.SUCCESSFUL,
    (_W.NEW, _WC.REFS_FAILED): _W.FAILED,
    (_W.NEW, _WC.REFS_UPSTREAM_FAILED): _W.UPSTREAM_FAILED,
    (_W.IDLE, _WC.REFS_BUILDING): _W.BUILDING,
    (_W.IDLE, _WC.REFS_LIVE): _W.SUCCESSFUL,
    (_W.BUILDING, _WC.REFS_IDLE): _W.IDLE,
    (_W.BUILDING, _WC.REFS_UPSTREAM_BUILDING): _W.UPSTREAM_BUILDING,
    (_W.BUILDING, _WC.REFS_LIVE): _W.SUCCESSFUL,
    (_W.BUILDING, _WC.REFS_FAILED): _W.FAILED,
    (_W.BUILDING, _WC.REFS_UPSTREAM_FAILED): _W.UPSTREAM_FAILED,
    (_W.UPSTREAM_BUILDING, _WC.REFS_IDLE): _W.IDLE,
    (_W.UPSTREAM_BUILDING, _WC.REFS_BUILDING): _W.BUILDING,
    (_W.UPSTREAM_BUILDING, _WC.REFS_FAILED): _W.FAILED,
    (_W.UPSTREAM_BUILDING, _WC.REFS_UPSTREAM_FAILED): _W.UPSTREAM_FAILED,
    (_W.SUCCESSFUL, _WC.REOPENED): _W.IDLE,
    **{(state, _WC.CANCELED): _W.CANCELED for state in (_W.IDLE, _W.BUILDING, _W.UPSTREAM_BUILDING)},
    **{(state, _WC.EXPIRED): _W.EXPIRED for state in (_W.IDLE, _W.BUILDING, _W.UPSTREAM_BUILDING)},
}

# Rules 8.1, 8.3.
_D, _DC = DelegationOutcome, DelegationCause
DELEGATION_MOVES = {
    (None, _DC.JOINED): _D.WAITING,
    (None, _DC.REUSED): _D.LIVE,
    (None, _DC.REFUSED): _D.REFUSED,
    (_D.WAITING, _DC.REF_LIVE): _D.LIVE,
    (_D.WAITING, _DC.REF_FAILED): _D.FAILED,
    (_D.WAITING, _DC.GIVEN_UP): _D.GIVEN_UP,
}

# Rules 9.3, 9.6.
_O, _OC = OperationState, OperationCause
OPERATION_MOVES = {
    (None, _OC.STARTED): _O.RUNNING,
    (_O.RUNNING, _OC.ALL_SUCCEEDED): _O.SUCCESS,
    (_O.RUNNING, _OC.JOB_FAILED): _O.FAILED,
    (_O.RUNNING, _OC.CANCELED): _O.CANCELED,
    (_O.RUNNING, _OC.ENDED_BY_NEWER_CODE): _O.UNREADABLE,
}

# Rules 9.5, I9.
_B, _BC = JobState, JobCause
JOB_MOVES = {
    (None, _BC.STARTED): _B.FREE,
    (_B.FREE, _BC.TAKEN): _B.TAKEN,
    (_B.TAKEN, _BC.ADOPTED): _B.TAKEN,
    (_B.RELEASED, _BC.ADOPTED): _B.TAKEN,
    (_B.TAKEN, _BC.RELEASED): _B.RELEASED,
    (_B.TAKEN, _BC.GIVEN_BACK): _B.FREE,
    (_B.TAKEN, _BC.SUCCEEDED): _B.SUCCESS,
    (_B.TAKEN, _BC.FAILED): _B.FAILED,
}

MACHINES = [
    (INSTANCE, InstanceState, InstanceCause, INSTANCE_MOVES),
    (JOB_RUN, JobRunState, JobRunCause, JOB_RUN_MOVES),
    (WANT, WantState, WantCause, WANT_MOVES),
    (DELEGATION, DelegationOutcome, DelegationCause, DELEGATION_MOVES),
    (OPERATION, OperationState, OperationCause, OPERATION_MOVES),
    (JOB, JobState, JobCause, JOB_MOVES),
]
PAIRS = [
    pytest.param(machine, moves, state, cause, id=f"{machine.name}-{state.value if state else 'birth'}-{cause.value}")
    for machine, states, causes, moves in MACHINES
    for state in [None, *states]
    for cause in causes
]


@pytest.mark.parametrize(("machine", "moves", "state", "cause"), PAIRS)
def test_every_state_takes_exactly_the_causes_that_the_spec_gives_it(machine, moves, state, cause):
    """Rules 4.3, 5.1-5.5, 6.1, 8.3, 9.5, 9.6"""
    expected = moves.get((state, cause))

    if expected is None:
        with pytest.raises(IllegalMove, match="an-entity"):
            machine.next(state, cause, entity="an-entity", seq=7)
    else:
        assert machine.next(state, cause) is expected


def test_an_illegal_move_names_entity_seq_state_and_cause():
    """Rule 3.5: an impossibility stops at once, with all that is known of it."""
    with pytest.raises(IllegalMove, match=r"seq 42.*instance 1234 of sales@1.*UpForRetry.*succeeded"):
        INSTANCE.next(_I.UP_FOR_RETRY, _IC.SUCCEEDED, entity="1234 of sales@1", seq=42)


@pytest.mark.parametrize("state", [_I.UP_FOR_RETRY, _I.TAINTED])
def test_no_instance_ever_goes_back_to_building(state):
    """Rule 4.3: a new job run makes a new instance."""
    assert _I.BUILDING not in {move.to_state for move in INSTANCE if move.from_state is state}


@pytest.mark.parametrize("machine", [machine for machine, *_ in MACHINES], ids=lambda machine: machine.name)
def test_every_row_says_why(machine):
    assert all(move.why for move in machine)


def test_only_the_folding_sets_a_state_and_records_a_move():
    """Rule 3.2: no other module of the model changes the state of a row, so none changes it without its table."""
    writers = set()
    for path in MODEL.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            sets_a_state = isinstance(node, ast.Attribute) and node.attr == "state" and isinstance(node.ctx, ast.Store)
            if sets_a_state or (isinstance(node, ast.Attribute) and node.attr == "record_move"):
                writers.add(path.relative_to(MODEL).as_posix())

    # A ref shows the state of its canonical instance, which has moved by then.
    assert writers == {"fold/folding.py"}
