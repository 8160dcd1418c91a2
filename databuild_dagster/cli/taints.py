"""`databuild taint`, `untaint`, `revert`, `retry`: what is not to be trusted, and what to do about it (rules 7, 6.6)."""

from __future__ import annotations

from collections import Counter

import click

from databuild_dagster.cli.options import REF, Selection, common, selection, tabular
from databuild_dagster.cli.output import answer, count, emit, table
from databuild_dagster.cli.state import the_engine
from databuild_dagster.cli.want import warn_of_absences
from databuild_dagster.data.read_plan import check_data_of
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_user
from databuild_dagster.model.commands import RetryRefs, RevertCanonical, TaintPartitions, UntaintPartitions
from databuild_dagster.model.errors import CannotRevert
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.store.queries.ids import IdKind
from databuild_dagster.store.queries.wants import WantFilter


@click.command()
@selection(required=False)
@click.option("--reason", required=True, help="What is wrong with the data.")
@click.option("--downstream", is_flag=True, help="Also what was built from them, or will be, by recorded inputs.")
@click.option(
    "--instance", "uuids", multiple=True, metavar="UUID", help="Taint this instance, which is or was live. Repeatable."
)
@click.option("--dry-run", is_flag=True, help="Show what would be tainted, and which wants would open again.")
@tabular
def taint(
    selection: Selection, reason: str, downstream: bool, uuids: tuple[str, ...], dry_run: bool, as_json: bool
) -> None:
    """Mark the data of REFS as wrong; open wants rebuild it.

    An open want is one within its TTL.
    """
    if not selection.names and (selection.only or not uuids):
        raise click.UsageError("Name a REF, or an instance with --instance.")
    engine = the_engine()
    uuids = tuple(engine.queries.full_id(IdKind.INSTANCE, uuid) for uuid in uuids)
    refs = selection.refs(engine.queries) if selection.names else ()
    command = TaintPartitions(refs=refs, uuids=uuids, reason=reason, downstream=downstream)
    if dry_run:
        _preview(engine, command, as_json=as_json)
        return
    ended = engine.queries.failed_wants_of(refs)
    behind = 0 if downstream else engine.queries.n_live_built_from(refs, uuids)
    outcome = engine.handle(command, actor=this_user())
    assert outcome.taint_id is not None
    tainted = engine.queries.tainted_by(outcome.taint_id)
    if as_json:
        emit({"taint_id": outcome.taint_id, "refs": list(tainted), "stale_behind": behind, "ended_wants": ended})
        return
    click.echo(
        f"Tainted {count(len(tainted), 'ref')} (taint {outcome.taint_id}); `databuild untaint {outcome.taint_id}` takes it back."
        if tainted
        else f"No reader sees what is tainted (taint {outcome.taint_id})."
    )
    if behind:
        click.echo(
            f"{count(behind, 'ref')} built from it {'stays' if behind == 1 else 'stay'} live, and stale; "
            "with --downstream the taint goes on to what was built from it."
        )
    if ended:
        what = "1 want that has failed of it stays" if ended == 1 else f"{ended} wants that have failed of it stay"
        click.echo(f"{what} ended; `databuild want create`, or `databuild retry` instead of a taint, asks again.")


def _preview(engine: Engine, command: TaintPartitions, *, as_json: bool) -> None:
    preview = engine.preview(command, actor=this_user())
    refs = list(preview.tainted)
    wants = [change.entity for change in preview.changes if change.kind == "wants" and change.before == "Successful"]
    n_asked = engine.queries.n_wants(WantFilter(ids=tuple(wants), derivative=False)) if wants else 0
    by_dataset = dict(sorted(Counter(asset_of(ref) for ref in refs).items()))
    if as_json:
        emit({"would_taint": len(refs), "by_dataset": by_dataset, "refs": refs, "wants_reopened": wants})
        return
    table(("dataset", "would be tainted"), by_dataset.items(), empty="No canonical instance would be tainted.")
    for ref in refs:
        click.echo(ref)
    of_job_runs = len(wants) - n_asked
    and_more = f", and so would {count(of_job_runs, 'want')} that job runs recorded for inputs" if of_job_runs else ""
    click.echo(
        f"{count(len(refs), 'ref')} would be tainted. "
        f"{count(n_asked, 'want')} would open again{and_more}. Nothing was done."
    )


@click.command()
@click.argument("taint_id")
@click.option("--reason", default="", help="Why the taint was wrong.")
@common
def untaint(taint_id: str, reason: str, as_json: bool) -> None:
    """Remove a taint from every instance that has it."""
    engine = the_engine()
    taint_id = engine.queries.full_id(IdKind.TAINT, taint_id)
    engine.handle(UntaintPartitions(taint_id=taint_id, reason=reason), actor=this_user())
    answer({"taint_id": taint_id}, f"Taint {taint_id} is taken back.", as_json=as_json)


@click.command()
@click.argument("ref", type=REF)
@click.option(
    "--to", "uuid", required=True, metavar="UUID", help="The earlier instance; `databuild history REF` lists them."
)
@click.option("--force", is_flag=True, help="Allow an instance built from data that a downstream taint covers.")
@click.option("--reason", default="", help="The reason, kept in the log.")
@common
def revert(ref: Ref, uuid: str, force: bool, reason: str, as_json: bool) -> None:
    """Make an earlier instance of REF the one readers see.

    The instance's data must still exist.
    """
    engine = the_engine()
    uuid = engine.queries.full_id(IdKind.INSTANCE, uuid)
    instance = engine.queries.instance(uuid)
    assert instance is not None, "the lookup found it"
    if instance.ref != ref:
        raise CannotRevert(ref=ref, uuid=uuid, why="it has no such instance")
    if instance.live_at is not None:  # What was never live is refused for that.
        check_data_of(engine.queries, instance, engine.queries.dataset(asset_of(ref)))
    engine.handle(RevertCanonical(ref=ref, uuid=uuid, force=force, reason=reason), actor=this_user())
    answer({"ref": ref, "uuid": uuid}, f"Readers of {ref} see instance {uuid} again.", as_json=as_json)


@click.command()
@selection
@click.option("--reason", default="", help="What was repaired.")
@common
def retry(selection: Selection, reason: str, as_json: bool) -> None:
    """Retry what failed behind REFS.

    Wants that failed because of it are recorded again.
    """
    engine = the_engine()
    outcome = engine.handle(RetryRefs(refs=selection.refs(engine.queries), reason=reason), actor=this_user())
    wants = engine.queries.wants_named(outcome.request_id or "")
    opened = engine.queries.tainted_by(outcome.taint_id or "")
    answer(
        {"request_id": outcome.request_id, "opened": list(opened), "wants": [want.id for want in wants]},
        f"Opened {count(len(opened), 'ref')} and recorded {count(len(wants), 'want')} as request {outcome.request_id}.",
        as_json=as_json,
    )
    warn_of_absences(engine, wants)
