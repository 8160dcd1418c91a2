"""The values under the keys of operations (rule 9.2). A record of newer code is reported, never guessed at."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from databuild_dagster.model.errors import NewerOperation, NewerOperations, Refused
from databuild_dagster.model.meta_storage import Entry
from databuild_dagster.model.operations.keys import SEPARATOR, DatasetKeys, OperationId, unescape
from databuild_dagster.model.operations.states import JOB, OPERATION, JobCause, JobState, OperationCause, OperationState

#: Shape of the records below; a higher number was written by newer code.
FORMAT = 1


class ArgRecord(msgspec.Struct, frozen=True):
    """The argument of an operation."""

    format: int
    #: The version of the type's code that wrote `arg`.
    type_version: int
    arg: Any
    started_at: float
    started_by: str = ""
    #: Whether the first failed job completes the operation (rule 9.6).
    fail_fast: bool = False


class Lease(msgspec.Struct, frozen=True):
    """The holder of a job, or of a dataset's completions. As bytes it is the fence token: `token` is used once."""

    token: str
    #: The executor whose heartbeat counts, and its process as other processes identify it (`engine.holders`).
    executor: str
    holder: str
    at: float
    #: The earlier tokens, the latest last: files of their work may exist.
    adopted_from: tuple[str, ...] = ()
    #: A coordinator found its executor dead: the next executor takes the job without waiting for heartbeats.
    released: bool = False


class Mark(msgspec.Struct, frozen=True):
    """The end of a job on the instance that the partition had when the operation began."""

    state: JobState
    instance: str | None
    detail: Any = None
    token: str = ""


class Trouble(msgspec.Struct, frozen=True):
    """A failed attempt, and the time of the next attempt."""

    error: str
    #: The number of failed attempts.
    attempts: int
    at: float
    next_at: float


class Unclean(msgspec.Struct, frozen=True):
    """A job of an ended operation whose work has to be cleaned up: its lease and its instance."""

    lease: Lease
    instance: str | None


class FollowUp(msgspec.Struct, frozen=True):
    """An operation that completion code asked to start: started, refused, or neither as long as its intent waits."""

    type: str
    dataset: str
    #: The id of the started operation.
    operation: str | None = None
    #: Why it was not started.
    refused: str = ""


class Intent(msgspec.Struct, frozen=True):
    """A follow-up on a different dataset, which a coordinator turns into a start."""

    #: The operation that asked, and the place among all that it asked for.
    after: str
    ordinal: int
    type: str
    dataset: str
    arg: Any


class Ended(msgspec.Struct, frozen=True):
    """An operation's entry in the history."""

    format: int
    outcome: OperationState
    arg: ArgRecord
    n_partitions: int
    n_succeeded: int
    #: Partition to the detail of its failed job; null for the jobs after the first `MAX_DETAILS_BYTES` of details.
    failed: dict[str, Any]
    ended_at: float
    #: The result of the completion code.
    report: Any = None
    reason: str = ""
    #: In the order in which its completion code asked for them.
    follow_ups: tuple[FollowUp, ...] = ()


#: The details of failed jobs in an entry of the history: with 300,000 partitions a value of the meta storage has this much left.
MAX_DETAILS_BYTES = 4 * 1024 * 1024
#: Tokens that a lease remembers at most.
MAX_ADOPTIONS = 20

#: The value of the key `state` of a running operation.
RUNNING = OPERATION.next(None, OperationCause.STARTED).value.encode()

_RunOps = list[tuple[str, str | None, int]]
T = TypeVar("T")
to_bytes = msgspec.json.Encoder().encode
partitions_of = msgspec.json.Decoder(dict[str, str | None]).decode


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
    return _of_format(id, value, ArgRecord, "its record")


class _FailFast(msgspec.Struct):
    """Of an `ArgRecord`, whatever its argument."""

    fail_fast: bool = False


def is_fail_fast(value: bytes | None) -> bool:
    """Whether the first failed job completes the operation of a record; false for a record that this code cannot read, or complete."""
    try:
        return value is not None and msgspec.json.decode(value, type=_FailFast).fail_fast
    except msgspec.MsgspecError:
        return False


def kept_details(failed: Mapping[str, Any]) -> dict[str, Any]:
    """Partition to the detail of its failed job, in the size that the history keeps."""
    n_bytes, kept = 0, {}
    for partition, detail in failed.items():
        n_bytes += len(to_bytes(detail))
        kept[partition] = detail if n_bytes <= MAX_DETAILS_BYTES else None
    return kept


def operated_on(datasets: Iterable[str], entries: Callable[[list[str]], Iterable[Entry]]) -> set[str]:
    """The instances that running operations on `datasets` work on; `entries` reads keys.

    Raises `NewerOperations`.
    """
    datasets = list(datasets)
    run_ops = {entry.key: entry.value for entry in entries([DatasetKeys.of(name).run_ops for name in datasets])}
    running = [id for name in datasets for id in run_ops_of(name, run_ops.get(DatasetKeys.of(name).run_ops))]
    partitions = entries([id.partitions for id in running]) if running else []
    return {uuid for entry in partitions if entry.value for uuid in partitions_of(entry.value).values() if uuid}


#: The state of a job without keys, because the start of an operation writes none.
BORN = JOB.next(None, JobCause.STARTED)


def job_state(lease: Lease | None, mark: Mark | None = None) -> JobState:
    """The state of a job by its keys."""
    if mark is not None:
        return mark.state
    if lease is None:
        return BORN
    return JobState.RELEASED if lease.released else JobState.TAKEN


lease_of = msgspec.json.Decoder(Lease).decode
mark_of = msgspec.json.Decoder(Mark).decode
trouble_of = msgspec.json.Decoder(Trouble).decode
unclean_of = msgspec.json.Decoder(Unclean).decode
intent_of = msgspec.json.Decoder(Intent).decode


def ended_of(id: OperationId, value: bytes) -> Ended:
    """Raises `NewerOperation`."""
    return _of_format(id, value, Ended, "its entry in the history")


def _of_format(id: OperationId, value: bytes, shape: type[T], what: str) -> T:
    found = msgspec.json.decode(value)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise NewerOperation(id=str(id), why=f"{what} has a shape that is not known here")
    return msgspec.convert(found, shape)


def strays(entries: Iterable[Entry]) -> list[tuple[str, str]]:
    """I9: (key, fault) of each key with a value under `distOp.` that belongs to no running operation (rules 12), in order."""
    values = {entry.key: entry.value for entry in entries}
    roots: list[OperationId] = []
    found: list[tuple[str, str]] = []
    allowed: set[str] = set()
    for key, value in values.items():
        parts = key.split(SEPARATOR)
        if len(parts) == 3 and parts[2] in ("runOps", "coordinator"):
            allowed.add(key)
            if parts[2] == "runOps":
                try:
                    roots += run_ops_of(unescape(parts[1]), value)
                except (ValueError, Refused) as error:
                    found.append((key, f"cannot be read: {error}"))
        elif len(parts) == 4 and parts[3] == "nextInstanceId":
            allowed.add(key)
    running = {id.root for id in roots if id.state in values}
    found += [(id.root, "is in runOps and has no state") for id in roots if id.root not in running]
    for key in values.keys() - allowed:
        parts = key.split(SEPARATOR)
        if not any(SEPARATOR.join(parts[:n]) in running for n in (4, 5)):
            found.append((key, "is of no operation that runs"))
    return sorted(found)
