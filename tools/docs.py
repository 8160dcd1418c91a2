"""Rebuilds the generated pages: docs/states.md from the machines' tables, docs/reference/command-line.md from the commands,
docs/reference/api.md from the docstrings, the fields of records in docs/rules/15-json.md from the records, and the schema of a
manifest, which is shipped in the package too, from its class.

python tools/docs.py            writes them
python tools/docs.py --check    says which are out of date, and fails
"""

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import click
import msgspec
from api_reference import api_page

import databuild_dagster.warehouse
from databuild_dagster.cli.main import cli
from databuild_dagster.warehouse.manifest import SHIPPED, manifest_schema

DOCS = Path(__file__).parent.parent / "docs"

#: The records of docs/rules/15-json.md by their modules.
_RECORDS_OF = {
    "engine.why.want_report": "RecordedWant CanceledWant ShownReport Retried",
    "store.queries.wants": "WantView",
    "store.queries.instances": "TaintNow",
    "cli.build": "ShownBuild",
    "cli.tick": "ShownTick",
    "cli.partitions": "Listed",
    "calls.status": "Status",
    "engine.why.partitions": "Paused Resumed ShownCanonical",
    "engine.why.history": "ShownInstance",
    "features.compare.receipts": "Receipt",
    "features.compare.differences": "Difference",
    "features.compare.ranges": "RangeDifference",
    "engine.why.job_runs": "JobRun CanceledJobRun JobRunReport",
    "engine.why.orchestrators": "Orchestrator Outage",
    "bindings.display.tracebacks": "Raised",
    "calls.taints": "Tainted WouldTaint Untainted Reverted RevertedEvent",
    "calls.plans": "Plan",
    "features.what_if.answers": "ShownWhatIf",
    "engine.why.explain": "Explanation",
    "engine.why.ledger": "ShownEntry ShownMetrics",
    "features.health.checks": "Health",
    "features.lots.gap_ranges": "GapsOfDataset",
    "features.lots.commands.lot": "LotsOfDataset ListedLot",
    "features.lots.arc_shapes": "ShownArcLot",
    "features.environments.commands": "ShownEnvironment",
    "features.environments.comparing": "EnvironmentDifference",
    "features.environments.environments": "Refreshed",
    "features.environments.promoting": "Promotion",
    "features.erase.commands": "ShownSurvey ShownReceipt",
    "features.operations.shapes": "ShownOperation CanceledOperation",
}
RECORDS = {name: f"databuild_dagster.{module}" for module, names in _RECORDS_OF.items() for name in names.split()}

_HOW_TO_READ_STATES = """
Each table lists every possible move from one state to another. `on` is the cause of the move: an event of the log, or a
consequence of an event. `—` and `[*]` mean that the entity did not exist before. [Concepts](concepts.md) explains the
entities.
"""


def pages() -> dict[Path, str]:
    """Every generated page with its text."""
    states = subprocess.run(
        [sys.executable, "-m", "databuild_dagster", "log", "events", "--machines"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    schema = manifest_schema()
    return {
        DOCS / "states.md": states.replace("do not edit.\n", "do not edit.\n" + _HOW_TO_READ_STATES, 1),
        DOCS / "reference" / "api.md": api_page(),
        DOCS / "reference" / "command-line.md": _reference(),
        DOCS / "rules" / "15-json.md": _with_records((DOCS / "rules" / "15-json.md").read_text()),
        DOCS / "reference" / SHIPPED: schema,
        Path(databuild_dagster.warehouse.__file__).with_name(SHIPPED): schema,
    }


#: `<!--NAME-->` begins the fields of a record, `<!--+NAME-->` those that it adds to the record that it extends.
_RECORD = re.compile(r"<!--(\+?)(\w+)-->.*?<!---->")


def _with_records(text: str) -> str:
    """The page with the fields of its records; they are modules of the package by the table below."""
    return _RECORD.sub(lambda found: f"{found[0].partition('-->')[0]}-->{_fields(*found.groups())}<!---->", text)


def _fields(added: str, name: str) -> str:
    record = getattr(importlib.import_module(RECORDS[name]), name)
    before = len(msgspec.structs.fields(record.__base__)) if added else 0
    notation = ", ".join(map(_field, msgspec.structs.fields(record)[before:]))
    return f"`{notation}`" if added else f"`{{{notation}}}`"


def _field(field: msgspec.structs.FieldInfo) -> str:
    inner = _inner(field.type)
    return f'"{field.encode_name}"' + (f": {inner}" if inner else "")


def _inner(hint: Any) -> str:
    """The fields of a record, or of a list of records."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return "{" + ", ".join(map(_field, msgspec.structs.fields(hint))) + "}"
    if isinstance(get_origin(hint), type) and issubclass(get_origin(hint), Mapping):
        return ""
    inner = "".join(map(_inner, get_args(hint)))
    return f"[{inner}]" if inner and get_origin(hint) not in (Annotated, UnionType, Union) else inner


def _reference() -> str:
    head = (
        "# Command line\n\nMade by `make docs` from `databuild --help`; do not edit.\n\n"
        "Exit codes: 0 done, 1 something wanted failed, a check found something, or stdout could not be written,\n"
        "2 refused or bad usage, 75 the database of the build state or of Dagster, the object store or a Spark elsewhere was away,\n"
        "silent or busy, so the same command may succeed later, 130 interrupted by Ctrl-C or SIGTERM.\n"
        "A reader that closes its pipe early, as `head` does, is exit code 0.\n"
        'With `--json`, stdout is JSON alone; an error is `{"error": {"type", "message", "hint"}}`.\n'
        "\nA command such as `databuild show --full` is a form of `databuild show`: with this flag it has options of its own.\n"
        "The word `help` before a command is `--help` after it. [Environment variables](environment.md) has what the environment sets.\n\n"
        "## Completion\n\nA line completes commands and options in each new shell:\n\n```sh\n"
        "echo 'eval \"$(_DATABUILD_COMPLETE=bash_source databuild)\"' >> ~/.bashrc\n"
        "echo 'eval \"$(_DATABUILD_COMPLETE=zsh_source databuild)\"' >> ~/.zshrc\n"
        "echo '_DATABUILD_COMPLETE=fish_source databuild | source' >> ~/.config/fish/completions/databuild.fish\n```\n"
    )
    return head + "".join(_sections(cli, click.Context(cli, info_name="databuild", **cli.context_settings)))


def _sections(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context, terminal_width=100)
        yield f"\n## {inner.command_path}\n\n```text\n{command.get_help(inner)}\n```\n"
        if isinstance(command, click.Group):
            yield from _sections(command, inner)


def main() -> int:
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if "--check" in sys.argv:
            print(f"{path.relative_to(DOCS.parent)} is out of date; run `make docs`.")
        else:
            path.write_text(pages()[path])
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
