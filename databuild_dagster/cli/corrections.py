"""`databuild taint`, `untaint`, `revert`, `retry`, `pause`, `resume`: what not to trust or launch, and what to do (rules 7, 6.6, 6.13)."""

from collections.abc import Collection
from typing import Final

import click

from databuild_dagster.calls.answers import refresh_copies, tainted
from databuild_dagster.calls.taints import (
    Reverted,
    Untainted,
    revert_command,
    revert_event,
    untaint_command,
    would_taint,
)
from databuild_dagster.cli.options import FUTURE, REF, Selection, common, names_to_pause, selection, tabular
from databuild_dagster.cli.output import answer, count, emit, listing, shown, table
from databuild_dagster.cli.state import the_engine, the_instance, the_warehouse
from databuild_dagster.cli.want import warn_of_absences
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_user
from databuild_dagster.engine.why.partitions import Resumed, paused
from databuild_dagster.engine.why.want_report import retried
from databuild_dagster.engine.wording import when
from databuild_dagster.model import commands as c
from databuild_dagster.model.pauses import is_whole
from databuild_dagster.model.records import Column
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.wording import typed
from databuild_dagster.store.queries.ids import IdKind
from databuild_dagster.store.queries.wants import WantFilter

#: Taints of a list, the newest.
MAX_TAINTS: Final = 1_000


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

    An open want is a want within its TTL.
    """
    if not selection.names and (selection.only or not uuids):
        raise click.UsageError("Name a REF, or an instance with --instance.")
    engine = the_engine()
    uuids = tuple(engine.queries.ids.full(IdKind.INSTANCE, uuid) for uuid in uuids)
    refs = selection.refs(engine.queries) if selection.names else ()
    command = c.TaintPartitions(refs=refs, uuids=uuids, reason=reason, downstream=downstream)
    if dry_run:
        _preview(engine, command, as_json=as_json)
        return
    done = tainted(engine, command, the_warehouse, the_instance)
    if as_json:
        emit(done.facts)
        return
    for line in (done.screen.head, *done.screen.notes):
        click.echo(line)


@click.command()
@tabular
def list_taints(as_json: bool) -> None:
    """List the taints that hold now, newest first.

    A taint holds while a ref is tainted by it; the first refs are named. `databuild untaint TAINT` removes it.
    """
    columns = (
        Column("taint", "taint_id"),
        Column("by", "actor"),
        Column("since", "created_at"),
        Column("n"),
        Column("refs", text=", ".join),
        Column("why", "reason"),
    )
    listing(
        the_engine().queries.instances.taints_now(MAX_TAINTS), columns, empty="Nothing is tainted.", as_json=as_json
    )


def _refresh_copies(engine: Engine, refs: Collection[Ref]) -> None:
    refresh_copies(engine, refs, the_warehouse, the_instance)


def _preview(engine: Engine, command: c.TaintPartitions, *, as_json: bool) -> None:
    found = would_taint(engine.preview(command, actor=this_user()))
    if as_json:
        emit(found)
        return
    refs, wants = found.refs, found.wants_reopened
    n_asked = engine.queries.wants.count(WantFilter(ids=tuple(wants), derivative=False)) if wants else 0
    table(("dataset", "would be tainted"), found.by_dataset.items(), empty="No canonical instance would be tainted.")
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
    command = untaint_command(engine, taint_id, reason)
    refs = engine.queries.instances.tainted_by(command.taint_id)
    engine.handle(command, actor=this_user())
    _refresh_copies(engine, refs)
    answer(Untainted(command.taint_id), f"Taint {command.taint_id} is taken back.", as_json=as_json)


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
    command = revert_command(engine, ref, uuid, force=force, reason=reason)
    engine.handle(command, actor=this_user())
    _refresh_copies(engine, [ref])
    answer(Reverted(ref, command.uuid), f"Readers of {ref} see instance {command.uuid} again.", as_json=as_json)


@click.command()
@click.argument("seq", type=int)
@click.option("--force", is_flag=True, help="Allow instances with taints, or built from data that a taint covers.")
@click.option("--reason", default="", help="The reason, kept in the log, and that of the taint.")
@click.option("--dry-run", is_flag=True, help="Show what would be reverted, and every cause of a refusal.")
@tabular
def revert_by_event(seq: int, force: bool, reason: str, dry_run: bool, as_json: bool) -> None:
    """Revert all refs of a promotion or a return.

    Every ref of the event SEQ gets back the instance that was live before. Where none was, the instance of the event is tainted. SEQ may
    be the revert of one ref, too. All refs, or none: each one that has moved since is named. `databuild log events` lists the events.
    """
    engine = the_engine()
    done = revert_event(engine, seq, force=force, reason=reason, actor=this_user(), dry_run=dry_run)
    if not dry_run:
        _refresh_copies(engine, [*(one.ref for one in done.reverted), *done.tainted])
    if as_json:
        emit(done)
    else:
        table(("ref", "instance"), [(one.ref, one.uuid) for one in done.reverted], empty="")
        for cause in done.causes:
            click.echo(f"{cause.ref}: {cause.why}")
        n, n_tainted = count(len(done.reverted), "ref"), count(len(done.tainted), "ref")
        tainted = (
            f" {n_tainted} {'would be' if dry_run else 'got'} tainted: {shown(done.tainted)}." if done.tainted else ""
        )
        if done.causes:
            click.echo(f"Nothing would go back, for {count(len(done.causes), 'cause')}. Nothing was done.")
        elif dry_run:
            click.echo(f"{n} would go back.{tainted} Nothing was done.")
        else:
            click.echo(f"{n} went back to the instances before event {seq}.{tainted}")
    if done.causes:
        raise click.exceptions.Exit(1)


@click.command()
@selection
@click.option("--reason", default="", help="What was repaired.")
@common
def retry(selection: Selection, reason: str, as_json: bool) -> None:
    """Retry what failed behind REFS.

    Wants that failed because of REFS are recorded again.
    """
    engine = the_engine()
    outcome = engine.handle(c.RetryRefs(refs=selection.refs(engine.queries), reason=reason), actor=this_user())
    done = retried(engine.queries, outcome)
    n_opened, n_wants = count(len(done.opened), "ref"), count(len(done.wants), "want")
    answer(done, f"Opened {n_opened} and recorded {n_wants} as request {done.request_id}.", as_json=as_json)
    warn_of_absences(engine, engine.queries.wants.named(outcome.request_id or ""))


_NAMES = click.argument("names", type=REF, nargs=-1, required=True, metavar="ASSET|REFS...")


@click.command()
@_NAMES
@click.option("--reason", required=True, help="The reason, shown beside the state.")
@click.option(
    "--until",
    type=FUTURE,
    metavar="TIME|DURATION",
    default=None,
    help="The end of the pause, as 2026-11-21T14:00:00Z, or in 90s, 15m, 12h, 7d.",
)
@click.option("--terminate", is_flag=True, help="Cancel the running job runs of REFS too.")
@common
def pause(names: tuple[Ref, ...], reason: str, until: float | None, terminate: bool, as_json: bool) -> None:
    """Keep REFS from being launched; their wants stay open.

    ASSET alone is every partition, also later ones. REFS are ASSET@KEY, ASSET@FROM..TO or ASSET@*, as they are now.
    `databuild resume` ends the pause. Queued job runs are canceled; running job runs continue.
    """
    engine = the_engine()
    refs = names_to_pause(engine.queries, names)
    command = c.PausePartitions(refs=refs, reason=reason, until=until, terminate=terminate)
    outcome = engine.handle(command, actor=this_user())
    done = paused(engine.queries, command, outcome)
    if as_json:
        emit(done)
        return
    end = f"until {when(until)}" if until is not None else f"until `databuild resume {typed(*names)}`"
    click.echo(f"Paused {_in_words(engine, refs)} {end}.")
    if outcome.canceled:
        click.echo(f"Canceled {count(len(outcome.canceled), 'job run')}; the wants stay open.")
    if running := done.running:
        ids = f"{count(len(running), 'job run')} {'continues' if len(running) == 1 else 'continue'}: {shown(running)}"
        click.echo(f"{ids}. `databuild want cancel --job-runs --retry {typed(running[0])}` cancels the first.")


def _in_words(engine: Engine, refs: tuple[Ref, ...]) -> str:
    return shown([_name_in_words(engine, ref) for ref in refs])


def _name_in_words(engine: Engine, ref: Ref) -> str:
    dataset = engine.queries.datasets.get(ref) if is_whole(ref) else None
    return ref if dataset is None or dataset.partitions is None else f"all partitions of {ref}"


@click.command()
@_NAMES
@click.option("--reason", default="", help="What was repaired.")
@common
def resume(names: tuple[Ref, ...], reason: str, as_json: bool) -> None:
    """End the pause of REFS; what is wanted is built.

    ASSET alone ends every pause of the asset and of its partitions.
    """
    engine = the_engine()
    refs = names_to_pause(engine.queries, names)
    outcome = engine.handle(c.ResumePartitions(refs=refs, reason=reason), actor=this_user())
    answer(Resumed(outcome.resumed), f"Resumed {_in_words(engine, outcome.resumed)}.", as_json=as_json)
