"""`databuild gc`: data that no reader needs is shown, and removed with --yes (rule 10.8)."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import click
from click.core import ParameterSource

from databuild_dagster.cli.known_refs import canonical_of
from databuild_dagster.cli.options import DURATION, REF, Count, Selection, table_timeout, tabular
from databuild_dagster.cli.output import count, emit, shown, table
from databuild_dagster.cli.process import FAILED, Exit
from databuild_dagster.cli.state import the_engine, the_instance, the_warehouse
from databuild_dagster.data.keepers import Keeper, open_keepers
from databuild_dagster.features.clean.cleaning import Cleaner, CleaningPlan, CleaningResult, PlannedRemoval
from databuild_dagster.features.clean.orphan_files import Unlisted
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.selections import may_be_selection
from databuild_dagster.store.queries.queries import Queries

TAKE_OVER = "`databuild log take-over` shows them, and takes them over after a move, a restore or an import."
WEEK_SECONDS = 7 * 24 * 3600.0


@click.command()
@click.argument("names", type=REF, nargs=-1, metavar="[DATASET|RANGE]...")
@click.option(
    "--keep",
    type=Count(0),
    default=1,
    show_default=True,
    help="How many earlier instances of each partition to keep, newest first.",
)
@click.option(
    "--older-than",
    type=DURATION,
    default=WEEK_SECONDS,
    metavar="DURATION",
    help="Only data that readers have not seen for so long: 90s, 15m, 12h, 7d (the default), or none.",
)
@click.option("--tainted", is_flag=True, help="Also the data of tainted instances that are not rebuilt yet.")
@click.option("--leftovers", is_flag=True, help="Instead, remove what failed, canceled and lost attempts left.")
@click.option(
    "--orphans",
    is_flag=True,
    help="With --leftovers: also data of no known instance. Only where no other Dagster instance writes to the warehouse.",
)
@click.option("--yes", is_flag=True, help="Remove it. Without --yes nothing is removed, only shown.")
@table_timeout
@tabular
@click.pass_context
def gc(
    context: click.Context,
    names: tuple[Ref, ...],
    keep: int,
    older_than: float | None,
    tainted: bool,
    leftovers: bool,
    orphans: bool,
    yes: bool,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Remove replaced data, or what failed attempts left.

    Of all datasets, or of the named datasets and ranges of partitions: ASSET@FROM..TO, or ASSET@KEY.

    Without --leftovers: the data of instances that a newer instance replaced. Data that readers see, that a running job run or
    operation may read, and files from outside stay. Removed data can neither be reverted to nor read by `read --as-of`.

    With --leftovers: files of failed, canceled and lost attempts; data that is live, or was, stays. A removal that was
    interrupted is finished.
    """
    if orphans and not leftovers:
        raise click.UsageError("--orphans needs --leftovers.")
    source_of = context.get_parameter_source
    given = [name for name in ("keep", "older_than", "tainted") if source_of(name) is ParameterSource.COMMANDLINE]
    if leftovers and given:
        raise click.UsageError(f"--leftovers excludes --{given[0].replace('_', '-')}; give one of them.")
    engine = the_engine()
    warehouse = the_warehouse()
    keepers = open_keepers(engine, warehouse, seconds=timeout, instance=the_instance)
    cleaner = Cleaner(engine, warehouse, keepers)
    scope = _scope(engine.queries, names)
    if leftovers:
        plan = cleaner.plan_clean(scope)
    else:
        plan = cleaner.plan_gc(scope, keep=keep, older_than_seconds=older_than or 0.0, tainted=tainted)
    _carry_out(cleaner, keepers, plan, orphans=orphans, yes=yes, as_json=as_json)


def _scope(queries: Queries, names: Sequence[Ref]) -> tuple[Ref, ...]:
    """Datasets as they are named, and the refs of ranges. Raises `UnknownPartition`, `InvalidSelection`."""
    refs = tuple(name for name in names if partition_key_of(name) is not None)
    for ref in refs:
        if not may_be_selection(ref):
            canonical_of(queries, ref)
    return *(name for name in names if name not in refs), *Selection(refs, frozenset()).refs(queries)


def _carry_out(
    cleaner: Cleaner, keepers: Sequence[Keeper], plan: CleaningPlan, *, orphans: bool, yes: bool, as_json: bool
) -> None:
    done = cleaner.carry_out(plan, orphans=orphans) if yes else None
    if done is not None:
        refs = {going.ref for going in done.going} | {stored.ref for stored in done.finished}
        for keeper in keepers if refs else ():
            keeper.changed(refs)
    if as_json:
        emit(_as_json(plan, done, orphans=orphans))
    else:
        _tell(plan, done, orphans=orphans)
    if done is not None and done.failed:
        raise Exit(FAILED)


def _going_leftovers(plan: CleaningPlan, done: CleaningResult | None, *, orphans: bool) -> list[Unlisted]:
    """The leftovers that go, or that are gone."""
    if done is not None:
        return done.leftovers
    return [leftover for leftover in plan.leftovers if orphans or not leftover.is_orphan]


def _as_json(plan: CleaningPlan, done: CleaningResult | None, *, orphans: bool) -> dict[str, object]:
    """`leftovers` also has orphans that stay; `files` and `bytes` count what goes."""
    gone, unfinished = (plan, plan.unfinished) if done is None else (done, done.finished)
    going_leftovers = _going_leftovers(plan, done, orphans=orphans)
    return {
        "done": done is not None,
        "instances": [
            {"ref": one.ref, "uuid": one.uuid, "files": one.files, "bytes": one.bytes, "why": one.reason.value}
            for one in gone.going
        ],
        "leftovers": [
            {"path": one.path, "why": one.why, "files": one.files, "bytes": one.bytes, "orphan": one.is_orphan}
            for one in gone.leftovers
        ],
        "unfinished": [instance.uuid for instance in unfinished],
        "unfinished_refs": [instance.ref for instance in unfinished],
        "roots": [{"root": root, "own": why is None, "why": why} for root, why in plan.roots.items()],
        "kept": [instance._asdict() for instance in [*plan.kept, *(done.kept if done is not None else ())]],
        "failed": [{"what": what, "why": why} for what, why in (done.failed if done is not None else ())],
        "files": sum(instance.files for instance in gone.going) + sum(leftover.files for leftover in going_leftovers),
        "bytes": _bytes(gone.going, going_leftovers),
    }


def _tell(plan: CleaningPlan, done: CleaningResult | None, *, orphans: bool) -> None:
    going = plan.going if done is None else done.going
    leftovers = _going_leftovers(plan, done, orphans=orphans)
    rows = _by_dataset(going)
    rows += [(leftover.path, leftover.why, None, leftover.files, f"{leftover.bytes:,}") for leftover in leftovers]
    empty = "There is nothing to remove." if done is None else "Nothing was removed."
    table(("dataset", "why", "instances", "files", "bytes"), rows, empty=empty)
    unfinished = plan.unfinished if done is None else done.finished
    if unfinished:
        which = f"{count(len(unfinished), 'instance')} whose data an earlier clean-up has begun to remove"
        click.echo(
            f"{which}: {'it continues with' if done is None else 'finished'} {shown([e.ref for e in unfinished])}."
        )
    for why, refs in _reasons(plan, done).items():
        click.echo(f"Kept: {count(len(refs), 'instance')} ({shown(refs)}), for {why}.")
    orphan_files = [] if orphans else [leftover for leftover in plan.leftovers if leftover.is_orphan]
    if orphan_files:
        size_bytes = sum(orphan.bytes for orphan in orphan_files)
        click.echo(
            f"Kept: {count(len(orphan_files), 'folder or file', 'folders or files')} of {size_bytes:,} bytes that no instance "
            f"is known of ({shown([orphan.path for orphan in orphan_files], 2)}); --orphans takes them along."
        )
    for what, why in done.failed if done is not None else ():
        click.echo(f"Not removed: {what}, for {why} The next clean-up tries again.", err=True)
    total = f"{count(len(going), 'instance')}, {_bytes(going, leftovers):,} bytes"
    if done is None:
        for root, why_not in plan.roots.items():
            if why_not is not None:
                click.echo(f"Left alone: {root}; {why_not}.")
            elif not plan.is_empty:
                click.echo(f"Warehouse: {root}")
    if any(plan.roots.values()):
        click.echo(f"Roots that this build state does not own are left alone; {TAKE_OVER}")
    if done is not None:
        click.echo(f"Removed {total}.")
    elif not plan.is_empty:
        click.echo(f"{total} would go. Nothing was done; --yes does it.")


def _bytes(going: list[PlannedRemoval], leftovers: list[Unlisted]) -> int:
    return sum(instance.bytes for instance in going) + sum(leftover.bytes for leftover in leftovers)


def _by_dataset(going: list[PlannedRemoval]) -> list[tuple[object, ...]]:
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for instance in going:
        found[asset_of(instance.ref), instance.reason.value] += Counter(
            instances=1, files=instance.files, bytes=instance.bytes
        )
    return [
        (asset, why, counts["instances"], counts["files"], f"{counts['bytes']:,}")
        for (asset, why), counts in sorted(found.items())
    ]


def _reasons(plan: CleaningPlan, done: CleaningResult | None) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for instance in [*plan.kept, *(done.kept if done is not None else ())]:
        found[instance.why].append(instance.ref)
    return found
