"""`databuild explain REF|WANT`: why something is, or is not, being built right now, back to the first cause."""

from __future__ import annotations

from collections.abc import Iterator

import click

from databuild_dagster.cli.definitions import with_definitions
from databuild_dagster.cli.options import Selection, Where, as_of, common, definitions, moment, one_by_one, selection
from databuild_dagster.cli.output import STYLES, count, emit
from databuild_dagster.cli.state import the_engine
from databuild_dagster.data.read_plan import Moment
from databuild_dagster.engine.why.alike import lines_of
from databuild_dagster.engine.why.explain import Cause, Explanation, explain_as_of
from databuild_dagster.engine.why.explain import explain as explanation_of
from databuild_dagster.shapes.wants import explanation_shape

#: Lines for people; a program gets all that the answer has.
MAX_LINES = 30


@click.command("explain")
@selection(metavar="REF|WANT...")
@as_of
@definitions
@common
def explain(selection: Selection, as_of: str | None, where: Where, as_json: bool) -> None:
    """Explain why REFS are or are not being built now.

    An indented line is the cause of the line above it; the deepest is the first cause. Refs with the same cause
    share a line. With --as-of, the answer of that time, as far as the log has it. The log is folded up to that time, which
    takes as long as `databuild log rebuild`.
    """
    engine = the_engine()
    then = moment(engine.queries, as_of)

    def explanations() -> list[Explanation]:
        names = selection.refs(engine.queries)
        if then.seq is None or then.at is None:
            return [explanation_of(engine, name) for name in names]
        return [explain_as_of(engine, name, then.seq, then.at) for name in names]

    for explanation in one_by_one(with_definitions(explanations, where, lambda: engine), as_json=as_json):
        _tell(explanation, then, as_json=as_json)


def _tell(explanation: Explanation, then: Moment, *, as_json: bool) -> None:
    if as_json:
        emit(explanation_shape(explanation))
        return
    state = explanation.state or "missing"
    wants = "" if explanation.wants is None else _counted(explanation.wants)
    shown_state = click.style(state, fg=STYLES.get(state))
    click.echo(f"{click.style(explanation.ref, bold=True)}  {shown_state}{wants}{then.when}")
    for line in cause_lines(explanation.causes):
        click.echo(line)


def _counted(wants: dict[str, int]) -> str:
    """Only where there is something to count."""
    if sum(wants.values()) == 1:
        return ""
    return " (" + ", ".join(f"{n} {state}" for state, n in wants.items()) + " wants)"


def cause_lines(causes: tuple[Cause, ...]) -> Iterator[str]:
    """A line for each ref; those that have the same cause share one."""
    lines = list(lines_of(causes))
    for depth, line in lines[:MAX_LINES]:
        yield f"{'  ' * (depth + 1)}{line}"
    if (more := len(lines) - MAX_LINES) > 0:
        yield f"  and {count(more, 'more line')}; --json has every cause"
