"""`databuild env create|list|show|diff|refresh|promote|attach|drop` (rules 16)."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final

import click

from databuild_dagster.bindings.registry.selections import select_refs
from databuild_dagster.cli.options import common, tabular
from databuild_dagster.cli.output import answer, count, emit, listing, table
from databuild_dagster.cli.state import recorded_engine, the_instance
from databuild_dagster.data.environment import ENVIRONMENT_VARIABLE, environment_of
from databuild_dagster.data.home import (
    BadHome,
    base_home,
    existing_home,
    lacks_store,
    store_url_of_home,
)
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_user
from databuild_dagster.engine.wording import when
from databuild_dagster.features.compare.commands.tables import key_and_markdown, print_partitions, print_table
from databuild_dagster.features.compare.ranges import Span
from databuild_dagster.features.environments import promoting
from databuild_dagster.features.environments.comparing import DatasetDifference, EnvironmentDifference, compare
from databuild_dagster.features.environments.environments import DEFAULT_DAYS, Environments
from databuild_dagster.features.environments.errors import NoEnvironment
from databuild_dagster.features.environments.records import Opened
from databuild_dagster.features.environments.showing_promoted import announce
from databuild_dagster.features.environments.views import EnvironmentState, EnvironmentView
from databuild_dagster.model.records import Column, columns_of, extended
from databuild_dagster.model.refs import Ref, parse_ref
from databuild_dagster.model.wording import few_of, typed

#: Partitions that are printed; a comment on a pull request has an end.
MAX_SHOWN: Final = 50
_NAME = click.argument("name", metavar="NAME")
_OPTIONAL_NAME = click.argument("name", metavar="[NAME]", required=False)


class ShownEnvironment(EnvironmentView, frozen=True):
    """An environment with its places."""

    host: Annotated[str, Column()]
    home: str
    root: str
    is_pinned: bool


@click.command()
@_NAME
@click.option("--root", metavar="ROOT", help="The folder or url for its data; new or empty.")
@click.option(
    "--keep",
    "days",
    type=float,
    default=DEFAULT_DAYS,
    show_default=True,
    help="Days until it is over.",
)
@click.option("--unpinned", is_flag=True, help="Record nothing in the base; its gc keeps nothing for it.")
@common
def create(name: str, root: str | None, days: float, unpinned: bool, as_json: bool) -> None:
    """Open the environment NAME on what is live now.

    Nothing is copied. `databuild --env NAME build REFS` builds what your code changes, and borrows the rest from the base, which is
    the build state of DAGSTER_HOME or of the project. `gc` of the base keeps what the environment sees until it is removed or over,
    but not with --unpinned, for which a right to read the base is enough.
    """
    base = base_home() if os.environ.get(ENVIRONMENT_VARIABLE) is None else existing_home()
    environments = _environments(base, "there is nothing to borrow; build something first")
    opened = environments.create(name, root=root, days=days, is_pinned=not unpinned)
    sentence = f"Opened environment {name}, until {when(opened.keep_until)}. Build in it: databuild --env {typed(name)} build REFS"
    (shown,) = _shown(environments, {name: opened})
    answer(shown, sentence, as_json=as_json)


@click.command("list")
@tabular
def list_environments(as_json: bool) -> None:
    """List the environments of this build state."""
    environments = _environments(base_home())
    shown = _shown(environments, environments.opened())
    listing(shown, columns_of(ShownEnvironment), empty="There is no environment.", as_json=as_json)


@click.command()
@_OPTIONAL_NAME
@common
def refresh(name: str | None, as_json: bool) -> None:
    """Bring an environment to the present of its base.

    Without NAME: the environment of --env or DATABUILD_ENV. Borrowed partitions get the present instances of the
    base, and partitions that were built here stay. A command that was killed is repeated.
    """
    name = name or _name_here()
    done = _environments(base_home()).refresh(name)
    if as_json:
        emit(done)
        return
    click.echo(f"Environment {name} sees event {done.pin} of its base, after event {done.pin_before}.")
    click.echo(f"{count(len(done.borrowed), 'partition')} borrowed again.")
    for why, refs in _by_reason(done.kept).items():
        click.echo(f"As before: {few_of(refs)}: {why}.")
    if done.open_launches:
        click.echo(
            f"The base keeps what it saw before as well, for {count(done.open_launches, 'open launch', 'open launches')}; "
            f"`databuild env refresh {typed(name)}` ends that."
        )


@click.command()
@_OPTIONAL_NAME
@common
def show(name: str | None, as_json: bool) -> None:
    """Show an environment, and what it has borrowed.

    Without NAME: the environment of --env or DATABUILD_ENV.
    """
    environments = _environments(base_home())
    found = environments.opened()
    name = name or _name_here()
    if (opened := found.get(name)) is None:
        raise NoEnvironment(name=name, names=list(found))
    (shown,) = _shown(environments, {name: opened})
    if as_json:
        emit(shown)
        return
    click.echo(
        f"Environment {name}, opened by {opened.opened_by} at {when(opened.opened_at)}, until {when(opened.keep_until)}."
    )
    click.echo(f"It sees event {opened.pin} of its base. Its home is {opened.home}, and its data is in {opened.root}.")
    if not opened.is_pinned:
        click.echo("It is not pinned: `gc` of its base keeps nothing for it.")
    if environments.is_elsewhere(opened):
        click.echo(f"It is on host {opened.host}.")
    elif opened.is_closing:
        click.echo(f"It is being removed; `databuild env drop {typed(name)}` removes the rest.")
    elif shown.state is EnvironmentState.MOVED:
        click.echo(f"Its base was moved here; `databuild env drop {typed(name)}` removes it.")
    elif shown.state is EnvironmentState.OPENING:
        click.echo(f"It was not opened to its end; `databuild env create {typed(name)}` continues.")
    if shown.borrowed is not None:
        click.echo(
            f"It has borrowed {count(shown.borrowed, 'instance')} and built {shown.built} ({shown.bytes:,} bytes)."
        )


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
@click.argument("refs", nargs=-1, metavar="[REFS]...")
@key_and_markdown
@tabular
def diff(name: str | None, refs: tuple[str, ...], key: tuple[str, ...], markdown: bool, as_json: bool) -> None:
    """Compare what an environment built with its base.

    Each partition that was built in the environment is compared with what the base has now. No file is read of partitions that are
    equal by the hashes of rows or files that their builds recorded. Without NAME: the environment of --env or DATABUILD_ENV.

    REFS are ASSET@KEY, ASSET@FROM..TO, ASSET@* or ASSET; without them everything that is built there is compared.
    """
    environments = _environments(base_home())
    name, *texts = _named(environments, refs if name is None else (name, *refs))
    with environments.both(name) as (base, own):
        home = Path(str(own.store.path)).parent
        names = [parse_ref(text) for text in texts]
        selected = select_refs(own.queries, lambda: the_instance(home), names) if names else None
        found = compare(name, base.queries, own.queries, selected, key)
    if as_json:
        emit(found)
        return
    _print_difference(found, markdown=markdown)


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME] [REFS]...")
@click.option("--ahead", is_flag=True, help="Also of code that the base has not registered.")
@click.option("--dry-run", is_flag=True, help="Show what would move, and every cause of a refusal.")
@tabular
def promote(names: tuple[str, ...], ahead: bool, dry_run: bool, as_json: bool) -> None:
    """Make what an environment built the base's data.

    All of it moves in one event, or nothing. Nothing is built or copied. The base must have the code that built it. Everyone who
    may write into the build state of the base may promote, unless its definitions name `promoters`.

    REFS are ASSET@KEY, ASSET@FROM..TO, ASSET@* or ASSET; without REFS all that the environment built. Of ASSET and of a range the part that
    is built there is promoted. Without NAME: the environment of --env or DATABUILD_ENV.
    """
    environments = _environments(base_home())
    name, *texts = _named(environments, names)
    refs = [parse_ref(text) for text in texts]
    done = promoting.promote(environments, name, refs, actor=this_user(), ahead=ahead, dry_run=dry_run)
    if not dry_run:
        announce(done, lambda: the_instance(environments.base))
    if as_json:
        emit(done)
    else:
        _show_promotion(done, dry_run=dry_run)
    if done.causes:
        raise click.exceptions.Exit(1)


def _named(environments: Environments, names: tuple[str, ...]) -> tuple[str, ...]:
    """The name of the environment, then the refs; in an environment the name may be left out."""
    environment = environment_of(existing_home())
    if environment is not None and (not names or names[0] not in environments.opened()):
        return environment.name, *names
    if not names:
        raise click.UsageError("Name an environment, or give --env before the command.")
    return names


def _show_promotion(done: promoting.Promotion, *, dry_run: bool) -> None:
    moved = [(move.ref, move.uuid, move.before) for move in done.moved]
    table(("ref", "instance", "replaces"), moved, empty="" if done.causes else "The base has all of it already.")
    for cause in done.causes:
        click.echo(f"{cause.ref}: {cause.why}")
    if done.not_built:
        click.echo(_not_built(done.not_built))
    n = count(len(done.moved), "ref")
    if done.causes:
        click.echo(f"The base would take nothing, for {count(len(done.causes), 'cause')}. Nothing was done.")
    elif dry_run:
        click.echo(f"The base would take {n} from {done.environment}. Nothing was done.")
    else:
        there = f"; it had {len(done.there)} already" if done.there else ""
        # A command in full would be printed with --env.
        back = f" In the base, `revert --event {done.seq} --reason TEXT` takes all of it back." if moved else ""
        click.echo(f"The base took {n} from {done.environment}{there}.{back}")


@click.command()
@_NAME
@common
def attach(name: str, as_json: bool) -> None:
    """Continue an environment after a take-over of its base.

    `databuild log take-over` gives the base a new id, and its environments stop, because it may be a copy. The base must have the event on
    which the environment was opened. A command that was killed is repeated.
    """
    environments = _environments(base_home())
    (shown,) = _shown(environments, {name: environments.attach(name)})
    answer(shown, f"Environment {name} continues, from event {shown.pin} of its base.", as_json=as_json)


@click.command()
@_NAME
@common
def drop(name: str, as_json: bool) -> None:
    """Remove the environment NAME and what it built.

    The base keeps all of its data. A command that was killed is repeated.
    """
    left = _environments(base_home()).drop(name)
    is_left = "" if left is None else f" Its data stays in {left}, and its home on its host."
    answer({"name": name}, f"Removed environment {name}.{is_left}", as_json=as_json)


def _name_here() -> str:
    environment = environment_of(existing_home())
    if environment is None:
        raise click.UsageError("Name an environment, or give --env before the command.")
    return environment.name


def _by_reason(refs: Mapping[Ref, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for ref, why in refs.items():
        found.setdefault(why, []).append(ref)
    return found


def _environments(base: Path, so: str = "it has no environments") -> Environments:
    if (url := store_url_of_home(base)) is not None and lacks_store(base, url):
        raise BadHome(f"There is no build state in {base}, so {so}.")
    return Environments(base, _engine)


def _engine(home: Path) -> Engine:
    """The engine on the store of a home. Dagster is imported where dagster.yaml places the storage."""
    if (engine := recorded_engine(home)) is not None:
        return engine
    from databuild_dagster.bindings.registry.instance import new_engine, open_instance

    return new_engine(open_instance(home))


def _shown(environments: Environments, opened: Mapping[str, Opened]) -> list[ShownEnvironment]:
    views = environments.views(opened)
    return [
        extended(ShownEnvironment, views[name], host=one.host, home=one.home, root=one.root, is_pinned=one.is_pinned)
        for name, one in opened.items()
    ]


def _print_difference(found: EnvironmentDifference, *, markdown: bool) -> None:
    outcome = found.sentence if found.counts else "nothing to compare is built in the environment"
    shown = f"Environment {found.environment} and its base at event {found.seq}: {outcome}"
    click.echo(f"**{shown}**" if markdown else f"{shown}.")
    datasets = [
        (of.dataset, of.sentence, of.rows_a, of.rows_b, _by_key(of), few_of(of.consumers) or None)
        for of in found.datasets
    ]
    print_table(("dataset", "partitions", "before", "after", "rows", "consumers"), datasets, markdown=markdown)
    print_table(("column", "change", "before", "after"), list(_columns(found)), markdown=markdown)
    partitions = [of for dataset in found.datasets for of in dataset.partitions]
    print_partitions(partitions[:MAX_SHOWN], markdown=markdown)
    for sentence in _notes(found, len(partitions)):
        click.echo(f"\n{sentence}" if markdown else sentence)


def _by_key(of: DatasetDifference) -> str | None:
    counts = {"added": of.added, "removed": of.removed, "changed": of.changed}
    return ", ".join(f"{n:,} {what}" for what, n in counts.items() if n) or None


def _columns(found: EnvironmentDifference) -> Iterator[tuple[str | None, ...]]:
    for of in found.datasets:
        for column in of.columns:
            yield f"{of.dataset}.{column.name}", column.change, column.a, column.b
        for value in of.values:
            rows = "" if value.rows is None else f"{count(value.rows, 'row')} of "
            change = f"values in {rows}{count(value.partitions, 'partition')}"
            yield f"{of.dataset}.{value.name}", change, _span(value.a), _span(value.b)


def _span(span: Span) -> str:
    ends = "" if span.least is None else f"{span.least} to {span.greatest}, "
    return f"{ends}{count(span.nulls, 'null')}"


def _notes(found: EnvironmentDifference, n_partitions: int) -> Iterator[str]:
    if n_partitions > MAX_SHOWN:
        yield f"and {count(n_partitions - MAX_SHOWN, 'more partition')}; --json has all."
    if found.tainted:
        yield f"Tainted in the environment: {few_of(found.tainted)}."
    if found.tainted_in_base:
        yield f"Tainted in the base: {few_of(found.tainted_in_base)}."
    if found.without_key:
        yield f"Compared without the key, which they do not have: {few_of(found.without_key)}."
    if found.not_built:
        yield _not_built(found.not_built)


def _not_built(n: int) -> str:
    return f"Not built in the environment: {count(n, 'selected partition')}."
