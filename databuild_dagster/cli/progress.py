"""What is going on during a build: a live table on a terminal, plain lines elsewhere; always on stderr."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from databuild_dagster.cli.output import STYLES, count, shown
from databuild_dagster.cli.process import own_terminal
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.operations.coordinator import Coordination
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState

REFRESHES_PER_SECOND = 2
#: Columns of the live table, and which job run states each counts.
_COLUMNS = {
    "done": ("Succeeded",),
    "building": ("Running", "Queued"),
    "waiting for inputs": ("DepMissed",),
    "failed": ("Failed", "Lost"),
}


@contextmanager
def follow(engine: Engine, refs: Sequence[Ref], first_seq: int) -> Iterator[LiveProgress | LineProgress]:
    """Show a build for as long as the block lasts: what happened after the event `first_seq`."""
    with own_terminal() as console:
        if not console.is_terminal:
            lines = LineProgress(engine, first_seq)
            yield lines
            lines.ended()
            return
        progress = LiveProgress(engine, refs, first_seq)
        live = Live(
            get_renderable=progress.render, console=console, refresh_per_second=REFRESHES_PER_SECOND, transient=True
        )
        with live:
            yield progress


class LineProgress:
    """A line when a launch begins, and one for what became of the one before."""

    def __init__(self, engine: Engine, first_seq: int) -> None:
        self._engine = engine
        self._began = time.monotonic()
        self._seq = first_seq
        self._last_line: dict[str, dict[str, int]] = {}
        self._waiting_for = ""

    def launching(self, job: str, n_partitions: int) -> None:
        self.ended()
        self._say(f"{job}: building {count(n_partitions, 'partition')}")

    def waiting(self, jobs: Sequence[str]) -> None:
        text = f"waiting for others, which are building {', '.join(jobs)}"
        if text != self._waiting_for:
            self._waiting_for = text
            self._say(text)

    def coordinated(self, done: Coordination) -> None:
        for id, outcome in done.completed.items():
            self._say(f"{id} has ended: {outcome.value}")

    def ended(self) -> None:
        """What has ended since the last line."""
        for job, states in self._engine.queries.job_run_counts(self._seq).items():
            before, now = self._last_line.get(job, {}), _by_column(states)
            ended = {name: n - before.get(name, 0) for name, n in now.items() if name != "building"}
            if news := [f"{n} {name}" for name, n in ended.items() if n > 0]:
                self._say(f"{job}: {', '.join(news)}")
            self._last_line[job] = now

    def _say(self, text: str) -> None:
        click.echo(f"{time.monotonic() - self._began:6.1f} s  {text}", err=True)


class LiveProgress:
    """A table that rich's own thread redraws from the store."""

    def __init__(self, engine: Engine, refs: Sequence[Ref], first_seq: int) -> None:
        self._engine = engine
        self._refs = refs
        self._began = time.monotonic()
        self._seq = first_seq

    # The table shows only what the store says.
    def launching(self, job: str, n_partitions: int) -> None: ...
    def waiting(self, jobs: Sequence[str]) -> None: ...
    def coordinated(self, done: Coordination) -> None: ...

    def render(self) -> Group:
        table = Table(box=None, pad_edge=False)
        table.add_column("job")
        for name in _COLUMNS:
            table.add_column(name, justify="right")
        for job, states in self._engine.queries.job_run_counts(self._seq).items():
            cells = [
                Text(str(n) if n else "·", style=STYLES[_COLUMNS[name][0]] if n else "dim")
                for name, n in _by_column(states).items()
            ]
            table.add_row(job, *cells)
        return Group(
            Text(f"{self._summary()}, {time.monotonic() - self._began:.0f} s", style="bold"), table, *self._waiting()
        )

    def _summary(self) -> str:
        states = self._engine.queries.states(self._refs)
        live = sum(state is InstanceState.LIVE for state in states.values())
        return f"{live} of {count(len(states), 'ref')} live"

    def _waiting(self) -> list[Text]:
        """What the wanted refs wait for."""
        lines = []
        for canonical in self._engine.queries.canonical(self._refs).values():
            if canonical.state is InstanceState.UPSTREAM_BUILDING and canonical.uuid is not None:
                missing = self._engine.queries.missing_of(canonical.uuid)
                lines.append(Text(f"{canonical.ref} waits for {shown(missing)}", style="dim"))
        return lines[:5]


def _by_column(states: dict[str, int]) -> dict[str, int]:
    return {name: sum(states.get(state, 0) for state in counted) for name, counted in _COLUMNS.items()}
