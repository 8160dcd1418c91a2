"""`databuild pause` and `resume`: refs that nothing launches for a time (rule 6.13)."""

from __future__ import annotations

import click

from databuild_dagster.cli.options import FUTURE, REF, common, names_to_pause
from databuild_dagster.cli.output import answer, count, emit, shown
from databuild_dagster.cli.state import the_engine
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_user
from databuild_dagster.model.commands import PausePartitions, ResumePartitions
from databuild_dagster.model.pauses import is_whole
from databuild_dagster.model.refs import Ref
from databuild_dagster.shapes.fields import when
from databuild_dagster.shapes.partitions import paused, resumed

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
    `databuild resume` ends the pause. Queued job runs are canceled; running ones continue.
    """
    engine = the_engine()
    refs = names_to_pause(engine.queries, names)
    command = PausePartitions(refs=refs, reason=reason, until=until, terminate=terminate)
    outcome = engine.handle(command, actor=this_user())
    done = paused(engine.queries, command, outcome)
    if as_json:
        emit(done)
        return
    end = f"until {when(until)}" if until is not None else f"until `databuild resume {' '.join(names)}`"
    click.echo(f"Paused {_in_words(engine, refs)} {end}.")
    if outcome.canceled:
        click.echo(f"Canceled {count(len(outcome.canceled), 'job run')}; the wants stay open.")
    if running := done["running"]:
        ids = f"{count(len(running), 'job run')} {'continues' if len(running) == 1 else 'continue'}: {shown(running)}"
        click.echo(f"{ids}. `databuild job-run cancel {running[0]} --retry` cancels the first.")


def _in_words(engine: Engine, refs: tuple[Ref, ...]) -> str:
    return shown([_name_in_words(engine, ref) for ref in refs])


def _name_in_words(engine: Engine, ref: Ref) -> str:
    dataset = engine.queries.dataset(ref) if is_whole(ref) else None
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
    outcome = engine.handle(ResumePartitions(refs=refs, reason=reason), actor=this_user())
    answer(resumed(outcome), f"Resumed {_in_words(engine, outcome.resumed)}.", as_json=as_json)
