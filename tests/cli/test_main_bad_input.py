"""Bad input of any command: one sentence that says what, where and what to do; an exit code; nothing recorded."""

import subprocess
import time
from pathlib import Path

import pytest

from databuild_dagster.model.events import Event, WantCreated, WantFact
from databuild_dagster.model.fold.evolve import fold
from databuild_dagster.store import log
from tests.support.command import databuild
from tests.support.feature_commands import of_command
from tests.support.project import DEFINITIONS, Done, Project
from tests.support.world import World

from .sources import of_spark

DAY = "orders@2024-01-29"


def assert_refused(done: Done, *words: str) -> None:
    assert done.code == 2, done
    assert done.out == ""
    lines = [line for line in done.err.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1, done.err
    for word in words:
        assert word in lines[0]
    assert "Traceback" not in done.err


@pytest.mark.parametrize("command", ["build", "plan"])
@pytest.mark.parametrize(
    ("refs", "kind", "words"),
    [
        (["order@2024-01-29"], "UnknownAsset", "Did you mean orders?"),
        (["orders@2023-01-01"], "UnknownPartition", "databuild partitions orders"),
        (["orders"], "UnknownPartition", "databuild partitions orders"),
        (["orders@"], "InvalidRef", "path/of/asset"),
    ],
)
def test_a_ref_that_cannot_be_built_is_refused_before_anything_is_recorded(
    known_project: Project, command: str, refs: list[str], kind: str, words: str
) -> None:
    done = known_project.call(command, *refs, "--json")

    error = done.json["error"]
    assert (done.code, error["type"], len(done.out.splitlines())) == (2, kind, 1)
    assert set(error) == {"type", "message", "hint"}
    assert words in error["hint"]


#: Each command that takes refs; `test_options.py` shows that these are all.
TAKING_REFS = (
    "build, want create, plan, taint --reason wrong, retry, revert --to an-instance, show, history, read, show --full, diff, explain, "
    "show --manifest, history --requests --ref, history --job-runs --ref"
)


@pytest.mark.parametrize("command", [of_command(command.split(), command) for command in TAKING_REFS.split(", ")])
def test_every_command_refuses_a_malformed_ref_and_records_nothing(known_project: Project, command: str) -> None:
    """Decision 0030"""
    done = known_project.call(*command.split(), "orders@", "--json")

    assert (done.code, done.json["error"]["type"]) == (2, "InvalidRef")


def test_bad_usage_is_a_sentence_and_a_way_out(known_project: Project) -> None:
    assert_refused(known_project.call("build"), "REFS", "databuild build --help")
    assert_refused(known_project.call("bild"), "bild")
    assert_refused(known_project.call("want", "create", DAY, "--ttl", "soon"), "'soon' is no duration")
    assert_refused(known_project.call("taint", DAY), "--reason")


@pytest.mark.parametrize(
    ("time", "why"),
    [
        ("yesterday", "is no time"),
        ("2024-01-29", "does not say in which time zone"),
        ("9999-12-31T23:00:00-05:00", "outside of the years 1 to 9999"),
    ],
)
def test_a_time_of_the_data_that_is_no_moment_is_refused_and_nothing_is_wanted(
    known_project: Project, time: str, why: str
) -> None:
    """Rule 5.5"""
    assert_refused(known_project.call("want", "create", DAY, "--sla", "2h", "--data-timestamp", time), time, why)


def test_a_want_of_an_old_log_that_ends_when_no_calendar_goes_is_listed(world: World, tmp_path: Path) -> None:
    """As older code has recorded it."""
    fact = WantCreated(request_id="r", wants=(WantFact(id="old", refs=("good",)),), source="user", expires_at=8.6e18)
    with world.store.writing() as work:
        head = log.head(work.connection)
        work.seq = head.seq
        fold(work, log.append(work.connection, Event(head.seq + 1, head.at, fact, "old command", "older code")))

    listed = databuild(tmp_path, tmp_path, "want", "list")
    shown = databuild(tmp_path, tmp_path, "want", "show", "old", "--json")

    assert listed.code == shown.code == 0
    assert len(listed.out.splitlines()) == 2
    assert shown.json[0]["expires_at"] == "after the year 9999"


@pytest.mark.parametrize("command", [("want", "list"), ("want", "create", "bad")])
def test_a_log_that_a_fast_clock_left_ahead_is_one_sentence(
    world: World, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Rule 3.1"""
    world.clock.now = time.time() + 5 * 3600.0
    world.want("good")

    done = databuild(tmp_path, tmp_path, *command, "--json")

    assert done.code == 0
    assert "Warning: The clock shows" in done.err
    assert done.err.count("last event of the log") == 1
    assert done.json


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        of_command(arguments, arguments, words)
        for arguments, words in (
            (
                ("want", "list", "--limit", "9" * 4000),
                ["… (4,000 digits) is too large; write at most 9223372036854775807"],
            ),
            (("want", "list", "--limit", "9" * 5000), ["--limit", "… (5,000 digits)", "is not a valid"]),
            (("show", DAY, "--as-of", "9" * 5000), ["as_of is '9999"]),
            (("want", "create", DAY, "--priority", "9" * 4000), ["priority is a number of 4,000 digits"]),
            (("build", DAY, "--timeout", "9" * 400 + "d"), ["is too long; write at most 36500d, or none"]),
            (("build", DAY, "--at-once", "0"), ["--at-once"]),
            (("history", "--requests", "--limit", "-1"), ["--limit"]),
            (("history", "--requests", "--limit", "ten"), ["--limit", "'ten' is no whole number"]),
            (("init", "a" * 300), ["File name too long", "Check its name"]),
            (("init", "~no-one/x\0"), ["~no-one/x\\0", "no text in UTF-8"]),
            (("operation", "list", "x", "--python-file", "x" * 10_000), ["File name too long"]),
            (("operation", "run", "mine", "orders", "--arg", "[" * 100_000), ["which is no JSON"]),
            (("operation", "run", "compact", "orders", "--target", "9" * 4000), ["--target", "too large"]),
            (("operation", "run", "validate", "orders", "--rules", "/dev/null/x"), ["cannot be read as rules"]),
            (("want", "show", "\udcff"), ["no text in UTF-8", "without NUL"]),
            (("revert", DAY, "--to", "\ud800"), ["no text in UTF-8"]),
            (("build", DAY, "-f", "exits.py"), ["exits.py cannot be loaded: SystemExit: 3"]),
            (("show", "orders@2024-02-30"), ["orders@2024-02-30"]),
            (("pause", "orders", "--reason", "x", "--until", "2024-02-30T00:00:00Z"), ["is no time"]),
            (("metrics", "--since", "99999-01-01T00:00:00Z"), ["is no time"]),
        )
    ],
    ids=lambda value: " ".join(value)[:40].encode("ascii", "replace").decode().replace("\0", "?"),
)
def test_a_value_that_nothing_can_hold_is_refused_in_one_sentence(
    known_project: Project, arguments: tuple[str, ...], words: list[str]
) -> None:
    (known_project.folder / "exits.py").write_text("import sys\nsys.exit(3)\n")

    assert_refused(known_project.call(*arguments), *words)


def test_a_name_that_does_not_exist_is_not_found(known_project: Project) -> None:
    assert_refused(known_project.call("show", "order@2024-01-29"), "order")
    assert_refused(known_project.call("explain", "order@2024-01-29"), "order")
    assert_refused(known_project.call("history", "--requests", "--ref", "orders@2024-02-99"), "2024-02-99")
    assert_refused(known_project.call("history", "order"), "order")
    assert_refused(known_project.call("partitions", "order"), "order")
    assert_refused(known_project.call("want", "show", "x"), "'x'")
    assert_refused(known_project.call("want", "cancel", "x"), "'x'")
    assert_refused(known_project.call("want", "cancel", "--job-runs", "x"), "'x'")
    assert_refused(known_project.call("untaint", "x"), "'x'")
    assert_refused(known_project.call("read", DAY), DAY, "missing")
    assert_refused(known_project.call("show", "orders@2023-01-01"), "orders@2023-01-01", "begin with 2024-01-29")
    assert_refused(known_project.call("partitions", "orders", "--state", "bogus"), "bogus")
    assert_refused(known_project.call("taint", DAY, "--reason", "x"), DAY, "missing")


def test_a_home_that_is_no_directory_is_refused(project: Project) -> None:
    assert_refused(project.call("show", DAY, DAGSTER_HOME="relative/path"), "DAGSTER_HOME", "absolute")
    assert_refused(project.call("show", DAY, DAGSTER_HOME=str(project.folder / "nowhere")), "no directory")


def test_a_build_sends_no_telemetry_and_prints_no_notice_of_it(project: Project) -> None:
    """Dagster's telemetry is on in a home without settings. It writes below ~, which a container may not let it do."""
    (project.home / "dagster.yaml").write_text("telemetry: {enabled: true}\n")

    done = project.call("build", DAY, HOME="/proc/nowhere")

    assert done.code == 0, done
    assert "telemetry" not in (done.out + done.err).lower()
    assert not (project.home / ".telemetry").exists()


def test_without_a_home_the_project_gets_one_of_its_own_and_says_so_once(project: Project) -> None:
    del project.environment["DAGSTER_HOME"]

    done = project.call("want", "list")

    own = project.folder / ".dagster_home"
    assert done.code == 0
    assert done.err.count(f"export DAGSTER_HOME={own}") == 1
    assert (own / ".gitignore").read_text() == "*\n"
    assert (own / "databuild.db").exists()


def test_without_java_an_asset_of_spark_is_refused_and_another_one_is_built(project: Project, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    project.define(
        of_spark("""
@databuild_asset
def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(3)

@databuild_asset
def dull(context: BuildContext):
    return EMPTY

defs = build_definitions([numbers, dull])
""")
    )
    without = {"JAVA_HOME": str(nothing), "PATH": str(nothing)}

    refused = project.call("build", "numbers", **without)

    assert_refused(refused, "Spark needs Java 17")
    assert project.ask("want", "list", "--all") == []
    assert project.call("build", "dull", **without).code == 0


@pytest.mark.parametrize("trouble", ["read-only", "full"])
def test_a_warehouse_that_takes_nothing_is_one_sentence_and_nothing_is_wanted(
    project: Project, tmp_path: Path, trouble: str
) -> None:
    """A file system of its own, so that it is really read-only, or really full."""
    place = tmp_path / "warehouse"
    place.mkdir()
    options = "ro" if trouble == "read-only" else "size=64k"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=False)
    if mounted.returncode:
        pytest.skip("only root may mount a file system here")
    project.define(
        DEFINITIONS.replace("build_definitions([", f"build_definitions(warehouse={str(place)!r}, assets=[", 1)
    )
    try:
        done = project.call("build", DAY)
    finally:
        subprocess.run(["umount", str(place)], check=True)

    why = {"read-only": "may not write there (read-only file system)", "full": "a build begins with 16 MiB at least"}
    assert_refused(done, why[trouble])
    assert project.ask("want", "list", "--all") == []
