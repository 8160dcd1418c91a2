"""Operations that completion code asked for: started at the end of their operation, or later from an intent (rule 9.6).

A single invoke removes an intent, starts its operation and writes the outcome, so no follow-up starts twice and none is lost.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, NamedTuple

from msgspec.structs import replace

from databuild_dagster.features.operations.manager import MAX_RACES, DistributedOperationManager, stored
from databuild_dagster.model.errors import NewerOperation, Refused
from databuild_dagster.model.meta_storage import Entry, Op, Put, Remove, Statement, as_read, both, do, exists, iif
from databuild_dagster.model.operations import invokes, records
from databuild_dagster.model.operations.invokes import Start
from databuild_dagster.model.operations.keys import DatasetKeys, OperationId
from databuild_dagster.model.operations.records import FollowUp, Intent, to_bytes

#: The time for a coordinator that has the type of a follow-up to turn its intent into a start.
INTENT_DAYS = 7


class Prepared(NamedTuple):
    """The follow-ups of an operation that ends now."""

    #: In the order in which they were asked for.
    outcomes: list[FollowUp]
    #: Started by the invoke that ends the operation.
    starts: list[Start]
    #: By key; each becomes a start later.
    intents: dict[str, Intent]


def prepared(
    manager: DistributedOperationManager, after: OperationId, run_ops: Entry, asked: Iterable[tuple[str, str, Any]]
) -> Prepared:
    """The starts and intents for (type, dataset, argument) of each follow-up of an operation, which runs beside none of them.

    Raises errors of the types' own checks that are no refusals.
    """
    found = Prepared([], [], {})
    running = [id for id in records.run_ops_of(after.dataset, run_ops.value) if id != after]
    counters: dict[str, Entry] = {}
    for ordinal, (type_id, dataset, arg) in enumerate(asked):
        outcome = FollowUp(type_id, dataset)
        try:
            if dataset == after.dataset:
                start = manager.prepared(type_id, dataset, arg, by=str(after))
                start = manager.numbered(start, running, counters)
                running.append(start.id)
                found.starts.append(start)
                outcome = FollowUp(type_id, dataset, str(start.id))
            else:
                manager.engine.queries.datasets.known(dataset)
                intent = Intent(str(after), ordinal, type_id, dataset, stored(type_id, dataset, arg))
                found.intents[after.follow_up(ordinal)] = intent
        except Refused as refused:
            outcome = FollowUp(type_id, dataset, refused=refused.message)
        found.outcomes.append(outcome)
    return found


def start_intended(manager: DistributedOperationManager, entry: Entry) -> bool:
    """Turn an intent into a start, or into a refusal in the outcome of the operation before it.

    False if it has to wait, because its type is not known here or newer code wrote it. An intent whose type no coordinator
    had for `INTENT_DAYS` is refused.
    """
    intent = records.intent_of(entry.value or b"")
    for _ in range(MAX_RACES):
        # A lost race has used up its command id, in this pass or an earlier one.
        command_id = f"{_command_of(intent)}.{manager.meta.get_all([entry.key]).revision}"
        try:
            statement = _statement(manager, entry, intent)
        except NewerOperation:
            return False
        if statement is None:
            return False
        answers = manager.meta.invoke_all([statement], command_id=command_id)
        if answers.value is not False or manager.meta.get(entry.key).value is None:
            return True
    return False


def _statement(manager: DistributedOperationManager, entry: Entry, intent: Intent) -> Statement | None:
    """None if the intent has to wait for a coordinator that has its type."""
    after = OperationId.parse(intent.after)
    history, run_ops = manager.meta.get_all([after.history, DatasetKeys.of(intent.dataset).run_ops]).entries
    ended = records.ended_of(after, history.value or b"")
    still = both(exists(entry.key), as_read(history))

    def outcome(follow_up: FollowUp) -> tuple[Op, ...]:
        outcomes = [*ended.follow_ups[: intent.ordinal], follow_up, *ended.follow_ups[intent.ordinal + 1 :]]
        return Put(history.key, to_bytes(replace(ended, follow_ups=tuple(outcomes)))), Remove(entry.key)

    def refusal(why: str) -> Statement:
        return iif(still, do(*outcome(FollowUp(intent.type, intent.dataset, refused=why)), yields=True))

    if intent.type not in manager.types:
        if manager.engine.now() < ended.ended_at + INTENT_DAYS * 24 * 3600:
            return None
        return refusal(f"No orchestrator with operation type {intent.type!r} ticked within {INTENT_DAYS} days.")
    try:
        start = manager.prepared(intent.type, intent.dataset, intent.arg, by=intent.after)
        start = manager.numbered(start, records.run_ops_of(intent.dataset, run_ops.value), {})
    except NewerOperation:
        raise
    except Refused as refused:
        return refusal(refused.message)
    started = outcome(FollowUp(intent.type, intent.dataset, str(start.id)))
    return invokes.start(start, run_ops, *started, still=still)


def _command_of(intent: Intent) -> str:
    """The id of the start's command, by (operation, type, dataset, sha256 of the argument, ordinal)."""
    about = [intent.after, intent.type, intent.dataset, sha256(to_bytes(intent.arg)).hexdigest(), intent.ordinal]
    return f"follow-up {sha256(to_bytes(about)).hexdigest()}"
