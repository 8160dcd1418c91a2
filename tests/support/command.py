"""The `databuild` and `dagster` commands in this process, which saves two seconds of imports for each; and in another one."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from databuild_dagster.cli.main import run
from databuild_dagster.cli.process import INTERRUPTED
from tests.support.child_environment import child_environment


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The last line of stdout."""
        return json.loads(self.out.splitlines()[-1])


def databuild(folder: Path, home: Path | None, *arguments: str) -> Done:
    """`databuild ARGUMENTS` in a folder; without a home it is the project's own, `.dagster_home`."""
    return _in_folder(folder, home, lambda: run(list(arguments)))


def dagster(folder: Path, home: Path, *arguments: str) -> Done:
    """`dagster ARGUMENTS` in a folder."""
    from dagster._cli import cli

    def call() -> int:
        try:
            cli.main(list(arguments), prog_name="dagster")
        except SystemExit as leaving:
            return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        return 0

    return _in_folder(folder, home, call)


def run_python(
    folder: Path, *arguments: str, seconds: float, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS` in a folder, in a process of its own that knows nothing of this test run."""
    unset = ("DAGSTER_HOME", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST")
    own = {name: value for name, value in child_environment().items() if name not in unset}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**own, **(more or {})},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def share_spark_server(home: Path, spark_home: str | Path) -> None:
    """Make the server of the whole test run that of a home: the files of a server are below the home."""
    shared = Path(spark_home) / "spark"
    shared.mkdir(exist_ok=True)
    (home / "spark").symlink_to(shared)


def _in_folder(folder: Path, home: Path | None, command: Callable[[], int]) -> Done:
    out, err = io.StringIO(), io.StringIO()
    handler = signal.getsignal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        if home is None:
            # Set first, so that what the command puts there is taken away again.
            patch.setenv("DAGSTER_HOME", "")
            del os.environ["DAGSTER_HOME"]
        else:
            patch.setenv("DAGSTER_HOME", str(home))
        try:
            code = command()
        finally:
            # A command that Ctrl-C has reached ignores the next one, for its process is about to end.
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, handler)
    if code == INTERRUPTED:
        # The test run is to end, and the command took that for its own Ctrl-C.
        raise KeyboardInterrupt
    return Done(code, out.getvalue(), err.getvalue())
