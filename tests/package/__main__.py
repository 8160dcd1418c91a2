"""Builds what would be published, and uses it as a stranger would: from an index, in empty environments, without pins.

Exit 1 names the step that went wrong. `--all` also resolves every `pip install` line of the docs, and upgrades an environment
whose store is in use from an earlier version.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

from databuild_dagster.version import __version__
from tests.matrix.environments import CHECKOUT, SOURCES
from tests.package.example import use_example
from tests.package.steps import Failed, environment, pip, run, step
from tests.support import tutorial

CORE, PLAIN = "databuild-dagster-core", "databuild-dagster"
#: The commit of the version from which `--all` upgrades, which was one distribution; nothing was released yet.
EARLIER = "d63fdb8"
#: Where the published README would find the other files.
ADDRESS = "https://example.org/databuild_dagster"
#: A line of the docs that installs one of the two.
INSTALL = re.compile(r"pip install '?(databuild[-_]dagster[\w-]*(?:\[[\w,]+\])?)")

#: Prints the reference that comes with the package.
IN_THE_WHEEL = (
    "from importlib.resources import files; print(files('databuild_dagster').joinpath('reference/api.md').read_text())"
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make package", description=__doc__)
    parser.add_argument(
        "--all", action="store_true", help="also resolve every `pip install` line of the docs, and upgrade"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="package-") as name:
        folder = Path(name)
        try:
            publish(folder)
            python = use_wheels(folder)
            use_example(folder, python)
            use_sources(folder)
            if given.all:
                use_image(folder)
                resolve_docs(folder)
                upgrade(folder)
        except Failed as failure:
            print(failure, file=sys.stderr)
            return 1
    return 0


def publish(folder: Path) -> None:
    """Let the release script build both distributions as wheel and as source, and build them again."""
    script = (str(CHECKOUT / "tools" / "release.py"), "--dry-run", "--no-sbom", "--into", str(folder / "index"))
    with step("the release script builds and checks what would be published"):
        said = run(sys.executable, *script, "--url", ADDRESS)
        listed = dict(reversed(line.split()) for line in said.splitlines() if re.match(r"[0-9a-f]{64} ", line))
        found = {path.name: sha256(path.read_bytes()).hexdigest() for path in (folder / "index").iterdir()}
        if len(found) != 4 or listed != found or "Nothing was published." not in said:
            raise Failed(f"the script printed\n{said}\nbut there are {found}")
    with step("two builds have the same bytes"):
        for source in SOURCES:
            run(
                sys.executable,
                "-m",
                "build",
                "--outdir",
                str(folder / "again"),
                str(source),
                more={"DATABUILD_PROJECT_URL": ADDRESS},
            )
        again = {path.name: sha256(path.read_bytes()).hexdigest() for path in (folder / "again").iterdir()}
        if again != found:
            raise Failed(f"files that differ: {sorted(name for name in found if found[name] != again.get(name))}")


def use_wheels(folder: Path) -> Path:
    """Install the plain distribution as the tutorial says, follow its first section, and the README of `databuild init`.

    Returns the environment's Python.
    """
    first = tutorial.steps(tutorial.FIRST)
    with step(f"the first partition of the tutorial, by {len(tutorial.typed(first))} typed lines"):
        python = environment(folder / "wheels")
        follow_tutorial(folder, python, first)
    with step(f"what pip installed as {PLAIN}"):
        pip(python, "check")
        found = run(str(python), "-c", IN_THE_WHEEL, cwd=folder)
        if "### build_definitions" not in found:
            raise Failed(f"the reference is missing in the wheel:\n{found}")
    home = {"DAGSTER_HOME": str(folder / "home"), "DAGSTER_DISABLE_TELEMETRY": "1"}
    (folder / "home").mkdir()
    command = str(python.with_name("databuild"))
    with step("databuild init shop, and a table of a month"):
        run(command, "init", "shop", cwd=folder)
        try:
            run(command, "build", "monthly_revenue@2024-01-01", cwd=folder / "shop", more=home)
            said = run(command, "read", "monthly_revenue@2024-01-01", cwd=folder / "shop", more=home)
        finally:
            run(command, "spark", "--stop", cwd=folder / "shop", more=home)
        if "bread" not in said:
            raise Failed(f"no bread in the month's table:\n{said}")
    return python


def follow_tutorial(folder: Path, python: Path, first: list[tutorial.Step]) -> None:
    """Type the lines of the page in an empty folder. Raises `Failed` for a line too many, or for another output."""
    if len(tutorial.typed(first)) > tutorial.MAX_LINES:
        raise Failed(
            f"{len(tutorial.typed(first))} lines lead to the first partition, at most {tutorial.MAX_LINES} may."
        )
    project = folder / "climate"
    project.mkdir()
    printed = ""
    for block in first:
        if block.kind == "commands":
            printed = "".join(type_command(command, folder, python, project) for command in block.commands)
        elif block.kind == "code":
            tutorial.add_asset(project, block.text)
        elif not tutorial.is_shown(block.text, printed):
            raise Failed(f"the tutorial shows\n{block.text}\nbut its commands print\n{printed}")


def type_command(command: str, folder: Path, python: Path, project: Path) -> str:
    program, *arguments = shlex.split(command)
    if program == "pip":
        pip(python, *arguments, "--find-links", str(folder / "index"))
        return ""
    return run(str(python.with_name(program)), *arguments, cwd=project)


def use_sources(folder: Path) -> None:
    """Install the core from its source, without any PySpark."""
    with step(f"pip install {CORE} from its source"):
        python = environment(folder / "sources")
        index = ("--find-links", str(folder / "index"), "--no-binary", CORE)
        pip(python, "install", *index, f"{CORE}=={__version__}")
        pip(python, "check")
    with step("without a PySpark the command says so in one sentence"):
        command = str(python.with_name("databuild"))
        home = {"DAGSTER_HOME": str(folder / "home")}
        said = run(command, "build", "monthly_revenue@2024-02-01", cwd=folder / "shop", more=home, exits=2)
        if "No module named 'pyspark'" not in said or "Traceback" in said:
            raise Failed(f"the sentence is missing:\n{said}")


def use_image(folder: Path) -> None:
    """Install what the Dockerfile of `deploy` installs, and load the project of `databuild init` as its processes do."""
    dockerfile = (CHECKOUT / "deploy" / "Dockerfile").read_text()
    (distribution,) = re.findall(r"^ARG DATABUILD='(.*)'$", dockerfile, re.MULTILINE)
    (line,) = re.findall(r"^RUN pip (install .*)$", dockerfile, re.MULTILINE)
    with step("what deploy/Dockerfile installs loads the definitions of databuild init"):
        python = environment(folder / "image")
        arguments = shlex.split(line.replace("$DATABUILD", distribution))
        pip(python, *arguments, "--find-links", str(folder / "index"))
        pip(python, "check")
        run(str(python.with_name("databuild")), "init", "image-shop", cwd=folder)
        home = {"DAGSTER_HOME": str(folder / "home"), "DAGSTER_DISABLE_TELEMETRY": "1"}
        run(str(python.with_name("dagster")), "definitions", "validate", cwd=folder / "image-shop", more=home)
        run(str(python), "-c", "import dagster_k8s, dagster_postgres, dagster_webserver, psycopg, s3fs")


def resolve_docs(folder: Path) -> None:
    """Let pip resolve every line that installs the package, in an environment without anything."""
    python = environment(folder / "empty")
    for line in documented():
        with step(f"pip install {line}"):
            pip(python, "install", "--dry-run", "--pre", "--find-links", str(folder / "index"), line)


def upgrade(folder: Path) -> None:
    """Build with an earlier version, leave a want open, install the new wheels in its place, and go on in the same home."""
    home = {"DAGSTER_HOME": str(folder / "upgraded"), "DAGSTER_DISABLE_TELEMETRY": "1"}
    (folder / "upgraded").mkdir()
    shop = folder / "earlier-shop"
    with step(f"a table, and an open want, by the version of {EARLIER}"):
        source = folder / "earlier"
        source.mkdir()
        run("git", "archive", "--output", str(folder / "earlier.tar"), EARLIER, cwd=CHECKOUT)
        run("tar", "-xf", str(folder / "earlier.tar"), "-C", str(source))
        run(sys.executable, "-m", "build", "--wheel", "--outdir", str(folder / "earlier-index"), str(source))
        python = environment(folder / "upgrading")
        (wheel,) = (folder / "earlier-index").glob("*.whl")
        pip(python, "install", str(wheel))
        command = str(python.with_name("databuild"))
        run(command, "init", shop.name, cwd=folder)
        run(command, "build", "monthly_revenue@2024-01-01", cwd=shop, more=home)
        run(command, "want", "create", "monthly_revenue@2024-02-01", cwd=shop, more=home)
        run(command, "spark", "--stop", cwd=shop, more=home)
    with step("the new wheels in its place: nothing is built again, the want is built, and the log is sound"):
        # It owned the files that the core owns now: pip would remove them after it has installed the core's.
        pip(python, "uninstall", "--yes", PLAIN)
        pip(python, "install", "--find-links", str(folder / "index"), f"{PLAIN}=={__version__}")
        pip(python, "check")
        refused = run(command, "status", cwd=shop, more=home, exits=2)
        if "Run `databuild log migrate`" not in refused:
            raise Failed(f"the sentence on the older log is missing:\n{refused}")
        # The process of before has ended less than 30 s ago.
        run(command, "log", "migrate", "--force", cwd=shop, more=home)
        again = run(command, "build", "monthly_revenue@2024-01-01", "--json", cwd=shop, more=home)
        if '"launches": 0' not in again:
            raise Failed(f"January was built again:\n{again}")
        run(command, "build", "monthly_revenue@2024-02-01", cwd=shop, more=home)
        wants = run(command, "want", "list", "--json", cwd=shop, more=home)
        if '"state": "Open"' in wants:
            raise Failed(f"the want of before is still open:\n{wants}")
        # The copies of manifests for other tools have had another shape.
        run(command, "log", "check", "--repair-keys", cwd=shop, more=home)
        run(command, "log", "check", "--deep", cwd=shop, more=home)
        run(command, "spark", "--stop", cwd=shop, more=home)


def documented() -> list[str]:
    """What the docs and the hints of errors install, without the rest of their sentences."""
    pages = [
        CHECKOUT / "README.md",
        *sorted((CHECKOUT / "docs").rglob("*.md")),
        *(CHECKOUT / "databuild_dagster").rglob("*.py"),
    ]
    return sorted({found for page in pages for found in INSTALL.findall(page.read_text(encoding="utf-8"))})


if __name__ == "__main__":
    sys.exit(main())
