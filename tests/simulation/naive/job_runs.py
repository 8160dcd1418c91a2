"""Job runs begin, and end in one of their ways (rules 6)."""

from __future__ import annotations

from databuild_dagster.model import errors
from databuild_dagster.model.states import InstanceState, WantState

from .consequences import settle
from .state import FAILING, Answer, Naive, NaiveRef, NaiveRun

_I = InstanceState

#: Rule 6.8, and the pause after a dep miss whose refs came meanwhile (rule 6.5).
BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, MAX_ATTEMPTS = 5.0, 600.0, 3
#: Rules 6.17, 6.18.
MAX_OUTAGES, MAX_LOSSES = 3, 20
#: Rule 6.7.
MAX_MISSES = 20


def buffer(naive: Naive, outputs: tuple[str, ...], launch_id: str) -> tuple[str, ...]:
    """The due ones of these outputs, each with a new instance, whose job run waits to begin (rule 6.2)."""
    built = tuple(ref for ref in outputs if ref in naive.due())
    run = NaiveRun(built, launch_id)
    for ref in built:
        before = naive.refs[ref]
        seen_before = before if before.was_live else before.before
        counts = {name: getattr(before, name) for name in ("attempts", "outages", "losses", "n_misses")}
        naive.refs[ref] = NaiveRef(_I.BUILDING, run, before=seen_before, **counts)
        naive.history[ref].append(naive.refs[ref])
    settle(naive)
    return built


def begin(naive: Naive, launch_id: str) -> None:
    for row in naive.open_of(launch_id):
        row.run.is_queued = False


def lose(naive: Naive, launch_id: str, fate: str) -> Answer:
    """Rules 6.9, 6.18: queued job runs are lost too, and the first loss is retried at once."""
    hosted = {id(row.run) for of_ref in naive.history.values() for row in of_ref if row.run.launch_id == launch_id}
    counts = fate == "raised" or (fate == "crashed" and len(hosted) == 1)
    for row in naive.open_of(launch_id):
        delay = BACKOFF_SECONDS * 2 ** (row.attempts + row.losses)
        is_first = not row.attempts and not row.losses
        row.losses += fate != "raised"
        row.attempts += counts
        is_over = row.attempts >= MAX_ATTEMPTS if counts else row.losses >= MAX_LOSSES
        row.attempts += is_over and not counts
        row.state = _I.FAILED if is_over else _I.UP_FOR_RETRY
        row.retry_at = 0.0 if is_first else naive.now + min(delay, MAX_BACKOFF_SECONDS)
    settle(naive)
    return None


def succeed(naive: Naive, ref: str, inputs: list[NaiveRef], rows: str | None = None) -> Answer:
    """An output of an input under a downstream taint is tainted at once (rule 7.3), and equals nothing (rule 4.8)."""
    if not naive.runs(ref):
        return errors.StaleJobRun
    for row in naive.outputs(ref):
        row.was_live, row.inputs, row.rows = True, inputs, rows
        spreading = [item for item in (row.before, *inputs) if item is not None and item.taints & naive.extending]
        if rows is not None and row.before is not None and row.before.rows == rows and not spreading:
            row.equal_to = row.before
        row.forget()
        row.taints = {taint for item in inputs for taint in item.taints & naive.extending}
        row.state = _I.TAINTED if row.taints else _I.LIVE
    settle(naive)
    return None


def fail(naive: Naive, ref: str, kind: str) -> Answer:
    """Rules 6.8, 6.17"""
    if not naive.runs(ref):
        return errors.StaleJobRun
    for row in naive.outputs(ref):
        row.retry_at = naive.now + min(BACKOFF_SECONDS * 2 ** (row.attempts + row.outages), MAX_BACKOFF_SECONDS)
        if kind == "outage" and row.outages < MAX_OUTAGES:
            row.outages += 1
            row.state = _I.UP_FOR_RETRY
        else:
            row.attempts += 1
            row.state = _I.UP_FOR_RETRY if kind != "hard" and row.attempts < MAX_ATTEMPTS else _I.FAILED
    settle(naive)
    return None


def miss(naive: Naive, ref: str, impacted: dict[str, tuple[str, ...]]) -> Answer:
    """Rules 6.3, 6.5, 6.7"""
    if not naive.runs(ref):
        return errors.StaleJobRun
    for row in naive.outputs(ref):
        row.open()
    failing = []
    for output, missing in impacted.items():
        row = naive.refs[output]
        row.missing, naive.learned[output] = missing, set(missing)
        row.n_misses += 1
        states = {naive.refs[item].state for item in missing}
        if row.n_misses > MAX_MISSES:
            row.state = _I.FAILED
        elif states == {_I.LIVE}:
            row.retry_at = naive.now + BACKOFF_SECONDS
        else:
            row.state = _I.UPSTREAM_BUILDING
            failing += [row] if states & FAILING else []
    cycles = {item: cycle for item in naive.refs if (cycle := _shortest_cycle(naive, item))}
    for item, cycle in cycles.items():
        naive.refs[item].state, naive.refs[item].cycle = _I.FAILED, cycle
    for row in failing:
        if row.state is _I.UPSTREAM_BUILDING:
            row.state = _I.UPSTREAM_FAILED
    settle(naive)
    return None


def _shortest_cycle(naive: Naive, ref: str) -> tuple[str, ...]:
    """Rule 6.7: the smallest of the shortest cycles of waiting refs on which a ref lies."""
    found: list[tuple[str, ...]] = []
    paths = [(ref,)]
    for path in paths:
        row = naive.refs[path[-1]]
        for item in row.missing if row.state is _I.UPSTREAM_BUILDING else ():
            if item == ref:
                at = path.index(min(path))
                found.append((*path[at:], *path[:at]))
            elif item not in path:
                paths.append((*path, item))
    return min(found, key=lambda cycle: (len(cycle), cycle), default=())


def cancel_job_run(naive: Naive, ref: str, *, keep_wants: bool, fail_missed: bool) -> Answer:
    """Rule 6.10, output by output."""
    if naive.refs[ref].state is not _I.BUILDING:
        return errors.JobRunEnded
    outputs = naive.refs[ref].run.outputs
    failed = {output for output in outputs if fail_missed and naive.is_missed(output)}
    for output in outputs:
        for want in naive.wants:
            if want.is_open and output in want.refs and output not in failed and not keep_wants:
                want.state = WantState.CANCELED
    for output in outputs:
        naive.refs[output].open()
        if output in failed:
            naive.refs[output].state = _I.FAILED
    settle(naive)
    return None
