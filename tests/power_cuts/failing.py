"""`make disk-errors`: the system calls of recorded commands that change files fail one after the other.

python -m tests.power_cuts.failing --stride 1 --commands 0 1

EIO is an error of one call. ENOSPC is the error of that call and of all later ones of its command: the disk is full.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from databuild_dagster.cli.main import run
from databuild_dagster.cli.process import FAILED, REFUSED
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import open_store

from .cutting import OF_DAGSTER, judged, new_project
from .faulty_calls import Call, Ended, run_failing
from .scenario import ask, commands

ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}
#: Nothing that a user reads has these.
_UNWANTED = ("Traceback (most recent call last)", "--debug")
_COMMANDS, _MODULES, _PRINTED = "commands.json", "modules.json", "printed"
#: Commands of a day.
N_COMMANDS = 10


class Recorded(NamedTuple):
    """A command of the scenario, with the project as it was before and the facts of a run without an error."""

    arguments: list[str]
    project: Path
    n_calls: int
    #: The end of the log before and after it.
    before: int
    after: int


class Case(NamedTuple):
    """One command with one error."""

    command: Recorded
    error: str
    n: int


class Judged(NamedTuple):
    """A command that met its error."""

    call: str
    is_done: bool
    faults: list[str]


def record(scratch: Path, places: Sequence[int]) -> list[Recorded]:
    """The commands at some places of the scenario's first day, each run again in a fork."""
    prepared = run_failing(partial(_prepare, scratch, max(places) + 1), str(scratch))
    assert prepared.code == 0, (scratch / _PRINTED).read_text()
    for name in json.loads((scratch / _MODULES).read_text()):
        # The forks have imported it then.
        with suppress(Exception):
            importlib.import_module(name)
    found = []
    for place, arguments in enumerate(json.loads((scratch / _COMMANDS).read_text())):
        if place in places:
            project = scratch / f"before-{place}"
            with _copied(project) as copy:
                before = _head(copy)
                ended, said = _call(arguments, copy)
                assert ended.code == 0, (arguments, said)
                found.append(Recorded(arguments, project, ended.n_calls, before, _head(copy)))
    return found


def _prepare(scratch: Path, n_commands: int) -> int:
    project, done = scratch / "project", []
    new_project(project)
    _enter(project, scratch / _PRINTED)
    for place, arguments in enumerate(islice(commands(1), n_commands)):
        shutil.copytree(project, scratch / f"before-{place}")
        done.append(arguments)
        ask(*arguments)
    (scratch / _COMMANDS).write_text(json.dumps(done))
    (scratch / _MODULES).write_text(json.dumps(sorted(sys.modules)))
    return 0


def cases(recorded: Sequence[Recorded], stride: int, first: int) -> Iterator[Case]:
    """Every `stride`-th call of each command, with either error in turns; all calls with both if the stride is 1."""
    for command in recorded:
        for n in range(first, command.n_calls + 1, stride):
            errors = list(ERRORS) if stride == 1 else [list(ERRORS)[n // stride % 2]]
            yield from (Case(command, error, n) for error in errors)


def judge(case: Case) -> Judged | None:
    """Run the command with its error, and look at what it left; None if it made fewer calls this time."""
    number, is_full = ERRORS[case.error], case.error == "ENOSPC"

    def error_of(call: Call) -> int:
        return number if call.n == case.n or (is_full and call.n > case.n) else 0

    with _copied(case.command.project) as project:
        ended, said = _call(case.command.arguments, project, error_of)
        if ended.failed is None:
            return None
        where = f"{' '.join(case.command.arguments)}, {case.error} at {ended.failed}"
        faults = [f"{where}: {fault}" for fault in _faults(case.command, project, ended.code, said)]
        return Judged(ended.failed.name, ended.code == 0, faults)


def judge_all(some: Sequence[Case], n_processes: int, results: Path) -> list[Judged]:
    """Judge each case in a fork of its own, which no thread or connection of an earlier case is left in.

    A fork that something else killed, such as a system that lacks memory, has judged nothing: its case gets one more.
    """
    running: dict[int, Case] = {}
    killed: list[Case] = []

    def await_one() -> None:
        pid, status = os.wait()
        case = running.pop(pid)
        if os.WIFSIGNALED(status):
            print(f"{case}: its fork ended by signal {os.WTERMSIG(status)}", file=sys.stderr)
            killed.append(case)

    for case in some:
        if len(running) == n_processes:
            await_one()
        running[_fork_for(case, results)] = case
    while running:
        await_one()
    for case in killed:
        _, status = os.waitpid(_fork_for(case, results), 0)
        assert not os.WIFSIGNALED(status), f"two forks of {case} ended by a signal, now by {os.WTERMSIG(status)}"
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert len(lines) == len(some), f"{len(lines)} of {len(some)} forks left a line"
    return [Judged(*line) for line in lines if line is not None]


def _fork_for(case: Case, results: Path) -> int:
    """Its process id; it appends a line to the results."""
    if pid := os.fork():
        return pid
    try:
        found = judge(case)
    except BaseException:
        found = Judged("", False, [f"{case}: {traceback.format_exc()}"])
    with open(results, "a") as file:
        file.write(json.dumps(found) + "\n")
    os._exit(0)


def _faults(command: Recorded, project: Path, code: int, said: str) -> Iterator[str]:
    if code not in (0, FAILED, REFUSED):
        yield f"it ended by {code}: {said}"
    if any(unwanted in said for unwanted in _UNWANTED):
        yield f"it printed more than a sentence: {said}"
    seq = _head(project)
    if seq < (command.after if code == 0 else command.before):
        yield f"the log ends at {seq}"
    again, said_again = _call(command.arguments, project)
    # What was recorded although it failed cannot always be done twice.
    if again.code != 0 and not (again.code == REFUSED and seq > command.before):
        yield f"the same command, run again, ended by {again.code}: {said_again}"
    _, found = judged(project, seq)
    yield from found


def _call(arguments: Sequence[str], project: Path, errors: Callable[[Call], int] = lambda call: 0) -> tuple[Ended, str]:
    """Run a command in a fork; returns what it printed, too."""
    printed = Path(f"{project}.printed")
    ended = run_failing(partial(_command, arguments, project, printed), str(project), errors, left_out=OF_DAGSTER)
    return ended, printed.read_text(errors="replace")


def _command(arguments: Sequence[str], project: Path, printed: Path) -> int:
    _enter(project, printed)
    return run([*arguments, "--json"])


def _enter(project: Path, printed: Path) -> None:
    """Give this fork a project, and a file for what it prints."""
    descriptor = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(project)
    os.environ |= {"DAGSTER_HOME": f"{project}/home", "DATABUILD_SQLITE_SYNCHRONOUS": "FULL"}


@contextmanager
def _copied(project: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="databuild-errors-") as folder:
        copy = Path(folder) / "project"
        shutil.copytree(project, copy)
        yield copy


def _head(project: Path) -> int:
    store = open_store(f"sqlite:///{project}/home/databuild.db")
    try:
        return Queries(store).events.head().seq
    finally:
        store.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make disk-errors", description=__doc__)
    parser.add_argument("--stride", type=int, default=1, help="look at every so many calls")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--commands", type=int, nargs="*", default=range(N_COMMANDS), help="places in the scenario")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="databuild-errors-") as folder:
        scratch = Path(folder).resolve()
        recorded = record(scratch, options.commands)
        some = list(cases(recorded, options.stride, options.first))
        found = judge_all(some, options.processes, scratch / "results")
    n_faults = sum(len(one.faults) for one in found)
    kinds = ", ".join(f"{n} of {name}" for name, n in sorted(Counter(one.call for one in found).items()))
    print(
        f"{len(recorded)} commands changed files by {sum(command.n_calls for command in recorded)} calls: {len(found)} "
        f"errors ({kinds}), {sum(one.is_done for one in found)} commands done nevertheless, {n_faults} faults, "
        f"{time.monotonic() - began:.0f} s"
    )
    for fault in [fault for one in found for fault in one.faults][:20]:
        print(f"\n{fault}")
    return 1 if n_faults else 0


if __name__ == "__main__":
    sys.exit(main())
