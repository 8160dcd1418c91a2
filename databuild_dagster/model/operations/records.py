"""The values under the keys of operations (SPEC 9.2). A record of newer code is reported, never guessed at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from databuild_dagster.model.errors import NewerOperation, NewerOperations
from databuild_dagster.model.meta_storage import Entry
from databuild_dagster.model.operations.keys import DatasetKeys, OperationId
from databuild_dagster.model.operations.states import JOB, OPERATION, JobCause, JobState, OperationCause, OperationState

#: Shape of the records below; a higher one was written by newer code.
FORMAT = 1


class ArgRecord(msgspec.Struct, frozen=True):
    """What an operation was started with."""

    format: int
    #: Version of the type's code, which has to understand `arg`.
    type_version: int
    arg: Any
    started_at: float
    started_by: str = ""


class Lease(msgspec.Struct, frozen=True):
    """Who has a job, or a dataset's completions. As bytes it is the fence token: `token` is never used again."""

    token: str
    #: Whose heartbeat counts, and which process it is as far as others can tell (`engine.holders`).
    executor: str
    holder: str
    at: float
    #: The tokens before, the latest last: their work may lie about.
    adopted_from: tuple[str, ...] = ()
    #: A coordinator found its executor gone: the next executor takes the job without waiting for heartbeats.
    released: bool = False


class Mark(msgspec.Struct, frozen=True):
    """How a job ended: its result is one of the instance that the partition had when the operation began."""

    state: JobState
    instance: str | None
    detail: Any = None
    token: str = ""


class Trouble(msgspec.Struct, frozen=True):
    """Why something did not go well, and when it is tried again."""

    error: str
    #: How many attempts have failed.
    attempts: int
    at: float
    next_at: float


class Unclean(msgspec.Struct, frozen=True):
    """Who had a job of an operation that has ended, and on which instance."""

    lease: Lease
    instance: str | None


class Ended(msgspec.Struct, frozen=True):
    """An operation's entry in the history."""

    format: int
    outcome: OperationState
    arg: ArgRecord
    n_partitions: int
    n_succeeded: int
    #: Partition to the detail of its failed job.
    failed: dict[str, Any]
    ended_at: float
    #: What the completion code answered.
    report: Any = None
    reason: str = ""


#: Tokens that a lease remembers at most.
MAX_ADOPTIONS = 20

#: What the key `state` of an operation says, from its start to its end.
RUNNING = OPERATION.next(None, OperationCause.STARTED).value.encode()

_RunOps = list[tuple[str, str | None, int]]
to_bytes = msgspec.json.Encoder().encode


def run_ops_of(dataset: str, value: bytes | None) -> list[OperationId]:
    """Raises `NewerOperations`."""
    try:
        found = [] if value is None else msgspec.json.decode(value, type=_RunOps)
    except msgspec.MsgspecError:
        raise NewerOperations(dataset=dataset) from None
    return [OperationId(dataset, *triple) for triple in found]


def run_ops_value(operations: Iterable[OperationId]) -> bytes:
    return to_bytes([id[1:] for id in operations])


def arg_of(id: OperationId, value: bytes) -> ArgRecord:
    """Raises `NewerOperation`."""
    found = msgspec.json.decode(value)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise NewerOperation(id=str(id), why="its record has another shape than any that is known here")
    return msgspec.convert(found, ArgRecord)


def partitions_of(value: bytes) -> dict[str, str | None]:
    return msgspec.json.decode(value, type=dict[str, str | None])


def operated_on(datasets: Iterable[str], entries: Callable[[list[str]], Iterable[Entry]]) -> set[str]:
    """The instances that running operations on these datasets are about; `entries` gives those of keys.

    Raises `NewerOperations`.
    """
    datasets = list(datasets)
    run_ops = {entry.key: entry.value for entry in entries([DatasetKeys.of(name).run_ops for name in datasets])}
    running = [id for name in datasets for id in run_ops_of(name, run_ops.get(DatasetKeys.of(name).run_ops))]
    partitions = entries([id.partitions for id in running]) if running else []
    return {uuid for entry in partitions if entry.value for uuid in partitions_of(entry.value).values() if uuid}


#: The start of an operation writes no key of a job, so a job without keys is in the state it is born in.
BORN = JOB.next(None, JobCause.STARTED)


def job_state(lease: Lease | None, mark: Mark | None = None) -> JobState:
    """What the keys of a job say."""
    if mark is not None:
        return mark.state
    if lease is None:
        return BORN
    return JobState.RELEASED if lease.released else JobState.TAKEN


def lease_of(value: bytes) -> Lease:
    return msgspec.json.decode(value, type=Lease)


def mark_of(value: bytes) -> Mark:
    return msgspec.json.decode(value, type=Mark)


def trouble_of(value: bytes) -> Trouble:
    return msgspec.json.decode(value, type=Trouble)


def unclean_of(value: bytes) -> Unclean:
    return msgspec.json.decode(value, type=Unclean)


def ended_of(id: OperationId, value: bytes) -> Ended:
    """Raises `NewerOperation`."""
    found = msgspec.json.decode(value)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise NewerOperation(id=str(id), why="its entry in the history has another shape than any that is known here")
    return msgspec.convert(found, Ended)
