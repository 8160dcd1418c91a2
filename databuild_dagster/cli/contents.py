"""The part of `databuild log check --deep` that looks at the files of live instances, with its progress (rule 10.2)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from rich.console import Group
from rich.text import Text

from databuild_dagster.calls.progress import Display
from databuild_dagster.calls.streams import say, screen
from databuild_dagster.cli.output import count
from databuild_dagster.cli.state import dagster_home
from databuild_dagster.store.invariants import Violation

if TYPE_CHECKING:
    from databuild_dagster.data.contents import Comparison, Counts, Fault
    from databuild_dagster.store.queries.queries import Queries

#: Seconds between two lines of progress where no live table is shown.
LINE_SECONDS = 5.0


class ComparedFiles(NamedTuple):
    """The result of a pass over the files of live instances."""

    done: Counts
    n_earlier: int
    faults: list[Fault]

    @property
    def violations(self) -> list[Violation]:
        return [Violation("I7", fault.ref, fault.sentence) for fault in self.faults]

    @property
    def sentence(self) -> str:
        """For a person, the size of what was compared."""
        done = self.done
        text = f"Compared the contents of {count(done.files, 'file')} of {count(done.instances, 'instance')}"
        text += f", {done.bytes:,} bytes."
        if done.not_compared:
            text += f" {count(done.not_compared, 'file')} not compared: without a checksum that can be computed here."
        if self.n_earlier:
            text += f" {count(self.n_earlier, 'instance')} of them by the run that was interrupted."
        return text

    def as_json(self) -> dict[str, object]:
        """Rules 15."""
        faults = [{"ref": f.ref, "uuid": f.uuid, "file": f.file, "why": f.why, "repair": f.repair} for f in self.faults]
        return {**msgspec.to_builtins(self.done), "earlier": self.n_earlier, "faults": faults}


def compare_files(queries: Queries, *, contents: bool, from_start: bool) -> ComparedFiles:
    """Compare sizes, or with `contents` every byte, with the manifests (I7)."""
    from databuild_dagster.data.contents import JOURNAL_NAME, Comparison, Journal

    if not contents:
        comparison = Comparison(queries)
        return ComparedFiles(comparison.done, 0, list(comparison.faults()))
    journal = Journal(os.path.join(dagster_home(), JOURNAL_NAME), from_start=from_start)
    comparison = Comparison(queries, journal)
    progress = ContentsProgress(comparison)
    faults = []
    try:
        with progress.shown(screen(), is_alone=False):
            for fault in comparison.faults(progress.tell):
                faults.append(fault)
    except KeyboardInterrupt:
        say("The same command continues where this one was.")
        raise
    return ComparedFiles(comparison.done, comparison.n_earlier, faults)


class ContentsProgress(Display):
    """Instances and bytes that are compared, of all."""

    def __init__(self, comparison: Comparison) -> None:
        super().__init__()
        self._comparison = comparison
        self._next_line_at = LINE_SECONDS

    def tell(self) -> None:
        """Print a line, if the last line is old enough."""
        if self.seconds >= self._next_line_at:
            self._next_line_at = self.seconds + LINE_SECONDS
            self.say(self._sentence())

    def render(self) -> Group:
        return Group(Text(f"{self._sentence()}, {self.seconds:.0f} s", style="bold"))

    def _sentence(self) -> str:
        done, total = self._comparison.done, self._comparison.total
        return f"compared {done.instances} of {count(total.instances, 'instance')}, {done.bytes:,} of {total.bytes:,} bytes"
