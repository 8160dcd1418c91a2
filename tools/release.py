"""Makes a release and publishes nothing: the files, their digests, an SBOM, and the command that would publish them.

    .venv/bin/python tools/release.py --fold
    .venv/bin/python tools/release.py --url https://HOST/OWNER/PROJECT/blob/vVERSION

The first command moves the items of `changes` into the CHANGELOG, as the section of the version; commit it. The second is refused if the
tree has changes, if the CHANGELOG has no section for the version, if `changes` has items, or if the version is tagged on another commit.
`--dry-run` says so and continues. The environment of the SBOM is the plain distribution alone, installed from the new wheels.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from databuild_dagster.version import __version__

ROOT = Path(__file__).parent.parent
SOURCES = (ROOT, ROOT / "distributions" / "databuild-dagster-core")
CHANGELOG = ROOT / "CHANGELOG.md"
CHANGES = ROOT / "changes"
#: Sections of a release, by the end of the name of an item: `lots-by-week.added.md`.
SECTIONS = ("added", "changed", "fixed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fold", action="store_true", help="move the items of changes/ into the CHANGELOG, and end")
    parser.add_argument("--url", help="where the files of this version are, for the links of the README")
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="the folder of the files, which is emptied")
    parser.add_argument("--no-sbom", action="store_true", help="leave out the SBOM, whose environment takes minutes")
    parser.add_argument("--dry-run", action="store_true", help="build where no release is possible, too, and say why")
    given = parser.parse_args()
    if given.fold:
        return fold()
    if not re.fullmatch(r"https://\S+[^/\s]", given.url or ""):
        parser.error(f"--url {given.url} is no https address without a slash at its end")
    if why_not := refusal():
        print(f"No release: {why_not}.", file=sys.stderr)
        if not given.dry_run:
            return 1
    shutil.rmtree(given.into, ignore_errors=True)
    for source in SOURCES:
        run(sys.executable, "-m", "build", "--outdir", str(given.into), str(source), DATABUILD_PROJECT_URL=given.url)
    files = sorted(given.into.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, files))
    if not given.no_sbom:
        write_sbom(given.into / f"databuild-dagster-{__version__}.cdx.json", given.into.glob("*.whl"))
    for file in sorted(given.into.iterdir()):
        print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}")
    print("\nNothing was published. This would publish it:\n")
    names = " ".join(f"{given.into.name}/{file.name}" for file in files)
    print(f"    git tag v{__version__} && twine upload {names}")
    return 0


def refusal() -> str:
    """Why there can be no release now; empty if there can."""
    if changes := said("git", "status", "--porcelain"):
        return f"the tree has changes ({changes.splitlines()[0].strip()})"
    tagged = said("git", "tag", "--list", f"v{__version__}")
    if tagged and said("git", "rev-list", "-n", "1", tagged) != said("git", "rev-parse", "HEAD"):
        return f"{tagged} is the tag of another commit; raise the version in databuild_dagster/version.py"
    if not has_section():
        return f"CHANGELOG.md has no section {__version__}; run `python tools/release.py --fold`"
    if left := items():
        return f"changes/{left[0].name} is in no release; raise the version in databuild_dagster/version.py"
    return ""


def has_section() -> bool:
    return f"\n## {__version__}, " in CHANGELOG.read_text(encoding="utf-8")


def items() -> list[Path]:
    """The changes since the last release, by name."""
    return sorted(path for path in CHANGES.glob("*.md") if path.name != "README.md")


def fold() -> int:
    """Move the items into a section of the CHANGELOG that has the date of today."""
    sections = {name: [path for path in items() if path.name.endswith(f".{name}.md")] for name in SECTIONS}
    if has_section():
        print(f"CHANGELOG.md has a section {__version__}: raise the version in version.py first.", file=sys.stderr)
        return 1
    if others := sorted({*items()}.difference(*sections.values())):
        print(f"changes/{others[0].name} ends with none of .{'.md, .'.join(SECTIONS)}.md.", file=sys.stderr)
        return 1
    section = f"\n## {__version__}, {datetime.now(UTC):%Y-%m-%d}\n"
    for name, paths in sections.items():
        if paths:
            section += f"\n### {name.capitalize()}\n\n" + "".join(f"{path.read_text().strip()}\n" for path in paths)
    head, mark, rest = CHANGELOG.read_text(encoding="utf-8").partition("\n## ")
    CHANGELOG.write_text(f"{head}{section}{mark}{rest}", encoding="utf-8")
    for path in items():
        path.unlink()
    print(f"CHANGELOG.md has a section {__version__}. Read it, and commit it with changes/.")
    return 0


def write_sbom(path: Path, wheels: Iterable[Path]) -> None:
    """A list, in the form of CycloneDX, of what `pip install databuild-dagster` brings today."""
    with tempfile.TemporaryDirectory(prefix="sbom-") as folder:
        described = environment(Path(folder) / "described", *map(str, wheels))
        # Apart, so that the list has nothing of the tool's own.
        tool = environment(Path(folder) / "tool", "cyclonedx-bom>=7,<8")
        run(tool, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--output-file", str(path), described)


def environment(folder: Path, *packages: str) -> str:
    """The interpreter of a new environment with these packages."""
    run(sys.executable, "-m", "venv", str(folder))
    python = str(folder / "bin" / "python")
    run(python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", *packages)
    return python


def said(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def run(*command: str, **more: str) -> None:
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **more}, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")


if __name__ == "__main__":
    sys.exit(main())
