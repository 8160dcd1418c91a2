"""`databuild history --requests`: what each request got, and who built it (rules 8)."""

import click

from databuild_dagster.cli.known_refs import canonical_of
from databuild_dagster.cli.options import REF, Count, tabular
from databuild_dagster.cli.output import listing
from databuild_dagster.cli.state import the_store
from databuild_dagster.engine.why.ledger import ShownEntry, entries_of_request, shown_entries
from databuild_dagster.model.records import columns_of
from databuild_dagster.model.refs import Ref
from databuild_dagster.store.ledger import Ledger
from databuild_dagster.store.queries.queries import Queries


@click.command("list")
@click.option("--request", help="Only this request: its id, a Dagster run or a launch.")
@click.option("--ref", type=REF, help="Only this ref.")
@click.option("--limit", type=Count(1), default=100, show_default=True, help="Number of entries at most, newest first.")
@tabular
def list_entries(request: str | None, ref: Ref | None, limit: int, as_json: bool) -> None:
    """List what each request got for each ref.

    A ref was built, joined, reused or refused; the outcome says how that ended.
    """
    if request is not None and ref is not None:
        raise click.UsageError("--request and --ref exclude each other; give one of them.")
    store = the_store()
    ledger, queries = Ledger(store), Queries(store)
    if request is not None:
        entries = entries_of_request(ledger, queries, request, limit)
    elif ref is not None:
        entries = ledger.of_ref(ref, most=limit)
        if not entries:
            canonical_of(queries, ref)
    else:
        entries = ledger.entries(most=limit)
    empty = f"No request has asked for {ref or 'anything'} yet."
    listing(shown_entries(queries, entries), columns_of(ShownEntry), empty=empty, as_json=as_json)
