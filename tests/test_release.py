"""The release script refuses before it builds, and publishes nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = "tools/release.py"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of its own, with the files that the script looks at."""
    for name in (SCRIPT, "CHANGELOG.md"):
        target = tmp_path / name
        target.parent.mkdir(exist_ok=True)
        target.write_text((ROOT / name).read_text())
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=tester", "-c", "user.email=tester@example.org")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "Change the project")


def release(folder: Path, url: str = "https://example.org/o/p/blob/v1") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, SCRIPT, "--url", url]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT)}
    )


def test_a_tree_with_changes_is_refused(checkout: Path) -> None:
    (checkout / "new.txt").write_text("not committed")

    done = release(checkout)

    assert (done.returncode, done.stderr) == (1, "No release: the tree has changes (?? new.txt).\n")


def test_a_version_without_a_section_in_the_changelog_is_refused(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("# Changelog\n")
    commit(checkout)

    done = release(checkout)

    assert (done.returncode, done.stderr) == (1, "No release: CHANGELOG.md has no section Unreleased.\n")


def test_a_version_that_is_tagged_on_another_commit_is_refused(checkout: Path) -> None:
    from databuild_dagster.version import __version__

    git(checkout, "tag", f"v{__version__}")
    commit(checkout)

    done = release(checkout)

    assert done.returncode == 1
    assert f"v{__version__} is the tag of another commit; raise the version" in done.stderr


@pytest.mark.parametrize("url", ["http://example.org/x", "https://example.org/x/", "docs"])
def test_an_address_that_makes_no_absolute_link_is_refused(checkout: Path, url: str) -> None:
    done = release(checkout, url)

    assert done.returncode == 2
    assert "is no https address without a slash at its end" in done.stderr
    assert not (checkout / "dist").exists()
