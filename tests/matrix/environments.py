"""From a row to an interpreter with its versions and the package, as a user would install it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path

from .rows import Environment

CHECKOUT = Path(__file__).parents[2]
#: The folders of the two distributions.
SOURCES = (CHECKOUT, CHECKOUT / "distributions" / "databuild-dagster-core")
#: Environments stay here between runs: installing Spark takes a minute and a half.
FOLDER = CHECKOUT / ".matrix"
#: What pip says of a version that no index has for this interpreter.
_NOT_TO_BE_HAD = re.compile(r"No matching distribution found for (\S+)")


class NotRun(Exception):
    """A row that cannot be tried here, which proves nothing."""


class Broken(Exception):
    """Versions that pip cannot bring together with the package."""


def build_wheels() -> list[Path]:
    """The wheels of both distributions as they are published: each is made from its source distribution."""
    folder = FOLDER / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    for source in SOURCES:
        _pip_or_fail([sys.executable, "-m", "build", "--outdir", str(folder), str(source)])
    return sorted(folder.glob("*.whl"))


def python_of(environment: Environment, wheels: Sequence[Path]) -> Path:
    """The interpreter of an environment with the package of today. Raises `NotRun`, `Broken`."""
    folder = FOLDER / _digest(environment)
    python = folder / "bin" / "python"
    given = [str(wheel) for wheel in wheels if "_core-" in wheel.name or not environment.is_core]
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run([_interpreter(environment.python), "-m", "venv", str(folder)])
        _pip(python, "install", *given, *environment.requirements)
        (folder / "complete").touch()
    else:
        _pip(python, "install", "--no-deps", "--force-reinstall", *given)
    _pip(python, "check")
    return python


def _digest(environment: Environment) -> str:
    text = json.dumps(astuple(environment))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _interpreter(version: str) -> str:
    """A Python of this version on the PATH, or one of pyenv's. Raises `NotRun`."""
    for candidate in _candidates(version):
        asked = [candidate, "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
        if answer.returncode == 0 and answer.stdout.strip() == version:
            return candidate
    raise NotRun(f"no Python {version} with venv is on this machine")


def _candidates(version: str) -> Iterator[str]:
    if f"{sys.version_info[0]}.{sys.version_info[1]}" == version:
        yield sys.executable
    if found := shutil.which(f"python{version}"):
        yield found
    home = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from map(str, sorted(home.glob(f"versions/{version}.*/bin/python")))


def _pip(python: Path, *arguments: str) -> None:
    _pip_or_fail([str(python), "-m", "pip", "--disable-pip-version-check", *arguments])


def _pip_or_fail(command: Sequence[str]) -> None:
    """Raises `NotRun` if a version is not to be had, and `Broken` if versions do not go together."""
    done = _run(command)
    if done.returncode == 0:
        return
    said = f"{done.stdout}\n{done.stderr}"
    missing = _NOT_TO_BE_HAD.search(said)
    # A version of the row may not be to be had here; any other requirement is the package's own mistake.
    if missing and any(asked.startswith(re.split(r"[\[=<>]", missing[1])[0]) for asked in command):
        raise NotRun(f"{missing[1]} is not to be had here")
    raise Broken("\n".join(line for line in said.splitlines() if "WARNING" not in line)[-2000:])


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    # The checkout must not be what is imported.
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
