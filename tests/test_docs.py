"""Every example in the docs does what it says: Python blocks are imported, the README's project is built for real."""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: One command of the README, its Spark's start included.
MAX_SECONDS = 300


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


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


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"

    pages = {path.name for path in folder.glob("0*.md")}

    assert pages == set(re.findall(r"\((0\d+[^)]*\.md)\)", (folder / "README.md").read_text()))


def test_the_generated_pages_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, "tools/docs.py", "--check"], cwd=ROOT, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, ""), done


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_readmes_project_answers_the_readmes_questions(tmp_path: Path) -> None:
    (tmp_path / "definitions.py").write_text(blocks(ROOT / "README.md", "python")[0])
    (tmp_path / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    lines = [line.removeprefix("$ ") for block in blocks(ROOT / "README.md", "console") for line in block.splitlines()]
    assert len(lines) >= 10
    try:
        for line in lines:
            arguments = shlex.split(line, comments=True)[1:]
            if "--follow" in arguments:
                arguments.remove("--follow")
            done = databuild(tmp_path, environment, *arguments)
            assert done.returncode == 0, (line, done.stdout, done.stderr)
    finally:
        databuild(tmp_path, environment, "spark", "stop")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_the_page_on_reading_reads_is_what_it_says(tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "read-data.md"
    (tmp_path / "definitions.py").write_text(blocks(page, "python")[0])
    (tmp_path / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")
    (tmp_path / "notebook.py").write_text("\n".join(blocks(page, "py")))
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    try:
        built = databuild(tmp_path, environment, "build", "sales@2024-01-01", "sales@2024-01-02")
        assert built.returncode == 0, built

        done = subprocess.run(
            [sys.executable, "notebook.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

        assert done.returncode == 0, done.stderr
    finally:
        databuild(tmp_path, environment, "spark", "stop")


@pytest.mark.long
def test_the_tests_on_the_page_on_testing_pass(tmp_path: Path) -> None:
    plain, conftest, *others = blocks(ROOT / "docs" / "how-to" / "test-assets.md", "python")
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


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_the_page_on_checking_and_files_prints_is_what_is_printed(tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "quality-and-files.md"
    (tmp_path / "definitions.py").write_text(blocks(page, "python")[0])
    (tmp_path / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")
    (tmp_path / "rules.yaml").write_text(blocks(page, "yaml")[0])
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    offends, passed_over = blocks(page, "text")
    printed = ""
    try:
        for line in "".join(blocks(page, "console")).splitlines():
            done = databuild(tmp_path, environment, *shlex.split(line.removeprefix("$ "))[1:])
            assert done.returncode == (1 if " validate " in line else 0), (line, done.stdout, done.stderr)
            printed += done.stdout + done.stderr
        from_file = databuild(tmp_path, environment, "operate", "validate", "sales", "--rules", "rules.yaml", "--local")
    finally:
        databuild(tmp_path, environment, "spark", "stop")

    for block in (offends, passed_over):
        assert " ".join(block.split()) in " ".join(printed.split()), printed
    assert from_file.returncode == 1, from_file.stderr
    assert "id fits smallint" in from_file.stdout


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_the_page_on_finding_out_prints_is_what_is_printed(tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "find-out-why.md"
    (tmp_path / "definitions.py").write_text(blocks(page, "python")[0])
    (tmp_path / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}

    def printed(*arguments: str) -> str:
        done = databuild(tmp_path, environment, *arguments)
        return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "…", done.stdout)

    printed("tick")
    before = printed("plan", "report")
    printed("build", "report")

    assert [before, printed("plan", "report"), printed("explain", "report")] == blocks(page, "text")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_asset_that_exists_is_taken_over_as_its_page_says(tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "existing-assets.md"
    theirs, ours = blocks(page, "python")
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")
    environment = os.environ | {"DAGSTER_HOME": str(home)}
    (tmp_path / "definitions.py").write_text(theirs)
    for day in ("2024-01-01", "2024-01-02"):
        command = ["-m", "dagster", "asset", "materialize", "--select", "orders,report", "--partition", day]
        subprocess.run(
            [sys.executable, *command, "-f", "definitions.py"], cwd=tmp_path, env=environment, check=True, timeout=60
        )
    (tmp_path / "definitions.py").write_text(ours)

    for block in blocks(page, "console"):
        for line in block.splitlines():
            done = databuild(tmp_path, environment, *shlex.split(line.removeprefix("$ "))[1:])
            assert done.returncode == 0, (line, done.stdout, done.stderr)

    read = databuild(tmp_path, environment, "read", "orders@2024-01-02", "--json")
    states = databuild(tmp_path, environment, "partitions", "orders", "--state", "Live", "--json")
    assert json.loads(read.stdout) == [{"day": "2024-01-02", "amount": 10.0}]
    assert [each["ref"][-2:] for each in json.loads(states.stdout)] == ["01", "02", "06"]
    plain = ["-m", "dagster", "asset", "materialize", "--select", "report", "--partition", "2024-01-01"]
    subprocess.run(
        [sys.executable, *plain, "-f", "definitions.py"], cwd=tmp_path, env=environment, check=True, timeout=60
    )


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "n_lines"), [("trust", 6), ("deadlines", 3), ("clean-up", 8), ("operations", 4)])
def test_the_commands_of_a_page_work_on_its_project(name: str, n_lines: int, tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / f"{name}.md"
    (tmp_path / "definitions.py").write_text(blocks(page, "python")[0])
    (tmp_path / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")
    environment = {key: value for key, value in os.environ.items() if key != "DAGSTER_HOME"}
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    assert len(lines) == n_lines

    for line in lines:
        done = databuild(tmp_path, environment, *shlex.split(line.removeprefix("$ "))[1:])
        assert done.returncode == 0, (line, done.stdout, done.stderr)


@pytest.mark.long
def test_what_the_page_on_upgrading_runs_goes_well(tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "upgrading.md"
    environment = os.environ | {"DAGSTER_HOME": str(tmp_path)}
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]

    done = [databuild(tmp_path, environment, *shlex.split(line.removeprefix("$ "))[1:]) for line in lines]

    assert [each.returncode for each in done] == [0, 0], done


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_the_page_on_delegation_asks_for_twice_is_built_once(tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "delegation.md"
    (tmp_path / "definitions.py").write_text(blocks(page, "python")[0])
    (tmp_path / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")
    home = tmp_path / "home"
    home.mkdir()
    coordinator, _ = blocks(page, "yaml")
    (home / "dagster.yaml").write_text(coordinator)
    environment = os.environ | {"DAGSTER_HOME": str(home)}
    n_instances = []
    for block in blocks(page, "console"):
        for line in block.splitlines():
            module, *arguments = shlex.split(line.removeprefix("$ "))
            command = [sys.executable, "-m", {"databuild": "databuild_dagster"}.get(module, module), *arguments]
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=MAX_SECONDS, check=False
            )
            assert done.returncode == 0, (line, done.stdout, done.stderr)
        history = databuild(tmp_path, environment, "history", "orders@2024-01-01", "--json")
        n_instances.append(len(json.loads(history.stdout)))

    assert n_instances == [1, 3, 3]
    asked = json.loads(databuild(tmp_path, environment, "delegations", "--json").stdout)
    assert sorted(each["kind"] for each in asked) == ["built", "built", "built", "reused"]


def databuild(folder: Path, environment: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "databuild_dagster", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
