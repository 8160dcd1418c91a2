"""What a command shows while it works: a live table on a terminal, plain lines elsewhere; always on stderr."""

from __future__ import annotations

import io
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from databuild_dagster.bindings.local.tally import COLUMNS, Tally
from databuild_dagster.calls.streams import say
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.wording import counted

if TYPE_CHECKING:
    from databuild_dagster.bindings.orchestration.side_ticks import SideReport
    from databuild_dagster.spark.interrupt import RunningJob

REFRESHES_PER_SECOND = 2
#: Characters of a line in a notebook.
NOTEBOOK_WIDTH = 100
#: Seconds between two questions to Spark's UI.
SPARK_LOOK_SECONDS = 1.0
#: As `cli.output` colors the states.
_STYLES = {"live": "green", "building": "cyan", "waiting": "yellow", "failed": "red"}
#: The columns whose growth is a line where no table is.
_LINED = ("live", "waiting", "failed")


class Display:
    """Seconds, lines, and a live table of what a command works on."""

    def __init__(self, says: Callable[[str], None] = say) -> None:
        self._began = time.monotonic()
        self._says = says
        #: A live table shows everything, so that lines are left out.
        self.is_live = False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """Print a line with the seconds, unless a live table is shown."""
        if not self.is_live:
            self._says(f"{self.seconds:6.1f} s  {text}")

    def render(self) -> Group:
        """The table, for rich's own thread."""
        raise NotImplementedError

    @contextmanager
    def shown(self, console: Console, *, is_alone: bool) -> Iterator[None]:
        """Show the live table within the block, if the console is a terminal.

        `is_alone`: nothing else is printed there, and the last state stays; otherwise what is printed moves above the table.
        """
        if not console.is_terminal or console.is_dumb_terminal:
            yield
            return
        self.is_live = True
        try:
            with Live(
                get_renderable=self.render,
                console=console,
                refresh_per_second=REFRESHES_PER_SECOND,
                transient=not is_alone,
                redirect_stdout=not is_alone,
                redirect_stderr=not is_alone,
            ):
                yield
        finally:
            self.is_live = False

    @contextmanager
    def in_notebook(self) -> Iterator[None]:
        """Show the table below the cell within the block; its last state stays."""
        handle: Any = import_module("IPython.display").display(self, display_id=True)
        has_ended = threading.Event()

        def refresh() -> None:
            while not has_ended.wait(1 / REFRESHES_PER_SECOND):
                handle.update(self)

        thread = threading.Thread(target=refresh, name="databuild progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            has_ended.set()
            thread.join()
            handle.update(self)

    def _repr_html_(self) -> str:
        console = Console(file=io.StringIO(), record=True, width=NOTEBOOK_WIDTH, force_jupyter=False)
        console.print(self.render())
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


class BuildProgress(Display):
    """A build: one row per asset, and lines when a launch begins and ends."""

    def __init__(
        self, engine: Engine, tally: Tally, spark: SparkJobs | None = None, says: Callable[[str], None] = say
    ) -> None:
        super().__init__(says)
        self.tally = tally
        #: After the end, a ref that waits is one that was not built.
        self.is_over = False
        self._engine = engine
        self._spark = spark
        self._lock = threading.Lock()
        self._last: dict[str, Counter[str]] = {}
        self._waiting_for = ""

    def launching(self, job: str, n_partitions: int) -> None:
        self._waiting_for = ""
        if not self.is_live:
            self.tell()
        self.say(f"{job}: building {counted(n_partitions, 'partition')}")

    def waiting(self, sentence: str) -> None:
        if sentence != self._waiting_for:
            self._waiting_for = sentence
            self.say(f"waiting for {sentence}")

    def side_ticked(self, done: SideReport) -> None:
        for id, outcome in done.ended.items():
            self.say(f"{id} has ended: {outcome}")

    def timed_out(self, seconds: float) -> None:
        self._says(f"The --timeout of {seconds:g} s has passed.")

    def end(self) -> None:
        """The build is over: read the log once more."""
        self.is_over = True
        self.tell()

    def tell(self) -> None:
        """Print a line for each asset with news since the last call."""
        with self._lock:
            self.tally.look()
        seconds = self.tally.seconds(self._engine.now())
        for asset, counts in self.tally.count().items():
            before = self._last.get(asset, Counter())
            news = [f"{counts[name] - before[name]} {name}" for name in _LINED if counts[name] > before[name]]
            self._last[asset] = counts
            if news and asset in seconds:
                self.say(f"{asset}: {', '.join(news)}")

    def render(self) -> Group:
        with self._lock:
            if not self.is_over:
                self.tally.look()
            counts, seconds = self.tally.count(), self.tally.seconds(self._engine.now())
            running = {} if self.is_over or self._spark is None else self.tally.running()
            n_live, n_asked = self.tally.n_live(), len(self.tally.asked)
        # At the end, only the columns that have something to say.
        totals = sum(counts.values(), Counter[str]())
        columns = [name for name in COLUMNS if name == "live" or totals[name] or not self.is_over]
        table = Table(box=None, pad_edge=False)
        table.add_column("asset", max_width=40, no_wrap=True)
        for name in columns:
            table.add_column("not built" if self.is_over and name == "waiting" else name, justify="right")
        table.add_column("seconds", justify="right")
        if running:
            table.add_column("Spark", no_wrap=True)
        for asset, found in counts.items():
            styles = {name: _STYLES[name] if found[name] else "dim" for name in columns}
            cells = [Text(str(found[name] or "·"), style=style) for name, style in styles.items()]
            took = Text(f"{seconds[asset]:.1f}" if asset in seconds else "·", style="" if asset in seconds else "dim")
            stages = [self._spark.stages_of(running.get(asset, ()))] if running and self._spark else []
            table.add_row(asset, *cells, took, *stages)
        head = Text(f"{n_live} of {counted(n_asked, 'ref')} live, {self.seconds:.0f} s", style="bold")
        waiting = [Text(f"waiting for {self._waiting_for}")] if self._waiting_for and not self.is_over else []
        return Group(head, table, *waiting)


class SparkJobs:
    """The jobs that the home's Spark runs, by launch; a thread reads them from Spark's UI, as far as there is one."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._jobs: Sequence[RunningJob] = ()
        self._has_ended = threading.Event()

    @contextmanager
    def watched(self) -> Iterator[SparkJobs]:
        """Read within the block. An answer that takes long makes the table older, and never slower."""
        threading.Thread(target=self._watch, name="databuild spark jobs", daemon=True).start()
        try:
            yield self
        finally:
            self._has_ended.set()

    def stages_of(self, launch_ids: Sequence[str]) -> str:
        """For example: stage 2 of 3, 12 of 200 tasks. Empty if Spark runs nothing for these launches."""
        return stages_in_words([job for job in self._jobs if any(job.has_tag(launch) for launch in launch_ids)])

    def _watch(self) -> None:
        from databuild_dagster.spark.interrupt import running_jobs
        from databuild_dagster.spark.session import ui_urls

        while not self._has_ended.wait(SPARK_LOOK_SECONDS):
            self._jobs = [
                job for url in ui_urls(self._home) for job in running_jobs(url, timeout_seconds=SPARK_LOOK_SECONDS)
            ]


def stages_in_words(jobs: Sequence[RunningJob]) -> str:
    """The stage at which running jobs are, and their tasks; empty for none."""
    if not jobs:
        return ""
    n_stages, n_tasks = sum(job.n_stages for job in jobs), sum(job.n_tasks for job in jobs)
    stage = min(sum(job.n_done_stages for job in jobs) + 1, n_stages)
    return f"stage {stage} of {n_stages}, {sum(job.n_done_tasks for job in jobs)} of {counted(n_tasks, 'task')}"
