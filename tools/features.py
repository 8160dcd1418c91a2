"""Tests of one feature, and of the package without it.

`python -m tools.features test NAME` runs the tests of a feature and of the features that need it, the import contracts, and one
real build. `python -m tools.features long` removes all features from a copy of the package, and runs the tests of the core and a
real build there. Then it removes one feature after another, with the features that need it, and runs a real build and the tests
of the packages that ask for rows of features: no other package can notice which features are there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from databuild_dagster.feature import built_in
from tools.reach import PACKAGE, Modules

ROOT: Final = Path(__file__).parents[1]
FEATURES: Final = "databuild_dagster/features"
#: The core and the faces. Their tests marked `long` start processes or Spark: a removal breaks them no other way.
PACKAGES: Final = ("model", "store", "engine", "warehouse", "data", "spark", "bindings", "calls", "cli", "web")
#: The last asset of a project that `databuild init` makes, for one month.
SMOKE_REF: Final = "monthly_revenue@2024-01-01"


def with_dependants(name: str) -> list[str]:
    """A feature and the features that need it, directly or not. Raises `SystemExit` for an unknown name."""
    features = built_in()
    if name not in (names := [feature.name for feature in features]):
        raise SystemExit(f"There is no feature {name!r}; the features are {', '.join(names)}.")
    found = [name]
    for feature in features:
        if not {*feature.needs}.isdisjoint(found):
            found.append(feature.name)
    return found


def test_feature(name: str, arguments: Sequence[str]) -> int:
    """Run the tests of a feature and of its dependants, the contracts and a real build; returns an exit code."""
    folders = [folder for member in with_dependants(name) if (ROOT / (folder := f"tests/features/{member}")).is_dir()]
    return (
        _run([sys.executable, "-m", "pytest", "-q", "-n", "3", *folders, *arguments], ROOT)
        or _run([sys.executable, "-m", "pytest", "-q", "tests/test_reach.py"], ROOT)
        or _run([str(Path(sys.executable).with_name("lint-imports"))], ROOT)
        or smoke(ROOT)
    )


def test_without_each(names: Sequence[str], arguments: Sequence[str]) -> int:
    """Run the tests of the core without each feature in turn; returns an exit code."""
    every = [feature.name for feature in built_in()]
    trials = [(with_dependants(name), packages_that_ask()) for name in names or every]
    if not names:
        trials.insert(0, (every, list(PACKAGES)))
    failed = []
    for removed, packages in trials:
        print(f"Without {', '.join(removed)}: the tests of {', '.join(packages)}", flush=True)
        with TemporaryDirectory(prefix="databuild-without-") as folder:
            tree = _copy_without(removed, Path(folder))
            options = ["-q", "-n", "3", "-m", "not long and not browser", "-p", "no:cacheprovider"]
            folders = [f"tests/{package}" for package in packages]
            tests = [sys.executable, "-m", "pytest", *options, *folders, *arguments]
            if _run(tests, tree) or smoke(tree):
                failed.append(" and ".join(removed))
    print(f"Failed without: {', '.join(failed)}" if failed else "The core works without each feature.")
    return 1 if failed else 0


def smoke(tree: Path) -> int:
    """One real build by the command, in a new project, with the package of a tree; returns an exit code."""
    with TemporaryDirectory(prefix="databuild-smoke-") as folder:
        project = Path(folder) / "shop"
        # The project's own package and that of the tree come before the installed one.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), str(project)])}
        environment.pop("DAGSTER_HOME", None)
        databuild = [sys.executable, "-m", "databuild_dagster"]
        try:
            return (
                _run([*databuild, "init", str(project)], Path(folder), environment)
                or _run([*databuild, "build", SMOKE_REF], project, environment)
                or _run([*databuild, "read", SMOKE_REF], project, environment)
                or _run([*databuild, "log", "check", "--deep"], project, environment)
            )
        finally:
            _run([*databuild, "spark", "--stop"], project, environment)


def packages_that_ask() -> list[str]:
    """The packages of the core and the faces that reach `databuild_dagster.feature`, where the rows are asked for."""
    modules = Modules.of(ROOT / PACKAGE)
    asking = {
        name.split(".")[1] for name in modules.files if "." in name and f"{PACKAGE}.feature" in modules.behind(name)
    }
    return [package for package in PACKAGES if package in asking]


def _copy_without(names: Sequence[str], folder: Path) -> Path:
    """A copy of the files that git knows, without the folders of some features and their tests."""
    tree = folder / "tree"
    left_out = tuple(f"{place}/{name}/" for name in names for place in (FEATURES, "tests/features"))
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if not name.startswith(left_out) and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    return tree


def _run(command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> int:
    print("$", " ".join(command), flush=True)
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    of_one = commands.add_parser("test", help="the tests of a feature")
    of_one.add_argument("name", help="the feature, such as lots")
    without = commands.add_parser("long", help="the tests of the core without each feature")
    without.add_argument("names", nargs="*", help="only without these")
    given, arguments = parser.parse_known_args()
    if given.command == "test":
        sys.exit(test_feature(given.name, arguments))
    sys.exit(test_without_each(given.names, arguments))


if __name__ == "__main__":
    main()
