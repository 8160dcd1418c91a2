"""`databuild plan --if-tainted`, `--if-new-code` and `--if-missing`: what follows from a supposition, with nothing recorded (rule 8.10)."""

from collections import Counter, defaultdict
from collections.abc import Callable

import click

from databuild_dagster.cli.definitions import with_definitions
from databuild_dagster.cli.options import Selection, Where, common, definitions, selection
from databuild_dagster.cli.output import count, emit, shown
from databuild_dagster.cli.state import the_engine
from databuild_dagster.features.what_if.answers import Change, Effect, Question, WhatIf, what_if_shape
from databuild_dagster.features.what_if.questions import if_code_changes, if_missing, if_tainted
from databuild_dagster.model.refs import Ref

_COLOURS = {
    Effect.BUILD: "cyan",
    Effect.JOIN: "blue",
    Effect.WAIT: "yellow",
    Effect.BLOCKED: "red",
    Effect.TAINTED: "magenta",
    Effect.STALE: "yellow",
}
#: Lines of reasons below a job; --json has each.
MAX_REASONS = 5


@click.command("taint")
@selection
@click.option("--downstream", is_flag=True, help="Also what was built from them, or will be, by recorded inputs.")
@definitions
@common
def taint(selection: Selection, downstream: bool, where: Where, as_json: bool) -> None:
    """Show what follows if the data of REFS is tainted.

    build: an open want gets it built again. tainted: no open want asks for it. stale: it was built from them and stays live.
    """
    _answer(lambda: if_tainted(the_engine(), _refs(selection), downstream=downstream), where, as_json=as_json)


@click.command("code")
@click.argument("asset")
@definitions
@common
def code(asset: str, where: Where, as_json: bool) -> None:
    """Show what new code of ASSET builds again.

    build: a live partition of the asset. stale: it was built from such a partition and stays live.
    """
    _answer(lambda: if_code_changes(the_engine(), asset), where, as_json=as_json)


@click.command("missing")
@selection
@definitions
@common
def missing(selection: Selection, where: Where, as_json: bool) -> None:
    """Show what waits if REFS never arrive.

    wait: it needs them. build: it is built all the same.
    """
    _answer(lambda: if_missing(the_engine(), _refs(selection)), where, as_json=as_json)


def _refs(selection: Selection) -> tuple[Ref, ...]:
    return selection.refs(the_engine().queries)


def _answer(ask: Callable[[], WhatIf], where: Where, *, as_json: bool) -> None:
    found = with_definitions(ask, where)
    if as_json:
        emit(what_if_shape(found))
        return
    click.echo(_supposition(found))
    by_job: dict[tuple[Effect, str], list[Change]] = defaultdict(list)
    for change in found.changes:
        by_job[change.effect, change.job].append(change)
    for (effect, job), changes in by_job.items():
        click.echo(f"  {click.style(effect.value, fg=_COLOURS[effect])} {_in_words(job, changes)}")
    for note in found.notes:
        click.echo(note)
    click.echo(_totals(found))


def _supposition(found: WhatIf) -> str:
    named = shown(found.named)
    match found.question:
        case Question.TAINT:
            return f"If {named} {'is' if len(found.named) == 1 else 'are'} tainted:"
        case Question.CODE:
            return f"If new code builds {named} again:"
        case Question.MISSING:
            return f"If {named} never {'arrives' if len(found.named) == 1 else 'arrive'}:"


def _in_words(job: str, changes: list[Change]) -> str:
    if len(changes) == 1:
        return f"{changes[0].ref}: {changes[0].reason}"
    reasons: dict[str, list[Ref]] = defaultdict(list)
    for change in changes:
        reasons[change.reason].append(change.ref)
    if len(reasons) == 1:
        return f"{job} {count(len(changes), 'ref')}, {shown([change.ref for change in changes])}: {changes[0].reason}"
    lines = [f"{job} {count(len(changes), 'ref')}:"]
    lines += [f"    {shown(refs)}: {reason}" for reason, refs in list(reasons.items())[:MAX_REASONS]]
    if (more := len(reasons) - MAX_REASONS) > 0:
        lines.append(f"    and refs for {count(more, 'other reason')}; --json has each")
    return "\n".join(lines)


def _totals(found: WhatIf) -> str:
    counts = Counter(change.effect for change in found.changes)
    parts = ", ".join(f"{counts[effect]} {effect.value}" for effect in Effect if counts[effect]) or "no change"
    line = (
        f"{count(len(found.changes), 'ref')}: {parts}; {count(found.n_launches, 'launch', 'launches')}{_time(found)}."
    )
    if found.wants_reopened:
        line += f" {count(found.wants_reopened, 'want')} would open again."
    if found.question is Question.MISSING and found.wants_open:
        line += f" {count(found.wants_open, 'want')} would wait."
    return f"{line} Nothing was done."


def _time(found: WhatIf) -> str:
    if not found.launches:
        return ""
    unknown = f"no history of {shown(found.without_history)}" if found.without_history else ""
    if found.seconds is None or found.seconds_of_all is None:
        return f", expected time unknown: {unknown}"
    about = f", about {found.seconds:.1f} s for the longest chain and {found.seconds_of_all:.1f} s one after another"
    return about + (f", and {unknown}" if unknown else "")
