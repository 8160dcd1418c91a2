"""Operations over a whole dataset as keys of the meta storage: where each stands, and the invokes that move them (SPEC 9).

    distOp.<dataset>.runOps                     the operations that run, as (type, object, instance)
    distOp.<dataset>.coordinator                who completes them
    distOp.<dataset>.<type>.nextInstanceId
    <root>.arg  .state  .partitions             root is distOp.<dataset>.<type>[.<object>].<instance>
    <root>.<partition>.executor                 who has the job: the fence token
    <root>.<partition>.progress                 what a resumable job has saved
    <root>.<partition>.state                    absent, or how it ended
    <root>.<partition>.trouble                  why it is tried again, and when
    <root>.trouble                              the same of its completion
    distOpHistory.<…as the root>                how it ended
    distOpUnclean.<…as the root>.<partition>    a job of an ended operation that nobody has cleaned up after

Parts are escaped, and whatever is asked for by its beginning ends with the separator, so that instance 1 never matches 10.
Pure: who reads, and when, is the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from databuild_dagster.model.errors import Conflict, InvalidRequest, NotFound, Refused
from databuild_dagster.model.machine import Label
from databuild_dagster.model.meta_storage import (
    Condition,
    Entry,
    Op,
    Put,
    Remove,
    RemovePrefix,
    Statement,
    as_read,
    both,
    do,
    exists,
    iif,
    not_exists,
    value_is,
)
from databuild_dagster.model.refs import PartitionRef
from databuild_dagster.model.wording import few_of

SEPARATOR = "."
ROOT = "distOp"
HISTORY = "distOpHistory"
UNCLEAN = "distOpUnclean"
#: Shape of the records below; a higher one was written by newer code.
FORMAT = 1
#: What stands for an unpartitioned dataset's one partition; no escaped text looks so.
_NO_KEY = "%"


class OperationState(Label):
    """What a person sees of an operation; while it runs it has keys, afterwards an entry in the history."""

    #: Jobs are to be run.
    RUNNING = "running"
    #: Every job succeeded.
    SUCCESS = "success"
    #: A job failed.
    FAILED = "failed"
    #: Somebody stopped it.
    CANCELED = "canceled"
    #: It has ended, and newer code has written how.
    UNREADABLE = "unreadable"


class JobState(Label):
    """How a job ended. While it has not there is no such key."""

    SUCCESS = "success"
    FAILED = "failed"


class UnknownOperationType(Refused):
    """No operation of type {type_name!r} is known here, only {known}."""

    hint = "Load the code location that registers it: build_definitions(operations=[…])."


class NewerOperation(Refused):
    """Operation {id} is of newer code: {why}."""

    hint = "Install that version here too, or cancel it: `databuild operations cancel {id}`."


class NewerOperations(NewerOperation):
    """What runs on {dataset} is listed by newer code, in another shape than any that is known here."""

    hint = "Install that version here too."


class IncompatibleOperation(Refused):
    """{type_name} cannot start on {dataset}: {why}."""

    hint = "Wait until that has ended, or cancel it: `databuild operations list`."


class InvalidOperation(Refused):
    """{type_name} cannot start on {dataset}: {why}."""


class OperationRace(Conflict):
    """Another operation on {dataset} was started or ended in the same moment, so {type_name} was not started."""

    hint = "Nothing was recorded; start it again."


class LeaseLost(Conflict):
    """The job of operation {id} on {partition!r} is not this executor's any more."""

    hint = "Stop, and touch nothing: another executor has it, or the operation has ended."


# Names


def escape(part: str) -> str:
    """A part of a key without separators in it."""
    return part.replace("%", "%25").replace(SEPARATOR, "%2E") or _NO_KEY


def unescape(part: str) -> str:
    return "" if part == _NO_KEY else unquote(part, errors="strict")


class OperationId(NamedTuple):
    """One operation: the nth of its type on a dataset, and what it is about where a type may run several times at once."""

    dataset: str
    type: str
    object: str | None
    instance: int

    def __str__(self) -> str:
        """Within keys; also for people."""
        return _text_of(self)

    @classmethod
    def parse(cls, text: str) -> OperationId:
        """Raises `NotFound` for what is no id."""
        parts = text.split(SEPARATOR)
        if len(parts) not in (3, 4) or not all(parts) or not (parts[-1].isascii() and parts[-1].isdecimal()):
            raise NotFound(kind="operation", name=text)
        try:
            names = [unescape(part) for part in parts[:-1]]
        except ValueError:
            raise NotFound(kind="operation", name=text) from None
        found = cls(names[0], names[1], names[2] if len(names) == 3 else None, int(parts[-1]))
        if str(found) != text:
            raise NotFound(kind="operation", name=text)
        return found

    @property
    def root(self) -> str:
        return f"{ROOT}{SEPARATOR}{self}"

    @property
    def under(self) -> str:
        """With what all its keys begin."""
        return self.root + SEPARATOR

    @property
    def arg(self) -> str:
        return self.under + "arg"

    @property
    def state(self) -> str:
        return self.under + "state"

    @property
    def partitions(self) -> str:
        return self.under + "partitions"

    @property
    def trouble(self) -> str:
        return self.under + "trouble"

    @property
    def history(self) -> str:
        return f"{HISTORY}{SEPARATOR}{self}"

    def job(self, partition: str) -> JobKeys:
        under = f"{self.under}{escape(partition)}{SEPARATOR}"
        unclean = f"{UNCLEAN}{SEPARATOR}{self}{SEPARATOR}{escape(partition)}"
        return JobKeys(under + "executor", under + "state", under + "progress", under + "trouble", unclean)

    def ref(self, partition: str) -> PartitionRef:
        return PartitionRef(self.dataset, partition or None)


@lru_cache(maxsize=1024)
def _text_of(id: OperationId) -> str:
    parts = [escape(id.dataset), escape(id.type)]
    if id.object is not None:
        escaped = escape(id.object)
        # An object that is a number would look like an instance, whose keys then began as another's.
        is_number = escaped.isascii() and escaped.isdecimal()
        parts.append(f"%{ord(escaped[0]):02X}{escaped[1:]}" if is_number else escaped)
    return SEPARATOR.join([*parts, str(id.instance)])


class JobKeys(NamedTuple):
    """Of one partition's job."""

    executor: str
    state: str
    progress: str
    trouble: str
    unclean: str


class DatasetKeys(NamedTuple):
    """Of all operations on a dataset."""

    run_ops: str
    coordinator: str
    #: With what all of them begin.
    under: str

    @classmethod
    def of(cls, dataset: str) -> DatasetKeys:
        under = f"{ROOT}{SEPARATOR}{escape(dataset)}{SEPARATOR}"
        return cls(under + "runOps", under + "coordinator", under)


def next_instance_id(dataset: str, type_name: str) -> str:
    return f"{DatasetKeys.of(dataset).under}{escape(type_name)}{SEPARATOR}nextInstanceId"


# Records


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
    #: A coordinator has found that its executor is gone: whoever comes takes the job, without waiting to find out itself.
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
    #: Partition to what its job said of it.
    failed: dict[str, Any]
    ended_at: float
    #: What the completion code answered.
    report: Any = None
    reason: str = ""


#: Tokens that a lease remembers at most.
MAX_ADOPTIONS = 20

RUNNING = OperationState.RUNNING.value.encode()

_RunOps = list[tuple[str, str | None, int]]
to_bytes = msgspec.json.Encoder().encode


def run_ops_of(dataset: str, value: bytes | None) -> list[OperationId]:
    """Raises `NewerOperations`."""
    try:
        found = [] if value is None else msgspec.json.decode(value, type=_RunOps)
    except msgspec.MsgspecError:
        raise NewerOperations(dataset=dataset) from None
    return [OperationId(dataset, *each) for each in found]


def run_ops_value(operations: Iterable[OperationId]) -> bytes:
    return to_bytes([each[1:] for each in operations])


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
    run_ops = {entry.key: entry.value for entry in entries([DatasetKeys.of(each).run_ops for each in datasets])}
    running = [id for each in datasets for id in run_ops_of(each, run_ops.get(DatasetKeys.of(each).run_ops))]
    partitions = entries([id.partitions for id in running]) if running else []
    return {uuid for entry in partitions if entry.value for uuid in partitions_of(entry.value).values() if uuid}


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


# Which may run beside which


class TypeRule(NamedTuple):
    """What compatibility asks of a type."""

    name: str
    #: Whether several may run on a dataset at once.
    many: bool
    #: Types that may not run beside it.
    apart_from: frozenset[str] = frozenset()


def why_incompatible(
    starting: TypeRule, object_id: str | None, running: Sequence[OperationId], rules: Mapping[str, TypeRule]
) -> str | None:
    """Why an operation may not start beside those that run, None when it may.

    | running                          | starting                                | may it? |
    |----------------------------------|-----------------------------------------|---------|
    | the same type, one per dataset   | any                                     | no      |
    | the same type, many per dataset  | about the same object                   | no      |
    | the same type, many per dataset  | about another object, or without one    | yes     |
    | a type that one of the two shuns | any                                     | no      |
    | another type                     | any                                     | yes     |
    """
    for each in running:
        if each.type == starting.name:
            if not starting.many:
                return f"{each} runs, and only one of its type may at a time"
            if object_id is not None and each.object == object_id:
                return f"{each} runs, which is about the same: {object_id}"
        elif each.type in starting.apart_from or starting.name in _apart_from(rules.get(each.type)):
            return f"{each} runs, and the two may not run at the same time"
    return None


def _apart_from(rule: TypeRule | None) -> frozenset[str]:
    return frozenset() if rule is None else rule.apart_from


# The invokes


def is_running(id: OperationId) -> Condition:
    return value_is(id.state, "eq", RUNNING)


def start(
    id: OperationId, arg: ArgRecord, partitions: Mapping[str, str | None], run_ops: Entry, next_id: Entry
) -> Statement:
    """SPEC 9.3: all of it if nothing was started or ended since `run_ops` and `next_id` were read; yields the instance id."""
    with_it = run_ops_value([*run_ops_of(id.dataset, run_ops.value), id])
    return iif(
        both(as_read(run_ops), as_read(next_id)),
        do(
            Put(run_ops.key, with_it),
            Put(next_id.key, b"%d" % (id.instance + 1)),
            Put(id.arg, to_bytes(arg)),
            Put(id.partitions, to_bytes(partitions)),
            Put(id.state, RUNNING),
            yields=id.instance,
        ),
    )


def take(id: OperationId, partition: str, before: bytes | None, lease: Lease) -> Statement:
    """SPEC 9.5: a job for an executor, if nobody else has taken it since `before` was read; None is nobody."""
    keys = id.job(partition)
    return iif(
        both(is_running(id), not_exists(keys.state), as_read(Entry(keys.executor, before, 0))),
        do(Put(keys.executor, to_bytes(lease)), yields=True),
    )


def is_mine(id: OperationId, partition: str, lease: Lease) -> Condition:
    """The operation runs, the job has not ended, and the token is this one."""
    keys = id.job(partition)
    return both(is_running(id), not_exists(keys.state), value_is(keys.executor, "eq", to_bytes(lease)))


def mark(id: OperationId, partition: str, lease: Lease, how: Mark) -> Statement:
    """SPEC 9.5"""
    keys = id.job(partition)
    over = (Remove(keys.progress), Remove(keys.trouble))
    return iif(is_mine(id, partition, lease), do(Put(keys.state, to_bytes(how)), *over, yields=True))


def save(id: OperationId, partition: str, lease: Lease, progress: bytes) -> Statement:
    return iif(is_mine(id, partition, lease), do(Put(id.job(partition).progress, progress), yields=True))


def note_trouble(id: OperationId, partition: str, lease: Lease, trouble: Trouble) -> Statement:
    """So that others see why a job takes so long."""
    return iif(is_mine(id, partition, lease), do(Put(id.job(partition).trouble, to_bytes(trouble)), yields=True))


def note_completion_trouble(id: OperationId, trouble: Trouble) -> Statement:
    return iif(is_running(id), do(Put(id.trouble, to_bytes(trouble)), yields=True))


def release(id: OperationId, partition: str, before: bytes) -> Statement:
    """Take a job from an executor that is gone: the token it has is worth nothing any more."""
    keys = id.job(partition)
    released = msgspec.structs.replace(lease_of(before), released=True)
    is_there = both(is_running(id), not_exists(keys.state), as_read(Entry(keys.executor, before, 0)))
    return iif(is_there, do(Put(keys.executor, to_bytes(released)), yields=True))


def forget(id: OperationId, partition: str, lease: Lease) -> Statement:
    """Before a failing job is cleaned up: nobody is to go on from what is about to be taken away."""
    return iif(is_mine(id, partition, lease), do(Remove(id.job(partition).progress), yields=True))


def give_back(id: OperationId, partition: str, lease: Lease) -> Statement:
    """The job is free for the next one at once, with its progress."""
    return iif(is_mine(id, partition, lease), do(Remove(id.job(partition).executor), yields=True))


def finish(id: OperationId, run_ops: Entry, ended: Ended, unfinished: Mapping[str, Unclean]) -> list[Statement]:
    """SPEC 9.6, in one invoke: the last statement yields whether it was applied.

    Of the `unfinished` jobs those that were not marked by now are noted as unclean first.
    """
    still = both(is_running(id), as_read(run_ops))
    left = [each for each in run_ops_of(id.dataset, run_ops.value) if each != id]
    keys = DatasetKeys.of(id.dataset)
    ops: list[Op] = (
        [Put(keys.run_ops, run_ops_value(left))] if left else [Remove(keys.run_ops), Remove(keys.coordinator)]
    )
    notes = [
        iif(both(still, exists(job.executor), not_exists(job.state)), do(Put(job.unclean, to_bytes(note))))
        for job, note in ((id.job(partition), note) for partition, note in unfinished.items())
    ]
    last = iif(still, do(RemovePrefix(id.under), *ops, Put(id.history, to_bytes(ended)), yields=True))
    return [*notes, last]


def lead(dataset: str, before: bytes | None, lease: Lease) -> Statement:
    """SPEC 9.6: be the coordinator of a dataset, if nobody has become it since `before` was read.

    Only where operations run: who comes late would leave a key behind that nobody takes away.
    """
    keys = DatasetKeys.of(dataset)
    is_free = both(exists(keys.run_ops), as_read(Entry(keys.coordinator, before, 0)))
    return iif(is_free, do(Put(keys.coordinator, to_bytes(lease)), yields=True))


# What must hold (I9)


def strays(entries: Iterable[Entry]) -> list[tuple[str, str]]:
    """(key, what is wrong) among all keys with a value that begin with `distOp.`, in their order."""
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


def check_partitions(
    dataset: str, type_name: str, live: Mapping[str, str | None], named: Iterable[str] | None
) -> dict[str, str | None]:
    """The partitions that an operation is about, with their instances. Raises `InvalidOperation`."""
    if named is None:
        if not live:
            raise InvalidOperation(type_name=type_name, dataset=dataset, why="it has no live partition")
        return dict(live)
    wanted = list(dict.fromkeys(named))
    if not wanted:
        raise InvalidOperation(type_name=type_name, dataset=dataset, why="no partition is named")
    if others := [each for each in wanted if each not in live]:
        raise InvalidOperation(type_name=type_name, dataset=dataset, why=f"not live: {few_of(others)}")
    return {each: live[each] for each in wanted}


def check_name(what: str, name: str) -> str:
    """Of a type, or an object. Raises `InvalidRequest`."""
    if not name or len(name) > 200 or not name.isprintable():
        raise InvalidRequest(what=what, value=name, why="it must be a printable text of 1 to 200 letters")
    return name
