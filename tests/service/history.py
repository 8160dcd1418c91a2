"""What clients recorded, as operations of registers; and what of it breaks a promise."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .linear import Operation, first_fault
from .registers import Readers, pauses, readers

#: A transaction of a killed client that the database ends after it.
GRACE_SECONDS = 5.0
#: A process that is frozen for longer may be taken for dead, and its ref built by another.
LEASE_SECONDS = 30.0

#: Refusals that say what readers see.
NOT_READABLE = {"TaintedRef", "NotLive"}
NOTHING_TO_TAINT = {"NothingToTaint"}


class Call(NamedTuple):
    """A command of a client."""

    client: str
    pid: int
    what: str
    ref: str
    of: str | None
    called: float
    #: None if its client was killed before.
    answered: float | None = None
    code: int | None = None
    answer: Any = None

    @property
    def error(self) -> str | None:
        """The type of its refusal."""
        is_refusal = isinstance(self.answer, dict) and "error" in self.answer
        return self.answer["error"]["type"] if is_refusal else None


class Execution(NamedTuple):
    """A call of an asset's function."""

    ref: str
    token: str
    pid: int
    begin: float
    #: None if its process was killed before.
    end: float | None = None


class Instance(NamedTuple):
    """An instance that was live, in the order of the ref's history."""

    uuid: str
    token: str
    #: The token of the input's instance that its lineage names, and the one that its data has.
    input_by_lineage: str | None = None
    input_by_data: str | None = None


class Troubles(NamedTuple):
    """What was done to processes: the moment of a kill, and the times of freezes, by pid."""

    killed: dict[int, float]
    frozen: dict[int, list[tuple[float, float]]]
    #: When everything had ended.
    end: float


class Final(NamedTuple):
    """What the service says after the end."""

    instances: dict[str, list[Instance]]
    #: The states of all wants, by id.
    wants: dict[str, str]
    log_check: str


def calls_of(folder: Path) -> list[Call]:
    """The records of all clients."""
    found: list[Call] = []
    for file in sorted(folder.glob("client-*.jsonl")):
        open_calls: dict[int, Call] = {}
        for record in _lines(file):
            if "call" in record:
                open_calls[record["call"]] = Call(
                    file.stem, record["pid"], record["what"], record["ref"], record["of"], record["at"]
                )
            else:
                call = open_calls.pop(record["answer"])
                found.append(call._replace(answered=record["at"], code=record["code"], answer=record["out"]))
        found += open_calls.values()
    return found


def executions_of(file: Path) -> list[Execution]:
    """The calls of functions, by their begin."""
    found: dict[str, Execution] = {}
    for record in _lines(file):
        if record["what"] == "begin":
            found[record["token"]] = Execution(record["ref"], record["token"], record["pid"], record["at"])
        else:
            found[record["token"]] = found[record["token"]]._replace(end=record["at"])
    return sorted(found.values(), key=lambda execution: execution.begin)


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """The last line of a killed process may be cut."""
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def faults(calls: list[Call], executions: list[Execution], troubles: Troubles, final: Final) -> list[str]:
    """The broken promises, as sentences."""
    found = [] if not final.log_check else [f"log check: {final.log_check}"]
    for ref, instances in final.instances.items():
        taints = {
            call.answer["taint_id"] for call in calls if call.what == "taint" and call.ref == ref and _is_done(call)
        }
        of_ref = [call for call in calls if call.ref == ref or (call.what == "untaint" and call.ref in taints)]
        found += _register(f"{ref}: readers", _of_readers(of_ref, executions, instances, troubles), Readers(), readers)
        found += _register(f"{ref}: pause", _of_pauses(of_ref, troubles), False, pauses)
        found += _lineage(ref, instances)
    found += _overlaps(executions, troubles)
    found += _lost_wants(calls, final.wants)
    found += [f"{call.what} {call.ref} ended by {call.answer}" for call in calls if call.code not in (None, 0, 1, 2)]
    return found


def _register(name: str, operations: list[Operation], first: Any, apply: Any) -> Iterator[str]:
    fault = first_fault(operations, first, apply)
    if fault is not None:
        near = [one for one in operations if one.answered >= fault.called - 30 and one.called <= fault.answered]
        story = "\n    ".join(str(one) for one in sorted(near, key=lambda one: one.called))
        yield f"{name}: no order of the commands explains\n    {fault}\n  among\n    {story}"


def _of_readers(
    calls: list[Call], executions: list[Execution], instances: list[Instance], troubles: Troubles
) -> list[Operation]:
    by_token = {instance.token: instance.uuid for instance in instances}
    found = list(_publishes(executions, instances, troubles))
    for call in calls:
        answer = call.answer
        ok = _is_done(call)
        match call.what:
            case "show" if ok:
                is_live = answer["state"] == "Live"
                found.append(
                    _seen(call, "sees" if is_live else "sees nothing", is_live and answer["canonical"]["uuid"])
                )
            case "read" if ok:
                token = answer[0][call.ref[0]] if answer else None
                found.append(_seen(call, "sees", by_token.get(token, f"the unpublished data {token}")))
            case "read" if call.error in NOT_READABLE:
                found.append(_seen(call, "sees nothing"))
            case "taint" if call.error in NOTHING_TO_TAINT:
                found.append(_seen(call, "sees nothing"))
            case "build" if ok:
                found.append(_seen(call, "sees something"))
            case "taint":
                found += _done(call, call.answer and call.answer.get("taint_id"), troubles)
            case "revert":
                found += _done(call, call.of, troubles)
            case "untaint":
                # The command names the taint.
                found += _done(call, call.ref, troubles)
    return found


def _of_pauses(calls: list[Call], troubles: Troubles) -> list[Operation]:
    found: list[Operation] = []
    for call in calls:
        match call.what, call.error:
            case "pause", "AlreadyPaused":
                found.append(_seen(call, "sees a pause"))
            case "resume", "NotPaused":
                found.append(_seen(call, "sees no pause"))
            case "pause" | "resume", _:
                found += _done(call, None, troubles)
            case "show", None if _is_done(call):
                found.append(_seen(call, "sees a pause" if call.answer["paused"] else "sees no pause"))
    return found


def _publishes(executions: list[Execution], instances: list[Instance], troubles: Troubles) -> Iterator[Operation]:
    """Each instance became live after its function had returned, and before that of the next one began: one lease per ref."""
    of_token = {execution.token: execution for execution in executions}
    calls = [of_token.get(instance.token) for instance in instances]
    for place, (instance, execution) in enumerate(zip(instances, calls, strict=True)):
        later = next((call for call in calls[place + 1 :] if call is not None), None)
        if execution is None or execution.end is None:
            # Data that no function returned: a reader who sees it is a fault.
            continue
        until = troubles.end if later is None else later.begin
        until = min(until, troubles.killed.get(execution.pid, troubles.end) + GRACE_SECONDS)
        yield Operation(
            "publish", execution.end, max(until, execution.end), instance.uuid, client=f"pid {execution.pid}"
        )


def _seen(call: Call, what: str, fact: Any = None) -> Operation:
    assert call.answered is not None
    return Operation(what, call.called, call.answered, fact or None, client=call.client)


def _done(call: Call, fact: Any, troubles: Troubles) -> Iterator[Operation]:
    """A change; unsure if its client was killed, none if it was refused."""
    if call.answered is None:
        until = troubles.killed.get(call.pid, troubles.end) + GRACE_SECONDS
        yield Operation(call.what, call.called, until, fact or f"of {call.client} at {call.called}", False, call.client)
    elif _is_done(call):
        yield Operation(call.what, call.called, call.answered, fact, client=call.client)


def _is_done(call: Call) -> bool:
    return call.answered is not None and call.error is None and call.code == 0


def _lineage(ref: str, instances: list[Instance]) -> Iterator[str]:
    for instance in instances:
        if instance.input_by_data != instance.input_by_lineage:
            yield (
                f"{ref}: instance {instance.uuid} was made of the data {instance.input_by_data}, and its lineage names "
                f"the data {instance.input_by_lineage}"
            )


def _overlaps(executions: list[Execution], troubles: Troubles) -> Iterator[str]:
    """One lease per ref: no function begins while another one of the ref is at work."""
    of_ref: dict[str, list[Execution]] = defaultdict(list)
    for execution in executions:
        for before in of_ref[execution.ref]:
            end = min(before.end or troubles.end, troubles.killed.get(before.pid, troubles.end))
            was_away = any(
                until - since >= LEASE_SECONDS and since < execution.begin
                for since, until in troubles.frozen.get(before.pid, ())
            )
            if execution.begin < end and not was_away:
                yield f"{execution.ref}: {execution} began while {before} was at work"
        of_ref[execution.ref].append(execution)


def _lost_wants(calls: list[Call], wants: dict[str, str]) -> Iterator[str]:
    """No acknowledged command is lost."""
    for call in calls:
        if not _is_done(call):
            continue
        if call.what == "want":
            for want in call.answer:
                if want["id"] not in wants:
                    yield f"want {want['id']} of {call.ref} was acknowledged to {call.client}, and is not in the log"
        if call.what == "cancel":
            for want in call.answer:
                if want["state"] == "Canceled" != wants.get(want["id"]):
                    yield f"want {want['id']} was canceled by {call.client}, and is {wants.get(want['id'])}"
