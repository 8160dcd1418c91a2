"""`databuild log …`: the event log, the tables made from it, and the log as a file (rules 3, 3.12)."""

import json
import threading
import time
from contextlib import nullcontext, suppress
from typing import Any

import click

from databuild_dagster.calls.contributions import Checked
from databuild_dagster.cli.options import Count, common
from databuild_dagster.cli.output import answer, count, emit
from databuild_dagster.cli.process import FAILED, Exit
from databuild_dagster.cli.state import the_instance, the_queries, the_store, the_warehouse
from databuild_dagster.engine.migrating import migrate as migrate_store
from databuild_dagster.engine.publishing import FOLLOW_SECONDS
from databuild_dagster.engine.wording import exactly
from databuild_dagster.feature import rows
from databuild_dagster.model.coordination import DELEGATION
from databuild_dagster.model.machine import Machine, Move
from databuild_dagster.model.operations.states import JOB, OPERATION
from databuild_dagster.model.states import INSTANCE, JOB_RUN, WANT
from databuild_dagster.store import schema
from databuild_dagster.store.check import check as check_store
from databuild_dagster.store.errors import StoreUnusable
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.rebuild import rebuild as rebuild_store

#: Events read at once.
PAGE = 1000
#: What can be followed besides the events themselves (rule 10.3).
LOT_AVAILABLE = "lot-available"

_MACHINES: tuple[tuple[str, str, Machine], ...] = (  # type: ignore[type-arg]
    ("Partition instances", "rules 4", INSTANCE),
    ("Wants", "rules 5", WANT),
    ("Job runs", "rules 6", JOB_RUN),
    ("Delegations", "rules 8", DELEGATION),
    ("Operations", "rules 9", OPERATION),
    ("Jobs of operations", "rule 9.5", JOB),
)


@click.command()
@click.option("--after", "after_seq", type=Count(0), default=0, help="Only events after this seq.")
@click.option("--follow", is_flag=True, help="Keep printing new events until Ctrl-C.")
@click.option(
    "--kind",
    type=click.Choice([LOT_AVAILABLE]),
    help="Print one line per instance that became live instead: dataset, ref, lot, uuid, manifest, complete or empty.",
)
@common
def events(after_seq: int, follow: bool, kind: str | None, as_json: bool) -> None:
    """Print the event log, one JSON line per event.

    The output is the same with and without --json.
    """
    queries = the_queries()
    if kind == LOT_AVAILABLE:
        _print_available(queries, after_seq, follow=follow)
        return
    pause = threading.Event()
    while True:
        page = queries.events.raw(after_seq, PAGE)
        for seq, at, name, version, command_id, actor, payload in page:
            line = {
                "seq": seq,
                "at": exactly(at),
                "type": name,
                "version": version,
                "command_id": command_id,
                "actor": actor,
                "payload": {key: value for key, value in json.loads(payload).items() if key != "type"},
            }
            click.echo(json.dumps(line))
            after_seq = seq
        if not page and not follow:
            return
        if len(page) < PAGE and follow:
            pause.wait(FOLLOW_SECONDS)


def _print_available(queries: Queries, after_seq: int, *, follow: bool) -> None:
    from databuild_dagster.bindings.registry.lot_partitions import announced_lots

    for lot in announced_lots(queries, after_seq, follow=follow):
        click.echo(json.dumps({**lot._asdict(), "at": exactly(lot.at)}))


@click.command()
@common
def rebuild(as_json: bool) -> None:
    """Recompute all tables from the log.

    The log is only read; the new tables replace the old tables.
    """
    n_events = rebuild_store(the_store(check_projections=False))
    answer({"events": n_events}, f"Rebuilt from {count(n_events, 'event')}.", as_json=as_json)


@click.command()
@click.option("--force", is_flag=True, help="Also while another process works on the store.")
@common
def migrate(force: bool, as_json: bool) -> None:
    """Bring an older version's tables to this version.

    The tables are recomputed from the log, which is only read. Without an older version's tables this does nothing. It is
    refused while another process has sent a heartbeat within 30 s.
    """
    store = the_store(check_projections=False)
    done = migrate_store(store, time.time(), force=force)
    sentence = "Nothing to do: this version wrote it."
    if done.n_events is not None:
        sentence = f"Migrated: recomputed all tables from {count(done.n_events, 'event')}."
    answer({"before": done.before, "after": done.after, "events": done.n_events}, sentence, as_json=as_json)


@click.command()
@click.option(
    "--deep",
    is_flag=True,
    help="Also look at the database's own file, whether every file of every live instance exists, and for storage that "
    "no manifest lists.",
)
@click.option(
    "--contents",
    is_flag=True,
    help="With --deep: also read every file of every live instance, and compare it with the checksum in its manifest. The "
    "same command continues a comparison that was interrupted less than a day ago.",
)
@click.option(
    "--from-start", is_flag=True, help="With --contents: compare again what an interrupted comparison compared."
)
@click.option(
    "--repair-keys",
    is_flag=True,
    help="Before checking, rewrite the copies of manifests and arc states for other tools, and delete stale ones.",
)
@common
def check(deep: bool, contents: bool, from_start: bool, repair_keys: bool, as_json: bool) -> None:
    """Verify the tables and the log; exit 1 if any is wrong."""
    if contents and not deep:
        raise click.UsageError("--contents needs --deep.")
    if from_start and not contents:
        raise click.UsageError("--from-start needs --contents.")
    from databuild_dagster.cli.contents import ComparedFiles, compare_files

    store = the_store()
    checked = Checked(store, the_warehouse, the_instance)
    keys = _repaired(checked, as_json=as_json) if repair_keys else {}
    found = check_store(store, deep=deep, further=rows(lambda feature: feature.invariants))
    compared: ComparedFiles | None = None
    if deep:
        # A store that is damaged cannot tell which files there should be; that it is damaged has been found already.
        with suppress(StoreUnusable) if found else nullcontext():
            compared = compare_files(the_queries(), contents=contents, from_start=from_start)
            found += compared.violations
            for row in rows(lambda feature: feature.checks):
                found += row.find(checked)
    n_aside = 0
    with suppress(StoreUnusable) if found else nullcontext():
        n_aside = len(Queries(store).planning.set_aside())
    if as_json:
        aside = {"set_aside": n_aside} if n_aside else {}
        read = {"contents": compared.as_json()} if contents and compared is not None else {}
        emit({"ok": not found, "violations": [violation._asdict() for violation in found], **keys, **read, **aside})
    else:
        # Lines and not a table, which shortens long words: a path must be complete.
        for violation in found:
            click.echo(f"{violation.invariant}  {violation.entity}: {violation.detail}")
        if any(violation.entity in schema.metadata.tables for violation in found):
            click.echo("`databuild log rebuild` computes the tables again from the log.")
        if contents and compared is not None:
            click.echo(compared.sentence)
        if not found:
            click.echo("Nothing is wrong.")
        if n_aside:
            click.echo(
                f"Refs, arcs, launches, files and tables set aside for now: {n_aside}. `databuild status --json` lists them."
            )
    if found:
        raise Exit(FAILED)


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@common
def backup(file: str, as_json: bool) -> None:
    """Copy the SQLite database into FILE, also during writes.

    FILE must not exist. The copy is a consistent snapshot of the log and the tables. For PostgreSQL, use pg_dump.
    """
    n_events = the_store(check_projections=False).database.backup(file)
    answer({"file": file, "events": n_events}, f"Copied {count(n_events, 'event')} to {file}.", as_json=as_json)


@click.command("take-over")
@click.argument("roots", nargs=-1, metavar="[ROOT]...")
@click.option("--yes", is_flag=True, help="Do it. Without --yes nothing is changed, only shown.")
@common
def take_over(roots: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Make this store the owner of its warehouses.

    After a move, a restore or an import. Gives the build state a new id, and writes it into the markers of its warehouses
    outside the home. The original, if it exists, may not build there or remove data there from then on. ROOT names a further
    warehouse, or a warehouse inside a different home. Environments of this build state stop until `databuild env attach NAME`.
    """
    from databuild_dagster.data import ownership
    from databuild_dagster.data.ownership import warehouses_of
    from databuild_dagster.model.wording import typed
    from databuild_dagster.warehouse.layout import Warehouse

    store, named = the_store(), [Warehouse(root) for root in roots]
    warehouses = dict.fromkeys([*warehouses_of(Queries(store), the_warehouse()), *named])
    identity, do = store.identity(), ownership.take_over if yes else ownership.plan_take_over
    found = do(store, warehouses, {warehouse.root for warehouse in named})
    environments = list(ownership.roots_of_environments(store))
    if as_json:
        roots_found = [taken._asdict() for taken in found]
        places = {"place": identity.here, "recorded_place": identity.place}
        emit({"done": yes, **places, "roots": roots_found, "environments": environments})
        return
    click.echo(f"This build state is {identity.here}; recorded: {identity.place or 'nothing, by an older version'}.")
    for taken in found:
        before = taken.before or "no build state"
        click.echo(f"{taken.root}: {f'marked for {before}' if taken.why_not is None else taken.why_not}.")
    for name in environments:
        click.echo(
            f"The environment {name} {'stops' if yes else 'would stop'} until `databuild env attach {typed(name)}`."
        )
    click.echo(
        "Taken over." if yes else "Nothing was done; --yes gives it a new id, and marks these warehouses for it."
    )


@click.command()
@common
def states(as_json: bool) -> None:
    """Print the state machines as Markdown with diagrams.

    They are read from the tables of moves that the code runs on.
    """
    if as_json:
        emit({machine.name: [_move_as_json(move) for move in machine] for _, _, machine in _MACHINES})
        return
    click.echo("# States\n\nMade by `make docs` from the machines in `databuild_dagster/model/`; do not edit.")
    for title, section, machine in _MACHINES:
        click.echo(f"\n## {title} ({section})\n\n```mermaid\nstateDiagram-v2")
        moves = [_move_as_json(move) for move in machine]
        for move in moves:
            click.echo(f"    {move['from'] or '[*]'} --> {move['to']}: {move['on']}")
        click.echo("```\n\n| from | on | to | why |\n|---|---|---|---|")
        for move in moves:
            click.echo(f"| {move['from'] or '—'} | {move['on']} | {move['to']} | {move['why']} |")


def _move_as_json(move: Move[Any, Any]) -> dict[str, str | None]:
    from_state = move.from_state.value if move.from_state else None
    return {"from": from_state, "on": move.on.value, "to": move.to_state.value, "why": move.why}


def _repaired(checked: Checked, *, as_json: bool) -> dict[str, object]:
    """What the repairs have done, by their field of the answer."""
    answers: dict[str, object] = {}
    for row in rows(lambda feature: feature.checks):
        if row.repair is not None:
            done = row.repair(checked)
            answers[done.field] = done.shape
            if not as_json:
                click.echo(done.sentence)
    return answers


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@common
def export(file: str, as_json: bool) -> None:
    """Copy the event log into FILE, also during writes.

    FILE must not exist. It gets a line of JSON for each event, the same from SQLite and from PostgreSQL.
    """
    from databuild_dagster.store.transfer import export_log

    n_events = export_log(the_store(check_projections=False), file)
    answer({"file": file, "events": n_events}, f"Wrote {count(n_events, 'event')} to {file}.", as_json=as_json)


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@common
def import_(file: str, as_json: bool) -> None:
    """Bring the events of FILE into an empty build state.

    FILE is from `databuild log export`. All of it is imported, and the tables computed from it, or nothing. Stop every process
    of the original before the export. The warehouses are the original's until `databuild log take-over --yes`.
    """
    from databuild_dagster.store.transfer import import_log

    n_events = import_log(the_store(), file)
    sentence = (
        f"Imported {count(n_events, 'event')}. `databuild log take-over --yes` makes this build state the owner of its "
        "warehouses."
    )
    answer({"file": file, "events": n_events}, sentence, as_json=as_json)
