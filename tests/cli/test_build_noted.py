"""A build of live refs answers without Dagster, and as it would with it (rule 8.9, decision 0066)."""

import random
import re
import subprocess
import sys
from typing import NamedTuple

import pytest

from databuild_dagster.bindings.local.load_note import NAME
from tests.support.project import MAX_SECONDS, Project

DAYS = ["orders@2024-01-29", "orders@2024-01-30"]

#: Runs a command, and says whether it needed Dagster.
SCRIPT = """
import sys
from databuild_dagster.cli.main import run

code = run(sys.argv[1:])
print("dagster" in sys.modules, file=sys.stderr)
sys.exit(code)
"""
#: The same, but a ref is tainted after the look at its state.
TAINTED_MEANWHILE = f"""
from databuild_dagster.bindings.local.building import Workshop
from databuild_dagster.model.commands import TaintPartitions

without_code = Workshop.without_code

def tainted_meanwhile(engine):
    engine.handle(TaintPartitions(refs=({DAYS[0]!r},), reason="wrong"), actor="other")
    return without_code(engine)

Workshop.without_code = tainted_meanwhile
{SCRIPT}"""
#: What differs between two equal builds.
OF_ONE_BUILD = re.compile(r'"(request_id|seconds|id|requester|expires_at)": ?[^,}\]]+|\d+\.\d+ s')


class Ran(NamedTuple):
    """A build, or another command, in a process of its own: its exit code, what it printed, the events that it recorded, and if it needed Dagster."""

    code: int
    out: str
    err: str
    events: list[tuple[str, str]]
    has_dagster: bool


def build(project: Project, *arguments: str, command: str = "build", script: str = SCRIPT) -> Ran:
    before = project.n_events()
    done = subprocess.run(
        [sys.executable, "-c", script, command, *arguments],
        cwd=project.folder,
        # With byte code, a load takes 1 s less.
        env=project.environment | {"PYTHONDONTWRITEBYTECODE": ""},
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
    )
    *err, has_dagster = done.stderr.splitlines()
    events = [(str(row[2]), OF_ONE_BUILD.sub("", str(row[6]))) for row in project.queries.events.raw(before)]
    out, said = (OF_ONE_BUILD.sub("", text) for text in (done.stdout, "\n".join(err)))
    return Ran(done.returncode, out, said, events, has_dagster == "True")


@pytest.mark.long("only a new process shows what a command imports")
def test_a_build_of_live_refs_imports_dagster_only_for_what_may_have_changed(project: Project) -> None:
    # The assets leave files in the project's folder.
    project.build(*DAYS)
    first, again = build(project, *DAYS), build(project, *DAYS)
    project.call("want", "create", "orders@2024-01-31")
    wanted = build(project, DAYS[0])
    project.call("taint", DAYS[0], "--reason", "wrong")
    tainted, other = build(project, DAYS[1]), build(project, DAYS[1])
    project.define((project.folder / "definitions.py").read_text() + "\n# other code\n")
    edited = build(project, DAYS[1])

    quick = {"again": again, "wanted": wanted, "other": other}
    loaded = {"first": first, "tainted": tainted, "edited": edited}
    assert [name for name, ran in (quick | loaded).items() if not ran.has_dagster] == list(quick)
    assert {ran.code for ran in (quick | loaded).values()} == {0}


@pytest.mark.long("only a new process has imported no Dagster")
def test_a_ref_that_is_tainted_after_the_look_at_its_state_is_built(project: Project) -> None:
    project.build(DAYS[0])
    build(project, DAYS[0])

    tainted = build(project, DAYS[0], script=TAINTED_MEANWHILE)

    assert (tainted.code, tainted.has_dagster) == (0, True), tainted
    assert {"TaintCreated", "JobRunSucceeded"} <= {name for name, _ in tainted.events}


@pytest.mark.long("only a new process shows what a command imports")
def test_a_plan_loads_the_definitions_that_it_names_only_after_a_change(project: Project) -> None:
    named, january = ["-f", "definitions.py"], "revenue@2024-01-01"
    project.build(*named, *DAYS)
    build(project, *named, *DAYS)
    source = (project.folder / "definitions.py").read_text()

    known = build(project, *named, january, command="plan")
    project.define(source.replace("def revenue(orders: pd.DataFrame)", "def revenue(revenue_of_january: pd.DataFrame)"))
    edited = build(project, *named, january, command="plan")
    project.define(source)
    registered = build(project, *named, january, command="plan")

    assert [ran.has_dagster for ran in (known, edited, registered)] == [False, True, True]
    assert "orders 3 partitions: " in known.out
    assert known.out == registered.out
    assert "revenue_of_january: build" in edited.out


ACTIONS = (
    ["taint", DAYS[0], "--reason", "wrong"],
    ["want", "create", "revenue@2024-02-01"],
    ["pause", DAYS[1], "--reason", "why"],
    ["resume", DAYS[1]],
    ["admin", "tick"],
    ["build", DAYS[0], "--rebuild"],
    [],
    [],
)
SELECTIONS = ([DAYS[0]], DAYS, ["orders@2024-01-29..2024-01-30"], ["orders", "--only", "live"], ["revenue@2024-01-01"])
OPTIONS = ([], ["--json"], ["--comment", "mine", "--priority", "3"], ["--fail-fast", "--wide"])


@pytest.mark.extended
@pytest.mark.long("only a new process has imported no Dagster")
def test_an_answer_without_dagster_is_the_answer_with_it(project: Project) -> None:
    chance, n_quick = random.Random(3), 0
    project.build("revenue@2024-01-01")
    for _ in range(4):
        if action := chance.choice(ACTIONS):
            project.call(*action)
            build(project, DAYS[0])
        arguments = [*chance.choice(SELECTIONS), *chance.choice(OPTIONS)]

        quick = build(project, *arguments)
        if quick.has_dagster:
            continue
        (project.home / NAME).unlink()
        loaded = build(project, *arguments)

        n_quick += 1
        assert loaded.has_dagster
        assert quick[:4] == loaded[:4], arguments
        assert quick.events
    assert n_quick >= 2
