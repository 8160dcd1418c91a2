"""A client: it runs random commands, one after another, and records the call and the answer of each.

python -m tests.service.client FOLDER NAME SEED         until it is killed, or the file `stop` is there
python -m tests.service.client FOLDER NAME SEED --ticks the same, with `databuild admin tick` as the only command
"""

from __future__ import annotations

import io
import json
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from databuild_dagster.cli.main import run

from .pipeline import REFS

#: Clients stop when this file is there.
STOP = "stop"
#: A build that waits for a paused ref, or for a client that was killed, ends after this time.
BUILD_SECONDS = 20


class Client:
    """Its records are lines of JSON: a call, and an answer with the same number."""

    def __init__(self, folder: Path, name: str, seed: int) -> None:
        self._folder = folder
        self._rng = random.Random(seed)
        self._records = (folder / f"client-{name}-{os.getpid()}.jsonl").open("a", buffering=1)
        self._n = 0
        #: What it learned from answers: instances of a ref, taints and wants.
        self._instances: dict[str, list[str]] = {}
        self._taints: list[str] = []
        self._wants: list[str] = []

    def work(self) -> None:
        commands: list[tuple[int, Callable[[str], None]]] = [
            (5, self.read),
            (4, self.show),
            (5, self.build),
            (2, self.want),
            (1, self.cancel),
            (3, self.taint),
            (1, self.untaint),
            (1, self.revert),
            (1, self.pause),
            (2, self.resume),
            (1, self.retry),
        ]
        weights, choices = zip(*commands, strict=True)
        while not self._ends():
            (command,) = self._rng.choices(choices, weights)
            command(self._rng.choice(REFS))

    def tick(self) -> None:
        while not self._ends():
            self._do("tick", "", "admin", "tick")

    def _ends(self) -> bool:
        return (self._folder / STOP).exists()

    # Commands

    def read(self, ref: str) -> None:
        self._do("read", ref, "read", ref)

    def show(self, ref: str) -> None:
        answer = self._do("show", ref, "show", ref)
        if answer and answer.get("state") == "Live":
            known = self._instances.setdefault(ref, [])
            if (uuid := answer["canonical"]["uuid"]) not in known:
                known.append(uuid)

    def build(self, ref: str) -> None:
        self._do("build", ref, "build", ref, "--timeout", f"{BUILD_SECONDS}s")

    def want(self, ref: str) -> None:
        self._wants += [want["id"] for want in self._do("want", ref, "want", "create", ref) or ()]

    def cancel(self, ref: str) -> None:
        if self._wants:
            want = self._wants.pop(self._rng.randrange(len(self._wants)))
            self._do("cancel", want, "want", "cancel", want)

    def taint(self, ref: str) -> None:
        if answer := self._do("taint", ref, "taint", ref, "--reason", "a client says so"):
            self._taints.append(answer["taint_id"])

    def untaint(self, ref: str) -> None:
        if self._taints:
            taint = self._taints.pop(self._rng.randrange(len(self._taints)))
            self._do("untaint", taint, "untaint", taint)

    def revert(self, ref: str) -> None:
        if known := self._instances.get(ref):
            uuid = self._rng.choice(known)
            self._do("revert", ref, "revert", ref, "--to", uuid, of=uuid)

    def pause(self, ref: str) -> None:
        self._do("pause", ref, "pause", ref, "--reason", "a client says so")

    def resume(self, ref: str) -> None:
        self._do("resume", ref, "resume", ref)

    def retry(self, ref: str) -> None:
        self._do("retry", ref, "retry", ref)

    def _do(self, what: str, ref: str, *arguments: str, of: str | None = None) -> Any:
        """The answer's JSON; None if the command was refused."""
        self._n += 1
        self._record(call=self._n, what=what, ref=ref, of=of)
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = run([*arguments, "--json"])
        try:
            answer = json.loads(out.getvalue())
        except ValueError:
            answer = {"error": {"type": "NoJson", "message": out.getvalue() + err.getvalue()}}
        self._record(answer=self._n, code=code, out=answer)
        return None if isinstance(answer, dict) and "error" in answer else answer

    def _record(self, **facts: Any) -> None:
        self._records.write(json.dumps({"at": time.monotonic(), "pid": os.getpid(), **facts}) + "\n")


def main() -> None:
    folder, name, seed, *options = sys.argv[1:]
    client = Client(Path(folder), name, int(seed))
    client.tick() if options else client.work()


if __name__ == "__main__":
    main()
