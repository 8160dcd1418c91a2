"""A week of a shop, played on the pages: files arrive, one is late, a bug fails a day, a taint, an operation.

python -m tools.story            open the page that each step names; Ctrl-C ends it
python -m tools.story --once     ends after the last step

It needs no Spark. The story asks the HTTP API of the pages what has happened, and waits a bounded time for it.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import urlencode

import pandas as pd

from tools.story_project import (
    DAYS,
    READS_COMMAS,
    READS_POINTS,
    SATURDAY,
    SETTINGS,
    SUNDAY,
    TUESDAY,
    WEDNESDAY,
    WEEK,
    WORKSPACE,
    definitions,
)

#: Nothing of the story takes longer, on a busy machine too.
MAX_SECONDS: Final = 240
#: Dagster waits a minute for each of its processes; after this they are killed.
STOP_SECONDS: Final = 30
POLL_SECONDS: Final = 0.5
FOLDER: Final = Path(__file__).parent.parent / ".story"
#: In a folder that a story has made. The story and its server hold a lock on it, and it names both.
MARK: Final = ".databuild-story"
_RELOAD: Final = 'mutation { reloadRepositoryLocation(repositoryLocationName: "definitions.py") { __typename } }'


class Shop:
    """The project in a folder, with `databuild dev` on it."""

    def __init__(
        self, folder: Path, code: Callable[[str], str] = definitions, first: str = READS_POINTS, port: int | None = None
    ) -> None:
        """`code` is the file definitions.py with one expression in it, which `deploy` changes from `first`."""
        self.folder = folder
        self._code, self._first = code, first
        self.home = folder / "home"
        self.port = port or _free_port()
        self.root = f"http://127.0.0.1:{self.port}"
        self.pages = f"{self.root}/databuild"
        self._environment = os.environ | {"DAGSTER_HOME": str(self.home)}

    @contextmanager
    def open(self) -> Iterator[Shop]:
        """From its start until each of its processes has ended. A folder of an earlier story is made empty.

        Raises SystemExit for a folder with other files, and for one whose story still runs.
        """
        if self.folder.exists() and any(self.folder.iterdir()) and not (self.folder / MARK).exists():
            raise SystemExit(f"{self.folder} has files of something else; name an empty folder by --folder.")
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / MARK).open("a+") as mark, self._played(mark):
            yield self

    @contextmanager
    def _played(self, mark: IO[str]) -> Iterator[None]:
        _lock(mark, self.folder)
        _make_empty(self.folder)
        (self.folder / "landing").mkdir()
        self.home.mkdir()
        (self.home / "dagster.yaml").write_text(SETTINGS)
        (self.folder / "workspace.yaml").write_text(WORKSPACE)
        (self.folder / "definitions.py").write_text(self._code(self._first))
        command = [sys.executable, "-m", "databuild_dagster", "dev", "-w", "workspace.yaml", "-p", str(self.port)]
        with (self.folder / "dev.log").open("w") as log:
            # With the lock: the server of a story that was killed has it until it ends, too.
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[mark.fileno()],
            )
            try:
                mark.write(f" and {process.pid}")
                mark.flush()
                self.wait_until(lambda: self._answers(process), "the pages answer")
                yield
            finally:
                _stop(process)

    # What people and tills do

    def land(self, day: str, amounts: Sequence[str], part: str = "") -> None:
        """The file of a day's till; a program renames it when it is whole."""
        name = f"tills_{day.replace('-', '')}{part}.parquet"
        whole, path = self.folder / f".{name}", self.folder / "landing" / name
        pd.DataFrame({"shop": ["north", "south"] * len(amounts), "amount": [*amounts, *amounts]}).to_parquet(whole)
        whole.rename(path)

    def deploy(self, expression: str) -> None:
        """Change the code, and load it again."""
        (self.folder / "definitions.py").write_text(self._code(expression))
        request = urllib.request.Request(
            f"{self.root}/graphql", json.dumps({"query": _RELOAD}).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.load(answer)
        assert "errors" not in found, found

    def databuild(self, *arguments: str, by: str | None = None) -> None:
        """A command of a person, which must succeed."""
        print(f"   $ databuild {shlex.join(arguments)}", flush=True)
        command = [sys.executable, "-m", "databuild_dagster", *arguments]
        subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment | ({"LOGNAME": by} if by else {}),
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=MAX_SECONDS,
        )

    # What the pages know

    def ask(self, name: str, **parameters: str) -> Any:
        """The answer of a url of the API."""
        query = f"?{urlencode(parameters)}" if parameters else ""
        with urllib.request.urlopen(f"{self.pages}/api/v1/{name}{query}", timeout=60) as answer:
            return json.load(answer)

    def state(self, ref: str) -> str | None:
        """The state of what readers of a ref see; None if it is missing, or not registered yet."""
        try:
            state: str | None = self.ask("partition", ref=ref)["state"]
        except urllib.error.HTTPError:
            return None
        return state

    def canonical(self, ref: str) -> str | None:
        """The uuid that readers of a ref see."""
        found = self.ask("partition", ref=ref)["canonical"]
        return None if found is None else found["uuid"]

    def wait_for(self, state: str, *refs: str) -> None:
        """Until all refs have the state."""
        self.wait_until(lambda: all(self.state(ref) == state for ref in refs), f"{', '.join(refs)} became {state}")

    def wait_until(self, happened: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + MAX_SECONDS
        pause = threading.Event()
        while not happened():
            if time.monotonic() > deadline:
                log = (self.folder / "dev.log").read_text()[-2000:]
                raise SystemExit(
                    f"The story waited {MAX_SECONDS} s until {what}. {self.folder}/dev.log ends so:\n{log}"
                )
            pause.wait(POLL_SECONDS)

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        if process.poll() is not None:
            raise SystemExit(f"databuild dev ended at its start: {(self.folder / 'dev.log').read_text()[-2000:]}")
        try:
            self.ask("head")
        except (OSError, ValueError):
            return False
        return True


def until_the_bug(shop: Shop) -> None:
    """Files arrive, Saturday's is late, and Wednesday's fails."""
    _step(1, "The tills send a file a day. Each day is added up as it comes.", f"{shop.pages}/assets")
    for day in DAYS:
        if day != SATURDAY:
            shop.land(day, ["12,50", "7,50"] if day == WEDNESDAY else ["12.50", "7.50"])
    well = [f"sales@{day}" for day in DAYS if day not in (WEDNESDAY, SATURDAY)]
    shop.wait_for("Live", *well)

    _step(2, "Saturday's file is missing. The gap report names it.", f"{shop.pages}/gaps?dataset=sales")
    shop.wait_until(lambda: shop.ask("gaps", dataset="sales")["n_absent"] > 0, "the gap report names the day")
    shop.land(SATURDAY, ["20.00", "1.00"])
    shop.wait_for("Live", f"sales@{SATURDAY}")
    print("   It has come late, and the day is built.")

    _step(3, "Wednesday's till writes commas, and the code fails. The week waits behind it.", f"{shop.pages}/")
    shop.wait_for("Failed", f"sales@{WEDNESDAY}")
    shop.wait_for("UpstreamFailed", WEEK)


def after_the_bug(shop: Shop) -> None:
    """The repair, a taint, more late data and an operation."""
    _step(4, "The code learns commas. One retry builds the day, and the week.", f"{shop.pages}/calendar?dataset=sales")
    shop.deploy(READS_COMMAS)
    shop.databuild("retry", f"sales@{WEDNESDAY}", "--reason", "the code reads commas now")
    shop.wait_for("Live", f"sales@{WEDNESDAY}", WEEK)

    _step(5, "Tuesday was wrong: it is tainted, with its week, and built again.", f"{shop.pages}/partition?ref={WEEK}")
    tuesday, week = f"sales@{TUESDAY}", shop.canonical(WEEK)
    shop.databuild("taint", tuesday, "--downstream", "--reason", "a till was counted twice")
    shop.databuild("want", "create", tuesday, WEEK)
    shop.wait_for("Live", tuesday, WEEK)
    shop.wait_until(lambda: shop.canonical(WEEK) != week, "the week was built again")

    _step(6, "A second till of Sunday comes late. Its day and its week follow.", f"{shop.pages}/arc?name=week")
    week = shop.canonical(WEEK)
    shop.land(SUNDAY, ["5.00"], part="_late")
    shop.wait_until(lambda: shop.canonical(WEEK) not in (week, None), "the week has the late file")
    shop.wait_for("Live", f"sales@{SUNDAY}", WEEK)

    _step(7, "An operation looks at every day: which have few sales?", f"{shop.pages}/operations")
    shop.databuild("operation", "run", "few_rows", "sales")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--once", action="store_true", help="end after the last step")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the shop; it is made empty")
    given = parser.parse_args()
    began = time.monotonic()
    # A terminal that is closed ends the story as Ctrl-C does, or the server would stay.
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.default_int_handler)
    try:
        with Shop(given.folder.absolute()).open() as shop:
            until_the_bug(shop)
            after_the_bug(shop)
            print(f"\nThe week took {time.monotonic() - began:.0f} s. All of it is at {shop.pages}/", flush=True)
            if not given.once:
                print("Ctrl-C ends it.", flush=True)
                signal.pause()
    except KeyboardInterrupt:
        print(f"\nEnded. {given.folder} has the shop.")
    return 0


def _step(number: int, title: str, page: str) -> None:
    print(f"\n{number}. {title}\n   {page}", flush=True)


def _lock(mark: IO[str], folder: Path) -> None:
    """Raises SystemExit while another story or its server has the folder."""
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        mark.seek(0)
        raise SystemExit(
            f"A story runs in {folder}, as processes {mark.read()}. End it with Ctrl-C, or name another folder by --folder."
        ) from None
    mark.truncate(0)
    mark.write(str(os.getpid()))
    mark.flush()


def _make_empty(folder: Path) -> None:
    """Remove all but the mark, which is locked."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != MARK:
            path.unlink()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does it; what is left then is killed."""
    for sign in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(STOP_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


if __name__ == "__main__":
    sys.exit(main())
