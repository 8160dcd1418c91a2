"""What an invoke on an operation writes (SPEC 9.5, 9.6)."""

from __future__ import annotations

from databuild_dagster.model.meta_storage import Draft, Entry
from databuild_dagster.model.operations.invokes import finish
from databuild_dagster.model.operations.keys import DatasetKeys, OperationId
from databuild_dagster.model.operations.records import FORMAT, RUNNING, ArgRecord, Ended, run_ops_value
from databuild_dagster.model.operations.states import OperationState

DATABASES = ()


def test_the_end_of_an_operation_removes_its_own_keys_and_no_others():
    """SPEC 9.2, 9.6: instance 1 never matches 10."""
    first, tenth = (OperationId("d", "t", None, instance) for instance in (1, 10))
    run_ops = Entry(DatasetKeys.of("d").run_ops, run_ops_value([first, tenth]), 1)
    values = {key: RUNNING for id in (first, tenth) for key in (id.arg, id.state, *id.job("p"))} | {
        run_ops.key: run_ops.value
    }
    draft = Draft(lambda key: Entry(key, values[key], 1) if key in values else None, revision=2)
    ended = Ended(FORMAT, OperationState.SUCCESS, ArgRecord(FORMAT, 1, None, 0.0), 1, 1, {}, 1.0)

    answers = [draft.run(statement) for statement in finish(first, run_ops, ended, {})]

    left = {key for key in values if draft.look(key).value is not None}
    assert answers == [True]
    assert left == {run_ops.key, tenth.arg, tenth.state, *tenth.job("p")} | {first.job("p").unclean}
