"""An operation is followed to its end: a live table of its partitions on a terminal, plain lines elsewhere; on stderr."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import click
import msgspec
from rich.console import Group
from rich.table import Table
from rich.text import Text

from databuild_dagster.calls.progress import Display
from databuild_dagster.cli.output import count, emit, table
from databuild_dagster.cli.process import FAILED, INTERRUPTED, Exit
from databuild_dagster.engine.holders import in_words
from databuild_dagster.engine.orchestrator_notes import absences_of
from databuild_dagster.features.operations.follow_ups import INTENT_DAYS
from databuild_dagster.features.operations.manager import DistributedOperationManager
from databuild_dagster.features.operations.seen import OperationView
from databuild_dagster.features.operations.tracker import Tracked, Tracker
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.records import Trouble
from databuild_dagster.model.operations.states import JobState, OperationState
from databuild_dagster.model.wording import typed

#: How often the progress of other processes is looked at.
LOOK_SECONDS = 0.5
#: Partitions in the live table, and failed partitions in the summary.
MAX_ROWS = 15
MAX_FAILED = 20
#: Seconds without a taken job after which the orchestrator is looked for.
PATIENCE_SECONDS = 2.0
#: Retried jobs that are reported at a time.
MAX_TOLD = 5
MAX_DETAIL = 120


class OperationProgress(Display):
    """What is known of an operation's progress; cheap to look at again and again."""

    def __init__(self, manager: DistributedOperationManager, id: OperationId) -> None:
        super().__init__()
        self.manager = manager
        self.id = id
        self._tracker = Tracker(manager.meta, id)
        self._last_counts: tuple[int, int] | None = None
        #: Partition, None for the completion, to the trouble that was reported.
        self._told_of: dict[str | None, Trouble] = {}
        self._lock = threading.Lock()

    def look(self) -> Tracked | None:
        """None once it has ended."""
        with self._lock:
            self._tracker.look()
            return self._tracker.find(self.id)

    def tell(self) -> None:
        """Print a line, if something has happened since the last line."""
        tracked = self.look()
        if self.is_live or tracked is None:
            return
        self._tell_trouble(tracked)
        standing = len(tracked.done) - tracked.n_failed, tracked.n_failed
        if standing != self._last_counts:
            self._last_counts = standing
            failed = f", {standing[1]} failed" if standing[1] else ""
            self.say(f"{standing[0]} of {count(len(tracked.partitions), 'job')} done{failed}")

    def _tell_trouble(self, tracked: Tracked) -> None:
        """Each once, and of many at a time only some."""
        found: dict[str | None, Trouble] = {}
        found.update(tracked.troubles)
        if tracked.trouble is not None:
            found[None] = tracked.trouble
        news = [key for key, trouble in found.items() if self._told_of.get(key) != trouble]
        # The completion's comes first: it holds up the whole.
        for place in sorted(news, key=lambda key: key is not None)[:MAX_TOLD]:
            who = str(self.id) if place is None else str(self.id.ref(place))
            self.say(f"{who} {trouble_of(found[place], self.manager.engine.now())}")
        if len(news) > MAX_TOLD:
            self.say(f"… and {len(news) - MAX_TOLD} more are tried again.")
        self._told_of = found

    def render(self) -> Group:
        """For rich's own thread."""
        tracked = self.look()
        if tracked is None:
            return Group(Text(f"{self.id} has ended, {self.seconds:.0f} s", style="bold"))
        total, n_done = len(tracked.partitions), len(tracked.done) - tracked.n_failed
        head = f"{self.id}: {n_done} of {count(total, 'job')} done, {tracked.n_failed} failed, {self.seconds:.0f} s"
        rows = Table(box=None, pad_edge=False)
        for name in ("partition", "state", "by"):
            rows.add_column(name)
        for partition, state, by, style in list(_rows(tracked, self.manager.engine.now()))[:MAX_ROWS]:
            rows.add_row(partition or "(whole)", Text(state, style=style), by)
        left = total - n_done - tracked.n_failed - len(tracked.taken)
        shown: list[Text | Table] = [Text(head, style="bold"), rows, Text(f"{count(left, 'job')} waiting", style="dim")]
        if tracked.trouble is not None:
            shown.append(Text(f"It {trouble_of(tracked.trouble, self.manager.engine.now())}", style="red"))
        return Group(*shown)


def trouble_of(trouble: Trouble, now: float) -> str:
    """What a person reads behind the name of what is tried again."""
    seconds = trouble.next_at - now
    due = f"in {seconds:.0f} s" if seconds > 0 else "now"
    return f"is tried again {due}, after attempt {trouble.attempts}: {trouble.error}"


def _rows(tracked: Tracked, now: float) -> Iterator[tuple[str, str, str, str]]:
    for partition, state in list(tracked.done.items()):
        if state is JobState.FAILED:
            yield partition, "failed", "", "red"
    troubles = dict(tracked.troubles)
    for partition, trouble in troubles.items():
        yield partition, "retrying", trouble_of(trouble, now), "yellow"
    for partition, taken in list(tracked.taken.items()):
        if partition in troubles:
            continue
        yield partition, "running", in_words(taken.lease.holder), "cyan"
    for partition, state in reversed(list(tracked.done.items())):
        if state is JobState.SUCCESS:
            yield partition, "done", "", "green"


def follow_to_end(following: OperationProgress, timeout_seconds: float | None = None) -> None:
    """Wait while other processes run the operation, and say once that no orchestrator ticks.

    Leaves with exit code 1 after the timeout; the operation continues.
    """
    wait = threading.Event().wait
    idle_since, has_complained = 0.0, False
    while (tracked := following.look()) is not None:
        following.tell()
        if tracked.taken:
            idle_since = following.seconds
        if not has_complained and following.seconds - idle_since > PATIENCE_SECONDS:
            for absence in absences_of(following.manager.engine, [following.id.dataset]):
                has_complained = True
                click.echo(
                    f"{following.id} waits: {absence.sentence}. `databuild operation show --watch --local {typed(following.id)}` runs its "
                    "jobs in a process of your own.",
                    err=True,
                )
        if timeout_seconds is not None and following.seconds >= timeout_seconds:
            click.echo(
                f"{following.id} has not ended after {timeout_seconds:.0f} s. {_goes_on(following.id)}", err=True
            )
            raise Exit(FAILED)
        wait(LOOK_SECONDS)


def _goes_on(id: OperationId) -> str:
    return f"It continues: `databuild operation show --watch {typed(id)}` shows it, `databuild operation cancel {typed(id)}` ends it."


# The end


def finished(view: OperationView, *, as_json: bool, is_local: bool) -> None:
    """Tell how an operation has ended. Leaves with exit code 1 if jobs failed, or what it found offends."""
    if as_json:
        emit(as_answer(view))
    else:
        tell_end(view, is_local=is_local)
    if view.state is not OperationState.SUCCESS or offends(view.report):
        raise Exit(FAILED)


def detached(id: OperationId, *, is_local: bool) -> None:
    """Ctrl-C ends the looking on, and not the operation."""
    given_back = " The jobs of this process are free for others." if is_local else ""
    click.echo(f"Stopped waiting for {id}.{given_back} {_goes_on(id)}", err=True)
    raise Exit(INTERRUPTED)


def as_answer(view: OperationView) -> dict[str, Any]:
    """Rules 15; what the type's own report says stands beside it."""
    own = {
        "operation": str(view.id),
        "state": view.state,
        "done": view.done,
        "total": view.total,
        "reason": view.reason,
        "failed": len(view.failed),
        "failed_partitions": view.failed,
        "follow_ups": view.follow_ups,
    }
    report = view.report if isinstance(view.report, dict) else {"report": view.report}
    return {**report, **own}


def tell_follow_ups(view: OperationView, *, is_local: bool = False) -> None:
    """`is_local`: this process ran the jobs of the operation; it runs none of a follow-up."""
    for follow_up in view.follow_ups:
        what = f"{follow_up.type} on {follow_up.dataset}"
        if follow_up.operation is not None:
            here = f"; `databuild operation show --watch --local {typed(follow_up.operation)}` runs its jobs here"
            shows = here if is_local else f": `databuild operation show --watch {typed(follow_up.operation)}` shows it"
            click.echo(f"It started {follow_up.operation}{shows}.")
        elif follow_up.refused:
            click.echo(f"It could not start {what}: {follow_up.refused}")
        else:
            click.echo(f"It starts {what} when an orchestrator with that type ticks, within {INTENT_DAYS} days.")


def offends(report: Any) -> bool:
    """Whether a report says that something is wrong: `ok` is false, or any of its `rules` has `offending` rows."""
    if not isinstance(report, dict):
        return False
    rules = report.get("rules")
    broken = isinstance(rules, list) and any(isinstance(rule, dict) and rule.get("offending") for rule in rules)
    return report.get("ok") is False or broken


def tell_end(view: OperationView, *, is_local: bool) -> None:
    rules = isinstance(view.report, dict) and isinstance(view.report.get("rules"), list)
    # A partition with offending rows is shown at its rules.
    failed = [
        (key, detail)
        for key, detail in view.failed.items()
        if not (rules and isinstance(detail, dict) and "constraints" in detail)
    ]
    if failed:
        rows = [(partition or "(whole)", detail_of(detail)) for partition, detail in failed[:MAX_FAILED]]
        table(("partition", "why it failed"), rows, empty="")
        if len(failed) > MAX_FAILED:
            click.echo(
                f"… and {len(failed) - MAX_FAILED} more; `databuild operation show {typed(view.id)}` lists them."
            )
    if rules:
        tell_rules(view.report)
    elif view.report is not None:
        click.echo(msgspec.json.format(msgspec.json.encode(view.report)).decode())
    why = f" ({view.reason})" if view.reason else ""
    failed_too = f", {len(view.failed)} failed" if view.failed else ""
    click.echo(f"{view.id}: {view.state.value}{why}; {view.done} of {count(view.total, 'job')} done{failed_too}.")
    tell_follow_ups(view, is_local=is_local)


def tell_rules(report: dict[str, Any]) -> None:
    """What `validate` has found: each rule, then where it is broken, with rows."""
    rules = report["rules"]
    table(
        ("rule", "rows that offend", "partitions"),
        [(rule["rule"], rule["offending"], rule.get("n_partitions", "")) for rule in rules],
        empty="No rules.",
    )
    for rule in rules:
        if not rule["offending"]:
            continue
        click.echo(f"\n{rule['rule']}:")
        found = rule.get("partitions", [])
        for one in found[:MAX_FAILED]:
            samples = one.get("samples") or []
            more = ":" if len(samples) == one["offending"] else ", for example:"
            click.echo(f"  {one['ref']}  {count(one['offending'], 'row')}{more if samples else ''}")
            for sample in samples:
                click.echo(f"    {_row(sample)}")
        if len(found) > MAX_FAILED:
            click.echo(f"  … and {count(len(found) - MAX_FAILED, 'partition')} more; --json has them.")
    click.echo(
        f"\n{count(report.get('rows', 0), 'row')} in {count(report.get('partitions', 0), 'partition')} looked at."
    )
    if tainted := report.get("tainted"):
        click.echo(f"Tainted {count(len(tainted), 'partition')}.")
    if outdated := report.get("outdated"):
        click.echo(f"{count(len(outdated), 'partition')} rebuilt or tainted meanwhile: this is of the instance before.")


def _row(sample: Any) -> str:
    """A sample row on a single line; older reports have samples as text."""
    return sample if isinstance(sample, str) else json.dumps(sample, ensure_ascii=False, separators=(",", ":"))


def detail_of(detail: Any) -> str:
    if isinstance(detail, dict) and isinstance(detail.get("error"), str):
        return str(detail["error"])
    text = "" if detail is None else msgspec.json.encode(detail).decode()
    return text if len(text) <= MAX_DETAIL else text[: MAX_DETAIL - 1] + "…"
