"""The writes of an invoke on an operation, or on a job of it (rules 9.5, 9.6)."""

from __future__ import annotations

import pytest

from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.meta_storage import Draft, Entry
from databuild_dagster.model.operations import invokes
from databuild_dagster.model.operations.keys import DatasetKeys, OperationId
from databuild_dagster.model.operations.records import (
    FORMAT,
    RUNNING,
    ArgRecord,
    Ended,
    Lease,
    Mark,
    Unclean,
    job_state,
    lease_of,
    mark_of,
    run_ops_value,
    to_bytes,
)
from databuild_dagster.model.operations.states import JOB, JobCause, JobState, OperationState

DATABASES = ()


def test_the_end_of_an_operation_removes_its_own_keys_and_no_others():
    """Rules 9.2, 9.6: instance 1 never matches 10."""
    first, tenth = (OperationId("d", "t", None, instance) for instance in (1, 10))
    run_ops = Entry(DatasetKeys.of("d").run_ops, run_ops_value([first, tenth]), 1)
    values = {key: RUNNING for id in (first, tenth) for key in (id.arg, id.state, *id.job("p"))} | {
        run_ops.key: run_ops.value
    }
    draft = Draft(lambda key: Entry(key, values[key], 1) if key in values else None, revision=2)
    ended = Ended(FORMAT, OperationState.SUCCESS, ArgRecord(FORMAT, 1, None, 0.0), 1, 1, {}, 1.0)

    answers = [draft.run(statement) for statement in invokes.finish(first, run_ops, ended, {})]

    left = {key for key in values if draft.look(key).value is not None}
    assert answers[-1] is True
    assert left == {run_ops.key, tenth.arg, tenth.state, *tenth.job("p")} | {first.job("p").unclean}


ID = OperationId("d", "t", None, 1)
JOB_KEYS = ID.job("p")
MINE = Lease("token", "executor", "holder", 0.0)
GIVEN_UP = Lease("token", "executor", "holder", 0.0, released=True)
NEXT = Lease("another token", "another executor", "holder", 1.0)
DONE = {state: Mark(state, None) for state in (JobState.SUCCESS, JobState.FAILED)}
#: What the keys of a job say in each of its states.
KEYS = {
    JobState.FREE: {},
    JobState.TAKEN: {JOB_KEYS.executor: to_bytes(MINE)},
    JobState.RELEASED: {JOB_KEYS.executor: to_bytes(GIVEN_UP)},
    **{state: {JOB_KEYS.executor: to_bytes(MINE), JOB_KEYS.state: to_bytes(mark)} for state, mark in DONE.items()},
}
#: The invoke of each cause, by an executor that read the job when its key `executor` had this value.
INVOKES = {
    JobCause.TAKEN: lambda read: invokes.take(ID, "p", None, NEXT),
    JobCause.ADOPTED: lambda read: invokes.take(ID, "p", read, NEXT),
    JobCause.RELEASED: lambda read: invokes.release(ID, "p", read),
    JobCause.GIVEN_BACK: lambda read: invokes.give_back(ID, "p", lease_of(read)),
    JobCause.SUCCEEDED: lambda read: invokes.mark(ID, "p", lease_of(read), DONE[JobState.SUCCESS]),
    JobCause.FAILED: lambda read: invokes.mark(ID, "p", lease_of(read), DONE[JobState.FAILED]),
}


def draft_of(values):
    return Draft(lambda key: Entry(key, values[key], 1) if key in values else None, revision=2)


def state_in(draft):
    lease, mark = (draft.look(key) for key in (JOB_KEYS.executor, JOB_KEYS.state))
    return job_state(
        None if lease is None or lease.value is None else lease_of(lease.value),
        None if mark is None or mark.value is None else mark_of(mark.value),
    )


@pytest.mark.parametrize(("before", "now"), [(None, MINE), (MINE, NEXT), (MINE, GIVEN_UP), (MINE, None)])
def test_an_operation_does_not_end_once_a_job_has_another_lease_than_was_read(before, now):
    """Rule 9.6: the note for its clean-up would name the wrong token, or be missing."""
    before, now = (None if lease is None else to_bytes(lease) for lease in (before, now))
    note = None if before is None else Unclean(lease_of(before), None)
    run_ops = Entry(DatasetKeys.of("d").run_ops, run_ops_value([ID]), 1)
    values = {ID.state: RUNNING, run_ops.key: run_ops.value} | ({} if now is None else {JOB_KEYS.executor: now})
    ended = Ended(FORMAT, OperationState.CANCELED, ArgRecord(FORMAT, 1, None, 0.0), 1, 0, {}, 1.0)
    draft = draft_of(values)

    answers = [draft.run(s) for s in invokes.finish(ID, run_ops, ended, {"p": invokes.Unended(before, note)})]

    assert (answers[-1], draft.writes) == (False, {})


@pytest.mark.parametrize(
    "move", [move for move in JOB if move.from_state], ids=lambda move: f"{move.from_state}-{move.on}"
)
def test_an_invoke_moves_the_keys_of_a_job_as_its_table_says(move):
    """Rule 9.5"""
    values = {ID.state: RUNNING, **KEYS[move.from_state]}
    draft = draft_of(values)

    assert draft.run(INVOKES[move.on](values.get(JOB_KEYS.executor))) is True

    assert state_in(draft) is move.to_state


@pytest.mark.parametrize(
    ("move", "now"),
    [(move, now) for move in JOB if move.from_state for now in (None, *KEYS) if now is not move.from_state],
)
def test_an_invoke_changes_nothing_once_the_job_moved_or_the_operation_ended(move, now):
    """Rule 9.5: what the executor read before no longer holds; `now` None is the end of the operation."""
    statement = INVOKES[move.on](KEYS[move.from_state].get(JOB_KEYS.executor))
    draft = draft_of({} if now is None else {ID.state: RUNNING, **KEYS[now]})

    assert draft.run(statement) is False

    assert draft.writes == {}


def test_a_job_that_was_released_is_neither_marked_nor_given_back():
    """Rule 9.5: the word of an executor that is gone counts no more."""
    released = to_bytes(GIVEN_UP)

    for on in (JobCause.SUCCEEDED, JobCause.FAILED, JobCause.GIVEN_BACK, JobCause.RELEASED):
        with pytest.raises(IllegalMove, match="released"):
            INVOKES[on](released)
