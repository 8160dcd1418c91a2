"""`databuild states`: the machines, printed from their own tables as the page docs/states.md."""

from __future__ import annotations

import click

from databuild_dagster.cli.options import common
from databuild_dagster.cli.output import emit
from databuild_dagster.model.coordination import DELEGATION
from databuild_dagster.model.machine import Machine
from databuild_dagster.model.operations.states import JOB, OPERATION
from databuild_dagster.model.states import INSTANCE, JOB_RUN, WANT

_MACHINES: tuple[tuple[str, str, Machine], ...] = (  # type: ignore[type-arg]
    ("Partition instances", "SPEC 4", INSTANCE),
    ("Wants", "SPEC 5", WANT),
    ("Job runs", "SPEC 6", JOB_RUN),
    ("Delegations", "SPEC 8", DELEGATION),
    ("Operations", "SPEC 9", OPERATION),
    ("Jobs of operations", "SPEC 9.5", JOB),
)


@click.command()
@common
def states(as_json: bool) -> None:
    """The state machines as Markdown with Mermaid diagrams, made from the tables that the code runs on."""
    if as_json:
        emit(
            {
                machine.name: [
                    {
                        "from": move.from_state.value if move.from_state else None,
                        "on": move.on.value,
                        "to": move.to_state.value,
                        "why": move.why,
                    }
                    for move in machine
                ]
                for _, _, machine in _MACHINES
            }
        )
        return
    click.echo("# States\n\nMade by `make docs` from the machines in `databuild_dagster/model/`; do not edit.")
    for title, section, machine in _MACHINES:
        click.echo(f"\n## {title} ({section})\n\n```mermaid\nstateDiagram-v2")
        for move in machine:
            click.echo(
                f"    {move.from_state.value if move.from_state else '[*]'} --> {move.to_state.value}: {move.on.value}"
            )
        click.echo("```\n\n| from | on | to | why |\n|---|---|---|---|")
        for move in machine:
            click.echo(
                f"| {move.from_state.value if move.from_state else '—'} | {move.on.value} | {move.to_state.value} | {move.why} |"
            )
