"""Operations over a whole dataset: the author's class, and starting, canceling and reading operations (rules 9, 13).

An operation is stored as keys of the meta storage (`model.operations`). An `executor` runs its jobs, and a `coordinator`
completes it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.operations.meta_storage import MetaStorage
from databuild_dagster.features.operations.seen import Completion, OperationView, Seen, ended_view
from databuild_dagster.model import errors
from databuild_dagster.model.command_ids import of_attempt
from databuild_dagster.model.meta_storage import LAST, Entry
from databuild_dagster.model.operations import compatibility, invokes, keys, records
from databuild_dagster.model.operations.compatibility import TypeRule
from databuild_dagster.model.operations.invokes import Start
from databuild_dagster.model.operations.keys import DatasetKeys, OperationId
from databuild_dagster.model.operations.records import ArgRecord
from databuild_dagster.model.operations.states import OperationCause, OperationState
from databuild_dagster.model.refs import PartitionRef, partition_key_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import one_line

A = TypeVar("A")

#: Attempts at a change that other processes may race.
MAX_RACES = 20
#: The statement of the end of an operation that yields whether it was applied.
LAST_STATEMENT = -1


class DistributedOperation(Generic[A]):
    """The code of a type of operations; it keeps no state of a single operation.

    A job may run again at any time, in a different process, while its earlier run continues. Its writes must allow that: name
    them by `context.token`, or make them idempotent. Jobs of an executor run in threads beside each other.
    """

    #: A text that never changes, because keys contain it.
    type_name: ClassVar[str]
    #: Whether several may run on a dataset at once.
    many: ClassVar[bool] = False
    #: Types that may not run beside it.
    apart_from: ClassVar[frozenset[str]] = frozenset()
    #: Whether a job may fail, and the operation with it. Otherwise a failing job is retried without end, but for `CannotKeep`.
    can_fail: ClassVar[bool] = True
    #: Whether the first failed job ends the operation, without the jobs that have not ended. Otherwise every job runs.
    fail_fast: ClassVar[bool] = False
    #: Whether a job resumes from its saved progress. A volatile job begins from scratch.
    resumable: ClassVar[bool] = False
    #: Whether an executor passes several jobs to a single call: `start_or_resume_jobs`.
    batched: ClassVar[bool] = False
    #: Calls that an executor makes at a time. None: as many as it has cores; 1 for a batched type.
    parallel: ClassVar[int | None] = None
    #: Increased when older code could not read today's argument.
    version: ClassVar[int] = 1
    #: The type of the argument, which is stored as JSON.
    arg_type: ClassVar[Any] = Any

    def object_id(self, arg: A) -> str | None:
        """The object of an operation, for a type with `many`: each object has one operation at a time."""
        return None

    def check_start(self, arg: A, dataset: str, refs: list[PartitionRef], resources: Any) -> None:
        """Raise a `Refused` for an argument that cannot work, before anything is started."""

    def argument_to_keep(self, arg: A, dataset: str, instances: Mapping[PartitionRef, str | None], resources: Any) -> A:
        """The argument for every job, with values that they must share, found once at the start.

        `instances` are the partitions of the operation. May refuse, as `check_start`.
        """
        return arg

    def upgraded(self, arg: Any, version: int) -> Any:
        """An older version's stored argument in today's shape."""
        return arg

    def start_or_resume_job(self, arg: A, partition: PartitionRef, context: Any) -> None:
        """Do a partition's job. Returning is success unless `context.mark_job_complete` set a failure; raising is failure."""
        raise NotImplementedError

    def start_or_resume_jobs(self, arg: A, contexts: Sequence[Any]) -> None:
        """Of a batched type: do the jobs of several partitions.

        Each sets its end by its `context.mark_job_complete`; a job without an end succeeded. If this raises, halves are tried,
        down to a single job, which then failed: doing a job twice must be harmless.
        """
        raise NotImplementedError

    def cancel_job_and_cleanup(self, arg: A, partition: PartitionRef, context: Any) -> None:
        """Clean up after a job that failed, was canceled or taken over, under `context.token`. Must be idempotent."""

    def complete_operation(self, arg: A, dataset: str, completion: Completion) -> Any:
        """Finish the operation when its jobs have ended; returns a report for the history (JSON). Must be idempotent.

        `completion.start` starts a further operation when this operation has ended.
        """
        return None


class _Asked(NamedTuple):
    """An operation that somebody asks for."""

    operation: DistributedOperation[Any]
    #: The argument in the type's own shape, and as it is stored.
    converted: Any
    raw: Any
    object_id: str | None


class DistributedOperationManager:
    """Has the types, and starts, cancels and reads operations."""

    def __init__(
        self,
        engine: Engine,
        types: Iterable[DistributedOperation[Any]] = (),
        *,
        actor: str = "databuild",
        resources: Any = None,
    ) -> None:
        self.engine = engine
        self.meta = MetaStorage(engine, actor=actor)
        self.actor = actor
        #: For the operations' own checks and completions.
        self.resources = resources
        self.types: dict[str, DistributedOperation[Any]] = {}
        for operation in types:
            self.register(operation)

    def register(self, operation: DistributedOperation[Any]) -> None:
        """Add a type. Raises `InvalidRequest` for an invalid name."""
        self.types[compatibility.check_name("an operation's type_name", operation.type_name)] = operation

    # Starting

    def start_operation(
        self,
        type_id: str,
        dataset: str,
        arg: Any,
        *,
        partitions: Iterable[str] | None = None,
        command_id: str | None = None,
    ) -> int:
        """The instance id. See `start`."""
        return self.start(type_id, dataset, arg, partitions=partitions, command_id=command_id).instance

    def start(
        self,
        type_id: str,
        dataset: str,
        arg: Any,
        *,
        partitions: Iterable[str] | None = None,
        fail_fast: bool | None = None,
        command_id: str | None = None,
    ) -> OperationId:
        """Start an operation on every live partition, or on the partitions given by key (rule 9.3).

        `fail_fast` None is what the type declares (rule 9.6).
        Raises `UnknownOperationType`, `UnknownAsset`, `InvalidOperation`, errors of the type's own check,
        `IncompatibleOperation`, and `OperationRace` if a competing start or end came first. Then no key is written.
        """
        object_id = self._converted(type_id, dataset, arg).object_id
        command_id = self._attempt_to_answer(command_id)
        if known := self._started_by(command_id, type_id, dataset, object_id):
            return known
        ready = self.prepared(type_id, dataset, arg, partitions=partitions, fail_fast=fail_fast)
        run_ops = self.meta.get(DatasetKeys.of(dataset).run_ops)
        try:
            start = self.numbered(ready, records.run_ops_of(dataset, run_ops.value), {})
        except errors.IncompatibleOperation:
            # The same command, sent twice at once, has started it since.
            if known := self._started_by(command_id, type_id, dataset, object_id):
                return known
            raise
        answers = self.meta.invoke_all([invokes.start(start, run_ops)], command_id=command_id)
        if answers.value is False:
            raise errors.OperationRace(type_name=type_id, dataset=dataset)
        assert isinstance(answers.value, int), "it yields the instance id"
        return start.id._replace(instance=answers.value)

    def prepared(
        self,
        type_id: str,
        dataset: str,
        arg: Any,
        *,
        partitions: Iterable[str] | None = None,
        fail_fast: bool | None = None,
        by: str | None = None,
    ) -> Start:
        """A start without its number. Raises what `start` raises, but for other operations on the dataset."""
        operation, converted, raw, object_id = self._converted(type_id, dataset, arg)
        chosen = self.chosen(type_id, dataset, partitions)
        refs = [PartitionRef(dataset, key or None) for key in chosen]
        operation.check_start(converted, dataset, refs, self.resources)
        instances = dict(zip(refs, chosen.values(), strict=True))
        kept = operation.argument_to_keep(converted, dataset, instances, self.resources)
        if kept is not converted:
            raw = msgspec.json.decode(msgspec.json.encode(kept))
        fail_fast = operation.fail_fast if fail_fast is None else fail_fast
        record = ArgRecord(records.FORMAT, operation.version, raw, self.engine.now(), by or self.actor, fail_fast)
        next_id = Entry(keys.next_instance_id(dataset, type_id), None, 0)
        return Start(OperationId(dataset, type_id, object_id, 0), record, chosen, next_id)

    def chosen(self, type_id: str, dataset: str, partitions: Iterable[str] | None = None) -> dict[str, str | None]:
        """The partitions of a start by key, with their instances: all live, or the given partitions. Raises `InvalidOperation`."""
        return compatibility.check_partitions(dataset, type_id, self._live(dataset), partitions)

    def check_compatible(self, type_id: str, dataset: str, arg: Any) -> None:
        """Raises what `start` raises for the type, the argument's shape and other operations on the dataset."""
        asked = self._converted(type_id, dataset, arg)
        rules = {name: _rule(known) for name, known in self.types.items()}
        if why := compatibility.why_incompatible(_rule(asked.operation), asked.object_id, self.running(dataset), rules):
            raise errors.IncompatibleOperation(type_name=type_id, dataset=dataset, why=why)

    def numbered(self, start: Start, running: Sequence[OperationId], counters: dict[str, Entry]) -> Start:
        """The start with the next number of its type, beside running operations. `counters` are as they will be then.

        Raises `IncompatibleOperation`.
        """
        id, key = start.id, start.next_id.key
        rules = {name: _rule(operation) for name, operation in self.types.items()}
        if why := compatibility.why_incompatible(rules[id.type], id.object, running, rules):
            raise errors.IncompatibleOperation(type_name=id.type, dataset=id.dataset, why=why)
        next_id = counters.get(key) or self.meta.get(key)
        number = int(next_id.value or b"1")
        counters[key] = Entry(key, b"%d" % (number + 1), 0)
        return start._replace(id=id._replace(instance=number), next_id=next_id)

    def _converted(self, type_id: str, dataset: str, arg: Any) -> _Asked:
        operation = self.type_named(type_id)
        self.engine.queries.datasets.known(dataset)
        raw = stored(type_id, dataset, arg)
        try:
            converted = msgspec.convert(raw, operation.arg_type)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise _wrong_argument(type_id, dataset, error) from None
        object_id = operation.object_id(converted)
        if object_id is not None:
            compatibility.check_name("an operation's object", object_id)
        return _Asked(operation, converted, raw, object_id)

    def _live(self, dataset: str) -> dict[str, str | None]:
        found = self.engine.queries.canonical.of_dataset(dataset)
        live = {partition_key_of(one.ref): one.uuid for one in found if one.state is InstanceState.LIVE}
        gone = self.engine.catalog.left_out(self.engine.queries.datasets.known(dataset), list(live))
        return {key or "": uuid for key, uuid in live.items() if key not in gone}

    def _attempt_to_answer(self, command_id: str | None, place: int = 0) -> str | None:
        """The id of the first attempt at a command that has not lost a race: a lost attempt would be answered for all time.

        `place` is the statement that answers whether it has lost.
        """
        for race in range(MAX_RACES):
            attempt = of_attempt(command_id, race)
            if attempt is None or self.meta.answer_of(attempt, place) is not False:
                break
        return attempt

    def _started_by(
        self, command_id: str | None, type_id: str, dataset: str, object_id: str | None
    ) -> OperationId | None:
        """The operation that a command id has started before, which is not compatible with itself."""
        value = None if command_id is None else self.meta.answer_of(command_id)
        return OperationId(dataset, type_id, object_id, value) if isinstance(value, int) and value else None

    # Canceling

    def cancel(self, id: OperationId, reason: str = "", *, command_id: str | None = None) -> bool:
        """Stop an operation, also of an unknown type; False if it had ended. Executors stop when they see it (rule 9.7).

        Raises `NotFound`.
        """
        answered = self._attempt_to_answer(command_id, LAST_STATEMENT)
        if answered is not None and self.meta.answer_of(answered, LAST_STATEMENT):
            return True
        for race in range(MAX_RACES):
            run_ops, state = self.meta.get_all([DatasetKeys.of(id.dataset).run_ops, id.state]).entries
            if state.value is None:
                if self.meta.get(id.history).value is None:
                    raise self._not_found(id)
                return False
            seen = self.read(id)
            ended = seen.ended(OperationCause.CANCELED, self.engine.now(), reason=reason)
            attempt = of_attempt(command_id, race)
            finish = invokes.finish(id, run_ops, ended, seen.unended())
            if self.meta.invoke_all(finish, command_id=attempt).values[-1]:
                return True
        raise errors.OperationRace(type_name=id.type, dataset=id.dataset)

    def _not_found(self, id: OperationId) -> errors.NotFound:
        return errors.NotFound(kind="operation", name=str(id), names=map(str, self.running()))

    # Reading

    def type_named(self, type_id: str) -> DistributedOperation[Any]:
        """Raises `UnknownOperationType`."""
        found = self.types.get(type_id)
        if found is None:
            raise errors.UnknownOperationType(type_name=type_id, known=", ".join(sorted(self.types)) or "none")
        return found

    def arg_for(self, id: OperationId, value: bytes) -> Any:
        """The argument in today's shape. Raises `UnknownOperationType`, `NewerOperation`."""
        operation, record = self.type_named(id.type), records.arg_of(id, value)
        if record.type_version > operation.version:
            why = f"version {record.type_version} of {id.type}, and {operation.version} is installed"
            raise errors.NewerOperation(id=str(id), why=why)
        raw = record.arg
        if record.type_version < operation.version:
            raw = operation.upgraded(raw, record.type_version)
        return msgspec.convert(raw, operation.arg_type)

    def problem_of(self, id: OperationId, arg: bytes | None) -> str | None:
        """Why this process cannot continue an operation."""
        try:
            self.arg_for(id, arg or b"")
        except errors.Refused as refused:
            return refused.message
        except Exception as error:  # Of the type's own `upgraded`, anything.
            return f"its argument cannot be read: {one_line(error)}"
        return None

    def read(self, id: OperationId) -> Seen:
        """All keys of an operation, at a single moment."""
        return Seen.of(id, {entry.key: entry.value for entry in self.meta.prefix(id.under).entries})

    def operation(self, id: OperationId) -> OperationView:
        """Raises `NotFound`."""
        seen = self.read(id)
        if seen.is_running:
            return self._running(seen)
        ended = self.meta.get(id.history).value
        if ended is None:
            raise self._not_found(id)
        return ended_view(id, ended)

    def operations(self, dataset: str | None = None, *, ended: bool = False) -> list[OperationView]:
        """The running operations, with `ended` also the ended operations."""
        found = [self.operation(id) for id in self.running(dataset)]
        if ended:
            prefix = _under(keys.HISTORY, dataset)
            for entry in self.meta.prefix(prefix).entries:
                try:
                    id = OperationId.parse(entry.key.removeprefix(keys.HISTORY + keys.SEPARATOR))
                except errors.NotFound:
                    # A name of newer code, which no command here could use.
                    continue
                found.append(ended_view(id, entry.value or b""))
        return found

    def running(self, dataset: str | None = None) -> list[OperationId]:
        """The running operations, read from few keys.

        Raises `NewerOperations` for the given dataset; among all datasets such a dataset is left out, and `check` reports it.
        """
        datasets = self._datasets() if dataset is None else [dataset]
        entries = self.meta.get_all(DatasetKeys.of(name).run_ops for name in datasets).entries
        found: list[OperationId] = []
        for name, entry in zip(datasets, entries, strict=True):
            try:
                found += records.run_ops_of(name, entry.value)
            except errors.NewerOperations:
                if dataset is not None:
                    raise
        return found

    def _datasets(self) -> list[str]:
        """Every dataset that ever had an operation: the search jumps past all keys of a dataset to the next."""
        found: list[str] = []
        start, end = _under(keys.ROOT, None), _under(keys.ROOT, None) + LAST
        while first := self.meta.range(start, end, limit=1).entries:
            part = first[0].key.split(keys.SEPARATOR)[1]
            found.append(keys.unescape(part))
            start = f"{keys.ROOT}{keys.SEPARATOR}{part}{keys.SEPARATOR}{LAST}"
        return found

    def _running(self, seen: Seen) -> OperationView:
        trouble = seen.trouble
        problem = self.problem_of(seen.id, seen.values.get(seen.id.arg))
        completion = seen.completion()
        return OperationView(
            seen.id,
            OperationState.RUNNING,
            total=len(seen.partitions),
            done=len(completion.marks) - len(completion.failed),
            failed=completion.failed,
            started_at=seen.started_at,
            executors={key: job.note.lease for key, job in seen.unended().items() if job.note is not None},
            problem=problem or (None if trouble is None else trouble.error),
            troubles=seen.troubles(),
            trouble=trouble,
        )


def stored(type_id: str, dataset: str, arg: Any) -> Any:
    """The argument as it is stored. Raises `InvalidOperation`."""
    try:
        return msgspec.json.decode(msgspec.json.encode(arg))
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise _wrong_argument(type_id, dataset, error) from None


def _wrong_argument(type_id: str, dataset: str, error: Exception) -> errors.InvalidOperation:
    why = f"its argument is wrong: {one_line(error)}"
    return errors.InvalidOperation(type_name=type_id, dataset=dataset, why=why)


def _under(prefix: str, dataset: str | None) -> str:
    return prefix + keys.SEPARATOR + ("" if dataset is None else keys.escape(dataset) + keys.SEPARATOR)


def _rule(operation: DistributedOperation[Any]) -> TypeRule:
    return TypeRule(operation.type_name, operation.many, operation.apart_from)
