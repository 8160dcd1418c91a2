"""Arguments of the command line. Every command ends with 0, 1 or 2, and with one sentence if it refuses (rules 15)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import click

from databuild_dagster.cli.groups import TableGroup
from databuild_dagster.cli.main import cli
from tests.support.project import Done, Project, make_empty_home

from .values import NUMBERS, PATHS, TEXTS, TIMES, any_json, any_text

NAME = "commands"
N_IN_CI = 60
#: `dev` becomes another process.
LEFT_OUT = frozenset({("dev",), ("dev", "--no-daemon")})
#: These end by Ctrl-C alone.
ENDLESS = frozenset({"--follow", "--serve"})
#: Options whose value is a path, or a text of a form of its own.
PATH_OPTIONS = frozenset({"-f", "-w", "--rules", "--files", "--name"})
REFS = (
    *("orders@2024-01-29", "orders@2024-01-30", "orders@2024-01-31", "revenue@2024-01-01", "wrong_type", "orders"),
    *("orders@2024-01-29..2024-02-02", "orders@*", "orders@..", "orders@2024-02-02..2024-01-29", "orders@2024-02-30"),
    *(
        "orders@99999-01-01",
        "order@2024-01-29",
        "orders@",
        "@",
        "a@b@c",
        "orders@1..2..3",
        "revenue_of_january@",
        "x/y/z@1",
    ),
    *(
        "orders@" + "9" * 5000,
        "orders@\0",
        "orders@\udcff",
        "orders@2024-01-29..",
        "orders@..2024-01-30",
        "wrong_type@*",
    ),
)
STATES = ("live", "failed", "missing", "live,failed", "Live", ",", "bogus", "stale,", "open", "")
DEFINITIONS = {
    "empty.py": "",
    "broken.py": "import no_such_module\n",
    "syntax.py": "def (\n",
    "exits.py": "import sys\nsys.exit(3)\n",
    "binary.py": "\udcff",
    "none.yaml": "",
    "list.yaml": "- 1\n",
    "three.yaml": "load_from: 3\n",
    "odd.yaml": "load_from:\n  - python_file: {a: 1}\n",
    "date.yaml": "load_from: 2024-02-30\n",
    "deep.yaml": "[" * 600,
    "rules.yaml": "rules:\n- not_null: day\n",
}


def leaves(group: TableGroup, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command by its words."""
    context = click.Context(group)
    for name, row in group.rows.items():
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, TableGroup):
            yield from leaves(command, *path, name)
        elif row is not None:
            yield (*path, *name.split()), command


#: Values of the environment and of dagster.yaml, of which an input may have one.
URLS = (
    *(
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///nowhere/x.db",
        "sqlite:////dev/null",
        "sqlite:////",
        "sqlite",
        "mysql://x/y",
    ),
    *(
        "sqlite:///home/dagster.yaml",
        "sqlite:///" + "a" * 300,
        "postgresql://127.0.0.1:1/x?connect_timeout=1",
        "postgresql://[",
        "x:y:z",
    ),
)
SETTINGS = (
    *(
        "[" * 600,
        "{",
        "- 1\n",
        "3\n",
        "\0",
        "a: !!python/object:os.system x\n",
        "a: &a [*a]\n",
        "a: 2024-02-30\n",
        "? {}\n: 1\n",
    ),
    *(
        "storage: 3\n",
        "storage: {sqlite: {base_dir: 3}}\n",
        "storage: {nothing: {}}\n",
        "storage:\n  sqlite: {base_dir: /dev/null/x}\n",
    ),
    *(
        "local_artifact_storage: {module: x}\n",
        "instance_class: {module: x, class: y}\n",
        "run_coordinator: 3\n",
        "telemetry: x\n",
    ),
)
#: Without the folders of this machine: a home gets a build state, which other tests would find above their own folders.
_HOMES = tuple(path for path in PATHS if path not in ("/", "~", "~root"))


class Commands:
    """The command line over a small project that has something of everything."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.commands = [(path, command) for path, command in leaves(cli) if path not in LEFT_OUT]
        self.pristine = project.folder / "pristine"
        self.ids = self._prepare()
        shutil.copytree(project.home, self.pristine)

    def _prepare(self) -> tuple[str, ...]:
        project = self.project
        for name, text in DEFINITIONS.items():
            (project.folder / name).write_text(text, errors="surrogateescape")
        project.build("orders@2024-01-29", "orders@2024-01-30", "revenue_of_january")
        project.call("build", "wrong_type")
        project.call("want", "create", "revenue@2024-01-01", "orders@2024-02-05")
        tainted = project.ask("taint", "orders@2024-01-30", "--reason", "wrong")
        wants = project.ask("want", "list", "--all")
        runs = project.ask("history", "--job-runs")
        shown = project.ask("history", "orders@2024-01-29")
        return tuple(dict.fromkeys(_uuids([tainted, wants, runs, shown])))

    def make(self, random: Random) -> dict[str, Any]:
        given: dict[str, Any] = {"arguments": self._arguments(random)}
        match random.randrange(30):
            case 0:
                given["environment"] = {"DATABUILD_DB_URL": random.choice(URLS)}
            case 1:
                given["environment"] = {"DAGSTER_HOME": random.choice(_HOMES).replace("\0", "").replace("\udcff", "")}
            case 2 | 3:
                given["dagster.yaml"] = random.choice(SETTINGS)
        return given

    def _arguments(self, random: Random) -> list[str]:
        path, command = random.choice(self.commands)
        arguments: list[str] = list(path)
        if path[:2] == ("operation", "run"):
            arguments += ["--no-wait"]
        for param in command.params:
            if isinstance(param, click.Option):
                if param.opts[0] in ENDLESS or param.opts[0] in ("--debug", "--local"):
                    continue
                if random.random() < (0.9 if param.required else 0.25):
                    arguments += self._option(random, param)
            elif random.random() < 0.95:
                n = 1 if param.nargs == 1 else random.choice((1, 1, 2, 3))
                arguments += [self._value(random, param) for _ in range(n)]
        if random.random() < 0.1:
            arguments.insert(random.randrange(1, len(arguments) + 1), any_text(random))
        return [argument for argument in arguments if argument not in ENDLESS]

    def _option(self, random: Random, option: click.Option) -> list[str]:
        if option.is_flag:
            return [random.choice(option.opts)]
        name, value = random.choice(option.opts), self._value(random, option)
        return [f"{name}={value}"] if name.startswith("--") and random.random() < 0.3 else [name, value]

    def _value(self, random: Random, param: click.Parameter) -> str:
        if random.random() < 0.15:
            return any_text(random)
        name, kind = param.opts[0], type(param.type).__name__
        if name == "--arg":
            return json.dumps(any_json(random)) if random.random() < 0.8 else "[" * 5_000
        if name == "--as-of":
            return random.choice((*TIMES, *NUMBERS))
        if isinstance(param.type, click.Choice):
            return str(random.choice(param.type.choices))
        if kind in ("IntRange", "IntParamType"):
            return random.choice(NUMBERS)
        if kind in ("Duration", "Instant", "FromNow"):
            return random.choice(TIMES)
        if kind == "States":
            return random.choice(STATES)
        if kind == "Path" or name in PATH_OPTIONS or name == "uris":
            return random.choice((*PATHS, *DEFINITIONS))
        if name in ("-m", "--location", "--source", "--reason", "--comment"):
            return random.choice(TEXTS)
        return random.choice((*REFS, *REFS, *self.ids, *TEXTS))

    def feed(self, given: dict[str, Any]) -> None:
        project = self.project
        shutil.rmtree(project.home)
        shutil.copytree(self.pristine, project.home)
        if "dagster.yaml" in given:
            (project.home / "dagster.yaml").write_text(given["dagster.yaml"])
        done = project.call(*given["arguments"], **given.get("environment", {}))
        check_documented(given["arguments"], done)


def check_documented(given: list[str], done: Done) -> None:
    """The documented exit codes, one sentence for a refusal, and JSON alone with --json."""
    assert done.code in (0, 1, 2, 75), done.code
    for words in ("Run it again with --debug", "Traceback (most recent call last)"):
        assert words not in done.out + done.err, done.out + done.err
    if "--" in given:
        # Whether --json is an option there depends on the command.
        return
    if "--json" in given and "-h" not in given and "--help" not in given:
        for line in done.out.splitlines():
            json.loads(line)
        if done.code == 2:
            assert set(json.loads(done.out)["error"]) == {"type", "message", "hint"}
    elif done.code == 2 and "Usage:" not in done.err:
        assert sum(line.startswith("Error: ") for line in done.err.splitlines()) == 1, done.err


def _uuids(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _uuids(item)
    elif isinstance(value, str) and len(value) == 36 and value.count("-") == 4:
        yield value


@contextmanager
def ready(folder: Path) -> Iterator[Commands]:
    project = Project(folder, make_empty_home(folder / "empty"))
    try:
        yield Commands(project)
    finally:
        project.end()
