"""`databuild want …`: record, list, show and take back wants (rules 5); and `explain`: why a ref or want is not being built."""

from typing import Any

import click

from databuild_dagster.calls.answers import absences_in_words, cause_lines, explained, head_of, recorded
from databuild_dagster.cli.definitions import with_definitions
from databuild_dagster.cli.listing import in_states
from databuild_dagster.cli.options import (
    REF,
    Count,
    Selection,
    Where,
    as_of,
    asked,
    common,
    definitions,
    moment,
    one_by_one,
    selection,
    tabular,
)
from databuild_dagster.cli.output import STYLES, answer, count, emit, listing, shown
from databuild_dagster.cli.state import the_engine
from databuild_dagster.data.read_plan import Moment
from databuild_dagster.engine.engine import Engine, Outcome
from databuild_dagster.engine.holders import this_user
from databuild_dagster.engine.why.explain import Explanation
from databuild_dagster.engine.why.want_report import (
    canceled_wants,
    find_wants,
    request_states,
    shown_report,
    want_reports,
)
from databuild_dagster.engine.wording import json_of
from databuild_dagster.model.commands import CancelWants, CreateWants
from databuild_dagster.model.records import columns_of
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import WantState
from databuild_dagster.model.wording import state_in_words
from databuild_dagster.store.queries.ids import IdKind, short_id
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import WantFilter, WantView

#: Refs that are named one by one.
MAX_NAMED = 5
_NONE_OPEN = "No wants are open. `databuild want create REF` records one."
_NONE_MATCH = "No wants match. `databuild want list --all --derivative` lists every want."


@click.command("create")
@selection
@click.option("--together", is_flag=True, help="Record one want for all REFS instead of one per ref.")
@asked(CreateWants)
@definitions
@common
def create(selection: Selection, together: bool, wanted: dict[str, Any], where: Where, as_json: bool) -> None:
    """Record wants for REFS; the orchestrator builds them."""
    engine = the_engine()

    def create_them() -> Outcome:
        refs = selection.refs(engine.queries)
        command = CreateWants(wants=(refs,) if together else tuple((ref,) for ref in refs), **wanted)
        return engine.handle(command, actor=this_user())

    outcome = with_definitions(create_them, where, lambda: engine)
    done = recorded(engine, outcome.request_id or "")
    answer(done.facts, done.screen.head, as_json=as_json)
    for line in done.screen.notes:
        click.echo(line, err=True)


def warn_of_absences(engine: Engine, wants: list[WantView]) -> None:
    """Name the locations of open wants whose orchestrator does not tick (rule 11.4)."""
    for sentence in absences_in_words(engine, wants):
        click.echo(sentence, err=True)


@click.command("list")
@click.option("--all", "every", is_flag=True, help="Also wants that ended.")
@click.option("--derivative", is_flag=True, help="Also wants that job runs recorded for inputs.")
@click.option("--ref", type=REF, help="Only wants that name this ref.")
@click.option("--dataset", metavar="ASSET", help="Only wants for partitions of this asset.")
@in_states(WantState, "wants")
@click.option("--source", help="Only wants of this source, such as user, schedule or arc.")
@click.option("--limit", type=Count(1), default=100, show_default=True, help="Number of wants at most, newest first.")
@as_of
@tabular
def list_wants(
    every: bool,
    derivative: bool,
    ref: Ref | None,
    dataset: str | None,
    states: tuple[WantState, ...],
    source: str | None,
    limit: int,
    as_of: str | None,
    as_json: bool,
) -> None:
    """List the open wants, newest first.

    Wants that job runs recorded for their inputs are left out without --derivative or --source "job run".
    """
    engine = the_engine()
    queries = engine.queries
    which = WantFilter(
        open_only=not every and not states,
        derivative=derivative or source is not None,
        ref=ref,
        asset=dataset,
        states=states,
        source=source,
        seq=moment(queries, as_of).seq,
    )
    wants = find_wants(queries, engine.catalog, which, limit)
    empty = _NONE_MATCH if ref or dataset or states or source or as_of else _NONE_OPEN
    listing(wants, columns_of(WantView), empty=empty, as_json=as_json)
    if as_of is None:
        warn_of_absences(engine, wants)


@click.command("show")
@click.argument("want_or_request")
@as_of
@tabular
def show(want_or_request: str, as_of: str | None, as_json: bool) -> None:
    """Show a want or request, and what it waits for.

    An indented line is the cause of the line above it; the deepest is the first cause. With --as-of only the state is
    shown; `databuild explain --as-of TIME WANT` has the causes of that time.
    """
    engine = the_engine()
    queries = engine.queries
    if (then := moment(queries, as_of)).seq is not None:
        wants = queries.wants.named(queries.ids.full(IdKind.WANT, want_or_request), then.seq)
        empty = f"{want_or_request} had not been recorded{then.when}."
        listing(_with_requests(queries, wants, then.seq), columns_of(WantView), empty=empty, as_json=as_json)
        return
    wants, reports = want_reports(engine, want_or_request)
    records = _with_requests(queries, wants)
    if as_json:
        more = [*(json_of(shown_report(report)) for report in reports), *({} for _ in wants[len(reports) :])]
        emit([{**record, **fields} for record, fields in zip(records, more, strict=True)])
        return
    listing(records, columns_of(WantView), empty="")
    if not wants[0].id.endswith(want_or_request):
        click.echo(f"Request {wants[0].request_id}: {state_in_words(records[0]['request_state'])}.")
    for want, _, causes, derivative_wants in reports:
        click.echo(f"\n{want.id}, of source {want.source}{f': {want.comment}' if want.comment else ''}")
        for line in cause_lines(causes):
            click.echo(line)
        for derivative in derivative_wants:
            click.echo(f"  derivative want {derivative.id} for {shown(derivative.refs)}: {derivative.state.in_words}")
    if len(wants) > len(reports):
        click.echo(f"\n{count(len(wants) - len(reports), 'more want')}: `databuild want show WANT` explains one.")


def _with_requests(queries: Queries, wants: list[WantView], seq: int | None = None) -> list[dict[str, Any]]:
    states = request_states(queries, wants, seq)
    return [{**json_of(want), "request_state": states[want.request_id].value} for want in wants]


@click.command("cancel")
@click.argument("wants_or_requests", nargs=-1, required=True)
@click.option("--terminate", is_flag=True, help="Also stop running job runs that no other want needs.")
@click.option("--reason", default="", help="The reason, kept in the log.")
@common
def cancel(wants_or_requests: tuple[str, ...], terminate: bool, reason: str, as_json: bool) -> None:
    """Cancel wants, and the queued job runs only they need.

    A failed want may be canceled, too: builds of inputs that were kept for it end, unless other wants need them.
    """
    engine = the_engine()
    ids = tuple(engine.queries.ids.full(IdKind.WANT, name) for name in wants_or_requests)
    outcome = engine.handle(CancelWants(ids=ids, terminate=terminate, reason=reason), actor=this_user())
    done = canceled_wants(engine.queries, ids, outcome)
    if as_json:
        emit(done.shape())
        return
    n_kept = len(done.kept)
    also = f", and {count(n_kept, 'want')} of inputs that {'was' if n_kept == 1 else 'were'} kept" if n_kept else ""
    click.echo(f"Canceled {count(done.n_canceled, 'want')}{also}.")
    others: dict[Ref, dict[str, None]] = {}
    for still in done.still_kept:
        others.setdefault(still.ref, {})[short_id(still.other_want_id)] = None
    for ref in [*others][:MAX_NAMED]:
        click.echo(f"{ref} stays wanted: it is kept for want {shown([*others[ref]])} too.")
    if len(others) > MAX_NAMED:
        click.echo(f"{count(len(others) - MAX_NAMED, 'more ref')} stay wanted for others; --json names each.")


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

    found = with_definitions(lambda: explained(engine, selection.refs(engine.queries), then), where, lambda: engine)
    for explanation in one_by_one(found, as_json=as_json):
        _tell(explanation, then, as_json=as_json)


def _tell(explanation: Explanation, then: Moment, *, as_json: bool) -> None:
    if as_json:
        emit(explanation)
        return
    name, state, wants = head_of(explanation)
    click.echo(f"{click.style(name, bold=True)}  {click.style(state, fg=STYLES.get(state))}{wants}{then.when}")
    for line in cause_lines(explanation.causes):
        click.echo(line)
