"""The JSON that the command line and the API answer about one story, as text that a diff can show.

`python -m tests.support.json_answers` writes the golden files of `tests/test_json_answers.py` anew.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from starlette.testclient import TestClient

from databuild_dagster.data.home import sqlite_url
from databuild_dagster.engine.holders import this_user
from databuild_dagster.model import commands as c
from databuild_dagster.model.events import AsideFact
from databuild_dagster.model.set_aside import Subject
from databuild_dagster.web.application import make_application
from tests.support.catalog import HERE
from tests.support.command import databuild
from tests.support.command_lines import parsed
from tests.support.pages_world import API, PagesWorld, filled

GOLDEN: Final = Path(__file__).parent.parent / "golden" / "json"
#: Of a longer answer the file has the hash.
MAX_CHARACTERS: Final = 20_000
#: What a command makes with its own clock: ids of this decade, times, names of staging folders, durations.
_MADE_NOW: Final = re.compile(r"01[0-9a-f]{6}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME_NOW: Final = re.compile(r"20(2[5-9]|[3-9]\d)-\d\d-\d\dT[\d:.]+(Z|\+00:00)")
_STAGED: Final = re.compile(r"(-[0-9a-f]{12})-[0-9a-f]{8}\b")
_AGO: Final = re.compile(r"-\d{6,}\.\d+")
_TOOK: Final = re.compile(r'("seconds": )[\d.e-]+(, "not_live"|}[\],])')


def answers(folder: Path) -> dict[str, str]:
    """The text of each golden file by its name, of a home that is made in the folder."""
    (folder / "dagster.yaml").write_text("")
    world = told(folder)
    found: dict[str, list[str]] = {}
    try:
        client = TestClient(make_application(world.state_behind_pages()), raise_server_exceptions=False)
        for path, query in _questions(world):
            answer = client.get(API + path, params=query)
            found.setdefault(f"api{path}", []).append(f"{query}\n{_masked(answer.text, folder)}\n")
        for words in _commands(world):
            done = databuild(folder, folder, *words, "--json")
            # The name of a file is the command without its values.
            _, _, path = parsed([*words]).command_path.partition(" ")
            shown = _masked(f"{' '.join(words)} -> {done.code}\n{done.out}", folder)
            found.setdefault(f"cli/{re.sub('[ -]+', '-', path)}", []).append(shown)
    finally:
        world.close()
    return {f"{name}.txt": "\n".join(texts) for name, texts in found.items()}


#: Waits for an input.
MISSED: Final = "mirror@2023-01-12"


def told(folder: Path) -> PagesWorld:
    """The story of the pages, and the records that these do not have."""
    world = filled(folder, sqlite_url(folder))
    world.want("orders@2023-01-10", "orders@2023-01-11", sla=60.0, priority=3, ttl=None)
    world.want(MISSED, fail_fast=True)
    world.miss(MISSED, "orders@2023-01-12")
    world.cancel_want(world.want("orders@2023-01-13"))
    world.start("orders@2023-01-14")
    world.fail("orders@2023-01-15", kind="transient", error="the disk\nwas full")
    aside = AsideFact(kind=Subject.OUTAGE, names=("outage of spark",), reason="it does not answer")
    world.handle(c.ChangeSetAside(location=HERE, changes=(aside,)))
    world.clock.turn(120.0)
    world.succeed("orders@2023-01-16", inputs=["whole"])
    return world


def _questions(world: PagesWorld) -> Iterator[tuple[str, dict[str, Any]]]:
    from tests.web.test_api import PLAIN, calls_of

    for route in PLAIN:
        for query in calls_of(route, world):
            yield route.path, query


def _commands(world: PagesWorld) -> Iterator[tuple[str, ...]]:
    """The commands that only ask, then the commands that change the state."""
    module = ("-m", "tests.support.pages_world")
    day, failed, month = "orders@2023-01-01", "orders@2023-01-05", "revenue@2023-01-01"
    want = world.open_wants("orders@2023-01-10")[0].id
    missed = world.open_wants(MISSED)[0].id
    building = next(
        run.refs[0] for run in world.queries.job_runs.newest(open_only=True) if run.refs[0] != "orders@2023-01-14"
    )
    shown = world.queries.instances.history("shown")
    taint = world.queries.instances.taints_in_force([world.uuid("orders@2023-01-02")])[world.uuid("orders@2023-01-02")][
        0
    ].taint_id
    yield from (
        ("want", "list"),
        ("want", "list", "--all", "--derivative"),
        ("want", "show", want),
        ("want", "show", missed),
        ("want", "show", missed, "--as-of", str(world.seq)),
        *(("partitions", name, *module) for name in ("orders", "shown", "named")),
        ("partitions", "orders", "--as-of", str(world.seq - 4), *module),
        *(("show", ref) for ref in (day, "orders@2023-01-02", failed, month, "orders@2023-01-08", "orders@2023-01-30")),
        ("show", "shown", "--as-of", str(world.seq - 4)),
        *(("history", ref) for ref in (day, "shown", month, failed)),
        ("show", "--full", month),
        ("show", "--full", "shown"),
        ("diff", "shown"),
        ("read", "shown"),
        ("history", "--job-runs"),
        ("history", "--job-runs", "--open"),
        ("show", "--job-run", world.job_run("orders@2023-01-14")),
        ("show", "--job-run", world.queries.job_runs.newest()[-1].id),
        ("log", "events"),
        ("log", "events", "--kind", "lot-available"),
        ("log", "check"),
        ("status",),
        ("status", "--outages"),
        ("plan", month, *module),
        ("plan", "orders@2023-01-25", *module),
        ("plan", "--if-tainted", day, *module),
        ("plan", "--if-missing", "orders@2023-01-31", *module),
        *(("explain", name) for name in (failed, MISSED, missed, "orders@2023-01-30")),
        ("explain", failed, "--as-of", str(world.seq - 1)),
        ("history", "--requests"),
        ("metrics",),
        ("lot", "list"),
        ("lot", "list", "mirror"),
        ("lot", "gaps", "mirror", "--chain"),
        ("lot", "gaps", "orders"),
        ("lot", "list", "--subscriptions"),
        ("operation", "list"),
        ("operation", "list", "--all"),
        ("operation", "show", "orders.write.1"),
        ("env", "list"),
        ("gc",),
        ("spark",),
        ("status", "--locations"),
        ("erase", "shown", "--where", "n > 1"),
        ("show", "--manifest", "shown"),
        ("want", "create", "orders@2023-01-20", month, "--comment", "again", *module),
        ("want", "cancel", want, missed),
        ("taint", day, "--dry-run", "--reason", "wrong"),
        ("taint", day, "--reason", "wrong"),
        ("retry", failed),
        ("pause", "orders@2023-01-18", "--reason", "closed"),
        ("status",),
        ("resume", "orders@2023-01-18"),
        ("revert", "shown", "--to", shown[0].uuid),
        ("untaint", taint),
        ("pause", "--needs", "spark", "--reason", "x"),
        ("resume", "--needs", "spark"),
        ("want", "cancel", "--job-runs", world.job_run("orders@2023-01-14"), "--reason", "no"),
        ("admin", "tick", *module),
        ("build", "whole", *module),
        ("build", "orders@2023-01-05", "orders@2023-01-18", *module),
        ("build", building, "--timeout", "1s", *module),
        ("erase", "shown", "--where", "n > 1", "--reason", "a request", "--yes"),
    )


def _masked(text: str, folder: Path) -> str:
    text = _MADE_NOW.sub("<id>", _TIME_NOW.sub("<now>", text.replace(str(folder), "HOME").replace(this_user(), "<me>")))
    text = _STAGED.sub(r"\1-<staged>", _AGO.sub("<ago>", _TOOK.sub(r"\1<s>\2", text)))
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{len(text)} characters, {hashlib.sha256(text.encode()).hexdigest()}"


def write(root: Path = GOLDEN, of: Callable[[Path], dict[str, str]] = answers) -> None:
    """Write the files anew."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in of(Path(folder)).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN)
