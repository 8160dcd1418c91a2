"""Makes a release and publishes nothing: the files, their digests, an SBOM, and the command that would publish them.

    .venv/bin/python tools/release.py --url https://HOST/OWNER/PROJECT/blob/vVERSION

Refused if the tree has changes, if the CHANGELOG has no section for the version, or if the version is tagged on another commit. The
environment of the SBOM is the plain distribution alone, installed from the new wheels.
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
from pathlib import Path

from databuild_dagster.version import __version__

ROOT = Path(__file__).parent.parent
SOURCES = (ROOT, ROOT / "distributions" / "databuild-dagster-core")
DIST = ROOT / "dist"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="where the files of this version are, for the links of the README")
    parser.add_argument("--no-sbom", action="store_true", help="leave out the SBOM, whose environment takes minutes")
    given = parser.parse_args()
    if not re.fullmatch(r"https://\S+[^/\s]", given.url):
        parser.error(f"--url {given.url} is no https address without a slash at its end")
    if why_not := refusal():
        print(f"No release: {why_not}.", file=sys.stderr)
        return 1
    shutil.rmtree(DIST, ignore_errors=True)
    for source in SOURCES:
        run(sys.executable, "-m", "build", "--outdir", str(DIST), str(source), DATABUILD_PROJECT_URL=given.url)
    files = sorted(DIST.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, files))
    if not given.no_sbom:
        write_sbom(DIST / f"databuild-dagster-{__version__}.cdx.json")
    for file in sorted(DIST.iterdir()):
        print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}")
    print("\nNothing was published. This would publish it:\n")
    print(f"    git tag v{__version__} && twine upload {' '.join(f'dist/{file.name}' for file in files)}")
    return 0


def refusal() -> str:
    """Why there can be no release now; empty if there can."""
    if changes := said("git", "status", "--porcelain"):
        return f"the tree has changes ({changes.splitlines()[0].strip()})"
    tagged = said("git", "tag", "--list", f"v{__version__}")
    if tagged and said("git", "rev-list", "-n", "1", tagged) != said("git", "rev-parse", "HEAD"):
        return f"{tagged} is the tag of another commit; raise the version in databuild_dagster/version.py"
    # A version between releases has its lines under Unreleased.
    section = "Unreleased" if ".dev" in __version__ else __version__
    if f"\n## {section}" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        return f"CHANGELOG.md has no section {section}"
    return ""


def write_sbom(path: Path) -> None:
    """A list, in the form of CycloneDX, of what `pip install databuild-dagster` brings today."""
    with tempfile.TemporaryDirectory(prefix="sbom-") as folder:
        described = environment(Path(folder) / "described", *map(str, DIST.glob("*.whl")))
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
