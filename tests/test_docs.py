"""Every example in the docs does what it says: Python blocks are imported, the commands of a page run on its project.

Commands run in this process. A page that needs Spark uses the server of the whole test run.
"""

import difflib
import importlib.util
import inspect
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from databuild_dagster import BuildContext, InvalidAsset, databuild_asset, databuild_multi_asset
from databuild_dagster.bindings.declare.build_context import INSTEAD
from databuild_dagster.spark.server import stop_server
from tests.support.child_environment import child_environment
from tests.support.command import Done, dagster, databuild, share_spark_server
from tests.support.command_lines import why_not_typed

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
HOW_TO = ROOT / "docs" / "how-to"
#: The project that docs/how-to/migrate-a-project.md migrates.
BEFORE, AFTER = (ROOT / "examples" / "migrate" / name for name in ("before.py", "after.py"))
#: One process, the start of its Spark included; beside forty busy processes it took 300.
MAX_SECONDS = 540
#: The Spark of the project that is migrated.
OF_THE_PROJECT = "    spark=pyspark,\n"
#: Before the file; a process of its own for each step would only take its time.
MATERIALIZE = ("asset", "materialize", "--config-json", '{"execution": {"config": {"in_process": {}}}}', "-f")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_page_of_the_environment_has_each_variable_of_the_code() -> None:
    code = (path.read_text() for path in (ROOT / "databuild_dagster").rglob("*.py"))
    page = (ROOT / "docs" / "reference" / "environment.md").read_text()

    of_code = {name for text in code for name in re.findall(r'"(DATABUILD_[A-Z_]+)"', text)}

    assert set(re.findall(r"^\| `(DATABUILD_\w+)` \|", page, re.MULTILINE)) == of_code


EXAMPLES = [
    pytest.param(page, number, id=f"{page.name} {number + 1}")
    for page in PAGES
    for number in range(len(blocks(page, "python")))
]


@pytest.mark.parametrize(("page", "number"), EXAMPLES)
def test_a_python_example_runs(page: Path, number: int, tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text(blocks(page, "python")[number])

    spec = importlib.util.spec_from_file_location("example", path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", page.read_text())

    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_of_a_page_can_be_typed(page: Path) -> None:
    found = re.findall(r"`databuild ([^`]+)`|^(?:\$ |    )databuild (.+)$", page.read_text(), re.MULTILINE)

    assert [why for inline, line in found if (why := why_not_typed(inline or line))] == []


DECISIONS = ROOT / "docs" / "decisions"
_ANCHOR = re.compile(r'<a id="decision-(\d{4})"></a>\n\n## \1 ')


def test_every_decision_is_listed_once_with_its_place() -> None:
    """A decision is a heading of a page, or a page `NNNN-name.md`."""
    places = [
        f"{page.name}#decision-{number}"
        for page in DECISIONS.glob("*.md")
        for number in _ANCHOR.findall(page.read_text())
    ]
    pages = [path.name for path in DECISIONS.glob("0*.md")]

    lines = re.findall(r"^- \[?(\d{4})(:?).*?\((\S+)\)", (DECISIONS / "README.md").read_text(), re.MULTILINE)

    listed = [(number, place) for number, successor, place in lines if not successor]
    assert sorted(places + pages) == sorted(place for _, place in listed)
    assert [number for number, place in listed if number not in place] == []
    assert {place for _, successor, place in lines if successor} <= {*places, *pages}
    assert len({number for number, _, _ in lines}) == len(lines)


def test_a_link_to_a_decision_leads_to_its_heading() -> None:
    links = [
        (page, *link) for page in PAGES for link in re.findall(r"\]\(([^)#]*)#decision-(\d{4})\)", page.read_text())
    ]

    broken = [
        f"{page.name}: {number}"
        for page, target, number in links
        if number not in _ANCHOR.findall((page.parent / target if target else page).read_text())
    ]

    assert links
    assert broken == []


def test_each_decision_that_the_code_names_is_listed() -> None:
    folders = ("databuild_dagster", "tests", "docs", "tools", "bench")
    texts = (
        path.read_text() for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md")
    )
    known = {
        int(number) for number in re.findall(r"^- \[?(\d{4})", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    }

    named = {int(number) for text in texts for number in re.findall(r"\b[Dd]ecision\s+(\d+)\b", text)}

    assert named - known == set()


def test_the_generated_pages_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, "tools/docs.py", "--check"], cwd=ROOT, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, ""), done


class Project:
    """A folder with the definitions of a page, in which the commands of the page are run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: As DAGSTER_HOME; without it the project has its own.
        self.home: Path | None = None
        (folder / "workspace.yaml").write_text(blocks(ROOT / "README.md", "yaml")[0])

    def define(self, text: str) -> None:
        (self.folder / "definitions.py").write_text(text)

    def make_home(self, settings: str = "") -> None:
        self.home = self.folder / "home"
        self.home.mkdir()
        (self.home / "dagster.yaml").write_text(settings)

    def databuild(self, *arguments: str, code: int = 0) -> Done:
        done = databuild(self.folder, self.home, *arguments)
        assert done.code == code, (arguments, done.out, done.err)
        return done

    def dagster(self, *arguments: str) -> None:
        assert self.home is not None
        done = dagster(self.folder, self.home, *arguments)
        assert done.code == 0, (arguments, done.out, done.err)

    def run(self, line: str, code: int = 0) -> Done | None:
        """A line of a page, with or without its prompt."""
        program, *arguments = shlex.split(line.removeprefix("$ "), comments=True)
        if program == "dagster":
            self.dagster(*arguments)
            return None
        assert program == "databuild", line
        return self.databuild(*arguments, code=code)


def lines(page: Path) -> list[str]:
    """The commands of a page."""
    return [line for block in blocks(page, "console") for line in block.splitlines()]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project whose own Spark server, if a page starts one, ends with the test."""
    from databuild_dagster.bindings.reading.spark_resource import close_sessions

    yield Project(tmp_path)
    close_sessions()
    for home in (tmp_path / "home", tmp_path / ".dagster_home"):
        if not (home / "spark").is_symlink():
            stop_server(home)


@pytest.fixture
def spark_project(project: Project, spark_home: str) -> Project:
    """A project in whose own home the Spark server is that of the test run."""
    home = project.folder / ".dagster_home"
    home.mkdir()
    share_spark_server(home, spark_home)
    return project


@pytest.mark.long("the page's commands run as its reader types them, most of them on Spark")
@pytest.mark.timeout(600)
def test_the_readmes_project_answers_the_readmes_questions(spark_project: Project) -> None:
    spark_project.define(blocks(ROOT / "README.md", "python")[0])
    commands = lines(ROOT / "README.md")
    assert len(commands) >= 10

    for line in commands:
        # It would follow for ever.
        spark_project.run(line.replace(" --follow", ""))


@pytest.mark.long("the page's commands run as its reader types them, most of them on Spark")
@pytest.mark.timeout(600)
def test_the_page_on_reading_reads_what_it_says(spark_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    page = HOW_TO / "read-data.md"
    spark_project.define(blocks(page, "python")[0])
    notebook = spark_project.folder / "notebook.py"
    notebook.write_text("\n".join(blocks(page, "py")))
    spark_project.databuild("build", "sales@2024-01-01", "sales@2024-01-02")

    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.chdir(spark_project.folder)
    runpy.run_path(str(notebook), run_name="__main__")


@pytest.mark.long("the page's commands run as its reader types them, most of them on Spark")
@pytest.mark.timeout(600)
def test_the_page_on_wants_records_them_from_python_and_the_command_line(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = HOW_TO / "record-wants.md"
    project.define(blocks(page, "python")[0])
    program = project.folder / "program.py"
    program.write_text("\n".join(blocks(page, "py")))
    project.make_home()
    tick, *commands = lines(page)
    project.run(tick)

    monkeypatch.setenv("DAGSTER_HOME", str(project.home))
    runpy.run_path(str(program), run_name="__main__")
    printed = capsys.readouterr().out
    for line in commands:
        project.run(line)
    states = {want["refs"][0]: want["state"] for want in project.databuild("want", "list", "--all", "--json").json}

    assert printed.count("never built; wanted since") == 4
    assert list(states.values()).count("Canceled") == 4
    assert states["revenue@2024-01-05"] == "Idle"


@pytest.mark.long("the page's commands run as its reader types them, most of them on Spark")
@pytest.mark.timeout(600)
def test_the_tests_on_the_page_on_testing_pass(tmp_path: Path) -> None:
    plain, conftest, *others = blocks(HOW_TO / "test-assets.md", "python")
    (tmp_path / "conftest.py").write_text(conftest)
    for number, block in enumerate([plain, *others]):
        (tmp_path / f"test_example_{number}.py").write_text(block)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


@pytest.mark.long("the page's commands run as its reader types them, most of them on Spark")
@pytest.mark.timeout(600)
def test_the_page_on_checking_and_files_prints_what_it_shows(spark_project: Project) -> None:
    page = HOW_TO / "quality-and-files.md"
    spark_project.define(blocks(page, "python")[0])
    (spark_project.folder / "rules.yaml").write_text(blocks(page, "yaml")[0])
    offends, passed_over = blocks(page, "text")
    printed = ""

    for line in lines(page):
        done = spark_project.run(line, code=1 if " validate " in line else 0)
        assert done is not None
        printed += done.out + done.err
    from_file = spark_project.databuild(
        "operation", "run", "validate", "sales", "--rules", "rules.yaml", "--local", code=1
    )

    for block in (offends, passed_over):
        assert " ".join(block.split()) in " ".join(printed.split()), printed
    assert "id fits smallint" in from_file.out


@pytest.mark.long("the page's commands run as its reader types them, most of them on Spark")
@pytest.mark.timeout(600)
def test_the_page_on_open_tables_reads_what_it_publishes(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = HOW_TO / "open-tables.md"
    project.define(blocks(page, "python")[0])
    program = project.folder / "program.py"
    program.write_text("\n".join(blocks(page, "py")))

    for line in lines(page):
        project.run(line)
    monkeypatch.chdir(project.folder)
    runpy.run_path(str(program), run_name="__main__")

    printed = capsys.readouterr().out

    assert "amount: [[10,20]]" in printed
    assert printed.count("│ 30.0") == 2
    assert printed.count("2024-01-02") == 6


#: A whole id, or the end of one behind what it names.
_ID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=job run )[0-9a-f]{8}\b"


@pytest.mark.long("the page's commands run as its reader types them, most of them on Spark")
@pytest.mark.timeout(600)
def test_the_page_on_finding_out_prints_what_it_shows(project: Project) -> None:
    page = HOW_TO / "find-out-why.md"
    project.define(blocks(page, "python")[0])

    def printed(*arguments: str, code: int = 0) -> str:
        done = project.databuild(*arguments, code=code)
        return re.sub(_ID, "…", done.out)

    printed("admin", "tick")
    before = [printed("plan", "report"), printed("plan", "--if-missing", "sales@2024-01-03")]
    printed("build", "report", code=1)

    assert [*before, printed("explain", "report")] == blocks(page, "text")


def module_of(text: str, path: Path) -> Any:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_report_on_the_project_of_a_page_names_the_lines_of_its_diff(project: Project) -> None:
    page = HOW_TO / "migrate-a-project.md"
    before, after = BEFORE.read_text(), AFTER.read_text()
    dg.Definitions.validate_loadable(module_of(before, project.folder / "theirs.py").defs)
    project.define(before)

    printed = project.databuild("migrate-project", "definitions.py").out
    report = project.databuild("migrate-project", "--json", "definitions.py").json

    findings = [*report["others"], *(finding for asset in report["assets"] for finding in asset["findings"])]
    changed = [finding for finding in findings if finding["action"] in ("change", "remove")]
    written = [finding["write"] for finding in findings if finding["action"] in ("change", "add")]
    old, new = before.splitlines(), after.splitlines()
    steps = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    touched = {line for step, first, end, _, _ in steps if step in ("replace", "delete") for line in range(first, end)}
    added = [
        line.strip(" ,") for step, _, _, first, end in steps if step == "insert" for line in new[first:end] if line
    ]
    assert touched == {line - 1 for it in changed for line in range(it["line"], it["last_line"] + 1)}
    assert added
    assert all(any(line in text for text in written) for line in added)
    in_prose = [text for text in written if text not in after]
    assert in_prose == [
        "spark=pyspark, an argument of build_definitions",
        "the function with a further parameter, `spark: SparkSession`",
    ]
    assert report["lines"] == len(touched) + 1
    assert [block for block in blocks(page, "text") if block not in printed] == []


@pytest.mark.long("the page's commands run as its reader types them, most of them on Spark")
@pytest.mark.timeout(600)
def test_the_project_of_a_page_builds_after_the_changes_of_its_report(project: Project, spark_home: str) -> None:
    """On the server of the test run: the project's own resource opens a JVM, in which no client may be."""
    page = HOW_TO / "migrate-a-project.md"
    after = AFTER.read_text()
    assert after.count(OF_THE_PROJECT) == 1
    project.define(after.replace(OF_THE_PROJECT, ""))
    project.make_home()
    assert project.home is not None
    share_spark_server(project.home, spark_home)
    _, check, build, read = lines(page)

    project.run(check)
    project.run(build)
    shown = project.run(f"{read} --json")

    assert shown is not None
    assert shown.json == [{"author": "bob", "count": 2}]
    project.dagster(*MATERIALIZE, "definitions.py", "--select", "report", "--partition", "2024-03-02")
    assert (project.folder / "report-2024-03-02.csv").read_text().count("bob") == 1


@pytest.mark.long("the page's commands run as its reader types them, most of them on Spark")
@pytest.mark.extended
@pytest.mark.timeout(600)
def test_the_project_of_a_page_builds_with_its_own_spark_in_its_own_process(project: Project) -> None:
    page = HOW_TO / "migrate-a-project.md"
    project.define(AFTER.read_text())
    project.make_home()

    done = subprocess.run(
        [sys.executable, "-m", "databuild_dagster", *shlex.split(lines(page)[2])[2:]],
        cwd=project.folder,
        env={**child_environment(), "DAGSTER_HOME": str(project.home)},
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 ref live" in done.stdout


@pytest.mark.long("the page's commands run as its reader types them, most of them on Spark")
@pytest.mark.timeout(600)
def test_an_asset_that_exists_is_taken_over_as_its_page_says(project: Project) -> None:
    page = HOW_TO / "existing-assets.md"
    (ours,) = blocks(page, "python")
    project.make_home()
    # A file of another name, for a process loads definitions once.
    (project.folder / "theirs.py").write_text((ROOT / "examples" / "adopt" / "before.py").read_text())
    for day in ("2024-01-01", "2024-01-02"):
        project.dagster(*MATERIALIZE, "theirs.py", "--select", "orders,report", "--partition", day)
    project.define(ours)

    for line in lines(page):
        project.run(line)

    read = project.databuild("read", "orders@2024-01-02", "--json").json
    states = project.databuild("partitions", "orders", "--state", "Live", "--json").json
    assert read == [{"day": "2024-01-02", "amount": 10.0}]
    assert [state["ref"][-2:] for state in states] == ["01", "02", "06"]
    project.dagster(*MATERIALIZE, "definitions.py", "--select", "report", "--partition", "2024-01-01")


def rows(page: Path, header: str) -> list[tuple[list[str], str]]:
    """The rows of the table under a header: the names in code of the first cell, and the text of the second."""
    table = page.read_text().split(f"| {header} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    cells = [re.split(r"(?<!\\)\|", line)[1:3] for line in table]
    return [(re.findall(r"`([\w.]+)`", names), text) for names, text in cells]


@pytest.mark.parametrize(
    ("theirs", "ours", "options"),
    [(dg.asset, databuild_asset, {}), (dg.multi_asset, databuild_multi_asset, {"outs": {"x": dg.AssetSpec("x")}})],
    ids=["asset", "multi_asset"],
)
def test_each_argument_of_dagsters_decorator_is_refused_or_kept_as_the_table_says(
    theirs: Any, ours: Any, options: dict[str, Any]
) -> None:
    table = rows(HOW_TO / "existing-assets.md", f"`@dg.{theirs.__name__}(…)`")
    named = {name for names, _ in table for name in names}
    known = set(inspect.signature(ours).parameters)

    unnamed = set(inspect.signature(theirs).parameters) - {"kwargs"} - named
    kept = {*table[0][0], *table[1][0]} if theirs is dg.asset else {"outs", "AssetOut"}

    assert unnamed <= (known if options else set())
    assert kept - known <= {"AssetOut"}
    for name in sorted(named - kept - {"compute_fn"}):
        with pytest.raises(InvalidAsset, match=f"{name}= means nothing here"):
            ours(**options, **{name: object()})(lambda: None)


def test_the_table_of_the_context_names_members_that_exist() -> None:
    table = rows(HOW_TO / "existing-assets.md", "`AssetExecutionContext`")

    kept, *replaced = table
    ours = {*kept[0], *(name for _, text in replaced for name in re.findall(r"`context\.(\w+)", text))}
    theirs = {name.partition(".")[0] for names, _ in table for name in names}

    assert set(INSTEAD) <= theirs
    assert [name for name in ours if not hasattr(BuildContext, name)] == []
    assert [name for name in theirs if not hasattr(dg.AssetExecutionContext, name)] == []
    assert {name for name in dir(dg.AssetExecutionContext) if hasattr(BuildContext, name) and name[0] != "_"} == {
        *kept[0]
    }


@pytest.mark.long("the page's commands run as its reader types them, most of them on Spark")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "n_lines"),
    [("trust", 13), ("deadlines", 3), ("clean-up", 9), ("erase", 5), ("operations", 5)],
)
def test_the_commands_of_a_page_work_on_its_project(name: str, n_lines: int, spark_project: Project) -> None:
    page = HOW_TO / f"{name}.md"
    # A page without a project is for every project; that of the page on notebooks has its asset.
    shown, *_ = [*blocks(page, "python"), *blocks(HOW_TO / "notebooks.md", "python")]
    spark_project.define(shown)
    commands = lines(page)
    assert len(commands) == n_lines

    for line in commands:
        spark_project.run(line)


@pytest.mark.long("the page's commands run as its reader types them, most of them on Spark")
@pytest.mark.timeout(600)
def test_the_page_for_the_engineer_on_call_leads_to_the_cause(project: Project) -> None:
    page = ROOT / "docs" / "for" / "on-call.md"
    project.define(blocks(page, "python")[0])
    project.databuild("build", "report@2024-01-02", code=1)
    commands = lines(page)
    assert len(commands) == 20

    printed = "".join(done.out for line in commands if (done := project.run(line)) is not None)
    printed = re.sub(_ID, "ID", printed)

    for block in blocks(page, "text"):
        assert block in printed
    assert "No job run is open." in printed
    assert project.databuild("read", "report@2024-01-01", "--json").json == [{"total": 10.0}]


@pytest.mark.long("the page's commands run as its reader types them, most of them on Spark")
def test_the_commands_of_the_page_on_upgrading_go_well(project: Project) -> None:
    project.make_home()

    for line in lines(HOW_TO / "versions.md"):
        project.run(line)


@pytest.mark.long("the page's commands run as its reader types them, most of them on Spark")
@pytest.mark.timeout(600)
def test_the_page_on_delegation_asks_twice_and_builds_once(project: Project) -> None:
    page = HOW_TO / "delegation.md"
    project.define(blocks(ROOT / "docs" / "coming-from" / "dagster.md", "python")[1])
    coordinator, _ = blocks(page, "yaml")
    project.make_home(coordinator)
    n_instances = []
    for block in blocks(page, "console"):
        for line in block.splitlines():
            project.run(line)
        n_instances.append(len(project.databuild("history", "orders@2024-01-01", "--json").json))

    assert n_instances == [1, 3, 3]
    asked = project.databuild("history", "--requests", "--json").json
    assert sorted(item["kind"] for item in asked) == ["built", "built", "built", "reused"]
