"""The steps of `make package`: each is timed, and a command that does not end as it should names its step."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

STEP_SECONDS = 600


class Failed(Exception):
    """A step that did not end as it should."""


@contextmanager
def step(name: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    except Failed as failure:
        raise Failed(f"{name}: {failure}") from None
    print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


def environment(folder: Path) -> Path:
    run(sys.executable, "-m", "venv", str(folder))
    return folder / "bin" / "python"


def pip(python: Path, *arguments: str) -> None:
    run(str(python), "-m", "pip", "--disable-pip-version-check", *arguments)


def run(*command: str, cwd: Path | None = None, more: Mapping[str, str] | None = None, exits: int = 0) -> str:
    """What a command says. Raises `Failed` with it if the command ends in another way."""
    # No step may need a compiler: its users may have Python alone.
    given = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "DAGSTER_HOME")}
    inherited = {**given, "CC": "false", "CXX": "false", "PYTHONFAULTHANDLER": "1"}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, **(more or {})},
        capture_output=True,
        text=True,
        timeout=STEP_SECONDS,
        check=False,
    )
    said = f"{done.stdout}\n{done.stderr}"
    if done.returncode != exits:
        raise Failed(f"{' '.join(command)} ended with {done.returncode}\n{said[-3000:]}")
    return said
