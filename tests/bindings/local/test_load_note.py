"""A note of a load is used only if the same definitions would load now (decision 0066)."""

import subprocess
import sys
from pathlib import Path

import pytest

import databuild_dagster
from tests.support.child_environment import child_environment

#: Loads the module `project`, whose function `body` is an asset's, and writes the note; or, with "ask", prints whether it holds.
SCRIPT = """
import importlib, sys
from pathlib import Path
from databuild_dagster.bindings.local.load_note import LoadWatch, read_note

home = Path("home")
if sys.argv[1] == "ask":
    print(read_note(home, "options") is not None)
else:
    with (watch := LoadWatch(home, "options")):
        project = importlib.import_module("project")
    watch.write([project.body] if hasattr(project, "body") else [], 1, "fingerprint", ["all_definitions"])
"""


class Folder:
    """A project's folder. Every call is a process of its own, as a command is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "home").mkdir()
        (path / "helper.py").write_text("KEYS = ['a']\n")
        (path / "keys.txt").write_text("a\n")
        self.program = ["-c", SCRIPT]

    def load(self, source: str) -> None:
        (self.path / "project.py").write_text(source)
        self._run("load")

    def is_known(self, **environment: str) -> bool:
        return self._run("ask", **environment) == "True\n"

    def _run(self, what: str, **environment: str) -> str:
        given = (
            child_environment()
            | {"PYTHONPATH": f"{self.path}:{Path(databuild_dagster.__file__).parents[1]}"}
            | environment
        )
        command = [sys.executable, *self.program, what]
        return subprocess.run(command, cwd=self.path, env=given, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


READS = "import glob, helper\nkeys = open('keys.txt').read(), glob.glob('home/*.txt')\n"


def test_a_load_is_known_while_nothing_that_it_read_has_changed(folder: Folder) -> None:
    folder.load(READS)

    assert folder.is_known()
    assert folder.is_known(), "the first question wrote byte code at most"
    assert folder.is_known(TERM="other", SSH_CLIENT="other"), "no definitions read what a terminal sets"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda path: (path / "project.py").write_text("import helper\n#\n"), id="the module"),
        pytest.param(lambda path: (path / "helper.py").write_text("KEYS = ['b']\n"), id="an imported module"),
        pytest.param(lambda path: (path / "keys.txt").write_text("b\n"), id="a file that it opened"),
        pytest.param(lambda path: (path / "keys.txt").unlink(), id="a file that is gone"),
        pytest.param(lambda path: (path / "json.py").touch(), id="a new module in its folder"),
        pytest.param(lambda path: (path / "home" / "dagster.yaml").touch(), id="settings of the home"),
        pytest.param(
            lambda path: (path / "home" / "loaded.json").write_bytes(b'{"surroundings": "\xff"}'), id="a damaged note"
        ),
    ],
)
def test_a_load_is_not_known_after_a_change(folder: Folder, change) -> None:  # type: ignore[no-untyped-def]
    folder.load(READS)

    change(folder.path)

    assert not folder.is_known()


def test_a_load_by_an_installed_command_is_known(folder: Folder) -> None:
    # `multiprocessing` gives the script a second name.
    (folder.path / "command").write_text(f"import multiprocessing\n{SCRIPT}")
    folder.program = ["command"]

    folder.load(READS)

    assert folder.is_known()


def test_a_load_is_not_known_in_another_environment(folder: Folder) -> None:
    folder.load("import os\nkeys = os.environ.get('KEYS')\n")

    assert not folder.is_known(KEYS="a")


def test_a_file_that_was_not_there_is_an_input(folder: Folder) -> None:
    source = "try:\n    keys = open('home/optional.txt').read()\nexcept OSError:\n    keys = ''\n"
    folder.load(source)
    known = folder.is_known()

    (folder.path / "home" / "optional.txt").write_text("a\n")

    assert (known, folder.is_known()) == (True, False)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("import subprocess\nsubprocess.run(['true'])\n", id="a process"),
        pytest.param("import socket\nsocket.gethostname()\n", id="the name of the host"),
        pytest.param("import sqlite3\nsqlite3.connect(':memory:')\n", id="a database"),
        pytest.param("from datetime import datetime\nend = datetime.now()\n", id="a clock"),
        pytest.param("import random\nkeys = random.sample('ab', 1)\n", id="chance"),
        pytest.param("import random as chance\nkeys = chance.sample('ab', 1)\n", id="chance by another name"),
        pytest.param("import datetime as d\ndef end():\n    return d.date.today()\nend()\n", id="a function that runs"),
        pytest.param("import datetime as d\nrun = lambda f: f()\n@run\ndef end():\n    return d.date.today()\n", id="decorated"),
        pytest.param("import time\nfrom functools import cache\n@cache\ndef now():\n    return time.time()\nnow()\n", id="cached"),
        pytest.param("import datetime as d\ndef all_definitions():\n    return d.date.today()\n", id="called by Dagster"),
        pytest.param("import datetime as d\ndef __getattr__(name):\n    return d.date.today()\n", id="a module's names"),
        pytest.param("from pathlib import Path\nis_on = Path('home/x').exists()\n", id="whether a file exists"),
        pytest.param("import glob\nis_on = glob.glob('home/x')\n", id="a pattern without wildcards"),
        pytest.param("from pathlib import Path\ndone = [*Path('.').glob('*/_SUCCESS')]\n", id="a name in any folder"),
        pytest.param("open('keys.txt', 'a').write('x')\n", id="a file that changed meanwhile"),
    ],
)  # fmt: skip
def test_a_load_with_an_input_that_has_no_stat_is_not_known(folder: Folder, source: str) -> None:
    folder.load(READS)
    assert folder.is_known(), "a note that the next load has to remove"

    folder.load(source)

    assert not folder.is_known()


def test_a_clock_in_a_function_that_no_load_calls_is_no_input(folder: Folder) -> None:
    folder.load(
        "import datetime as d\nimport random\nfrom functools import cache\n"
        "@cache\n"
        "def cached():\n    return d.datetime.now()\n"
        "def stamp():\n    return d.datetime.now()\n"
        "def decorated(function):\n    return function\n"
        "@decorated\n"
        "def body():\n    return stamp(), random.random()\n"
    )

    assert folder.is_known()
