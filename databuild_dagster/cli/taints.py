"""`databuild taint` and `untaint` (SPEC 7.1)."""

from __future__ import annotations

import click

from databuild_dagster.cli.options import common
from databuild_dagster.cli.output import count, emit
from databuild_dagster.cli.state import the_engine
from databuild_dagster.model.commands import TaintPartitions, UntaintPartitions


@click.command()
@click.argument("refs", nargs=-1, required=True)
@click.option("--reason", required=True, help="What is wrong with them.")
@common
def taint(refs: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Say that the data of REFS is wrong; wants within their TTL bring the rebuild."""
    outcome = the_engine().handle(TaintPartitions(refs=refs, reason=reason), actor="user")
    if as_json:
        emit({"taint_id": outcome.taint_id, "refs": list(refs)})
        return
    click.echo(
        f"Tainted {count(len(refs), 'ref')} (taint {outcome.taint_id}); `databuild untaint {outcome.taint_id}` takes it back."
    )


@click.command()
@click.argument("taint_id")
@click.option("--reason", default="", help="Why it was no reason after all.")
@common
def untaint(taint_id: str, reason: str, as_json: bool) -> None:
    """Take a taint back from every instance that has it."""
    the_engine().handle(UntaintPartitions(taint_id=taint_id, reason=reason), actor="user")
    if as_json:
        emit({"taint_id": taint_id})
    else:
        click.echo(f"Taint {taint_id} is taken back.")
