"""The release script refuses before it builds, and publishes nothing; `make package` lets it build."""

import subprocess
import sys
from pathlib import Path

import pytest

from databuild_dagster.version import __version__

ROOT = Path(__file__).parent.parent
SCRIPT = "tools/release.py"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of its own, with the files that the script looks at."""
    for name in (SCRIPT, "changes/README.md"):
        target = tmp_path / name
        target.parent.mkdir(exist_ok=True)
        target.write_text((ROOT / name).read_text())
    (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n## {__version__}, 2026-11-29\n\n- The first release.\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=tester", "-c", "user.email=tester@example.org")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "Change the project")


def release(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, SCRIPT, *(arguments or ("--url", "https://example.org/o/p/blob/v1"))]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT)}
    )


def test_a_tree_with_changes_is_refused(checkout: Path) -> None:
    (checkout / "new.txt").write_text("not committed")

    done = release(checkout)

    assert (done.returncode, done.stderr) == (1, "No release: the tree has changes (?? new.txt).\n")


def test_a_version_without_a_section_in_the_changelog_is_refused(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("# Changes\n")
    commit(checkout)

    done = release(checkout)

    assert done.returncode == 1
    assert done.stderr.startswith(f"No release: CHANGELOG.md has no section {__version__}; ")


def test_a_change_that_is_in_no_section_is_refused(checkout: Path) -> None:
    (checkout / "changes" / "weeks.added.md").write_text("- Lots by week.\n")
    commit(checkout)

    done = release(checkout)

    assert done.returncode == 1
    assert done.stderr.startswith("No release: changes/weeks.added.md is in no release; raise the version")


def test_a_version_that_is_tagged_on_another_commit_is_refused(checkout: Path) -> None:
    git(checkout, "tag", f"v{__version__}")
    commit(checkout)

    done = release(checkout)

    assert done.returncode == 1
    assert f"v{__version__} is the tag of another commit; raise the version" in done.stderr


def test_the_changes_become_the_newest_section_and_their_files_are_gone(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("# Changes\n\nOne section for each.\n\n## 0.0.9, 2026-01-02\n\n- Old.\n")
    for name, text in {"a.fixed": "- Repaired.", "b.added": "- Two\n  lines.", "c.added": "- More.\n"}.items():
        (checkout / "changes" / f"{name}.md").write_text(text)

    done = release(checkout, "--fold")

    title, _, section = (checkout / "CHANGELOG.md").read_text().partition(f"## {__version__}, ")
    assert (done.returncode, done.stderr) == (0, "")
    assert title == "# Changes\n\nOne section for each.\n\n"
    assert section[len("2026-11-29") :] == (
        "\n\n### Added\n\n- Two\n  lines.\n- More.\n\n### Fixed\n\n- Repaired.\n\n## 0.0.9, 2026-01-02\n\n- Old.\n"
    )
    assert [path.name for path in (checkout / "changes").iterdir()] == ["README.md"]


@pytest.mark.parametrize(("name", "why"), [("weeks.added", "raise the version"), ("weeks", "ends with none of .added")])
def test_changes_that_fit_no_section_stay_where_they_are(checkout: Path, name: str, why: str) -> None:
    if name == "weeks":
        (checkout / "CHANGELOG.md").write_text("# Changes\n")
    (checkout / "changes" / f"{name}.md").write_text("- Lots by week.\n")

    done = release(checkout, "--fold")

    assert done.returncode == 1
    assert why in done.stderr
    assert (checkout / "changes" / f"{name}.md").exists()


@pytest.mark.parametrize("url", ["http://example.org/x", "https://example.org/x/", "docs"])
def test_an_address_that_makes_no_absolute_link_is_refused(checkout: Path, url: str) -> None:
    done = release(checkout, "--url", url)

    assert done.returncode == 2
    assert "is no https address without a slash at its end" in done.stderr
    assert not (checkout / "dist").exists()
