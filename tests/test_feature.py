"""The rows of features: what the core gets of them, from this package and from installed ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from databuild_dagster import feature
from databuild_dagster.feature import Column, Feature, InvalidFeature, built_in
from tests.support.feature_commands import FEATURE_OF, feature_of

ROOT = Path(__file__).parents[1]
COLUMNS = sorted(name for name, field in Feature.__dataclass_fields__.items() if isinstance(field.default, Column))
LISTING = "from databuild_dagster.feature import features; print(*(row.name for row in features()))"


def python(code: str, *places: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, places))
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **environment},
        cwd=places[0],
        capture_output=True,
        text=True,
        timeout=250,
    )


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, of which a test may remove folders."""
    ignored = shutil.ignore_patterns("__pycache__", "templates", "static")
    shutil.copytree(ROOT / "databuild_dagster", tmp_path / "copy" / "databuild_dagster", ignore=ignored)
    return tmp_path / "copy"


def installed(folder: Path, code: str) -> Path:
    """A package that lists a feature, as pip leaves it in a folder of the path."""
    (folder / "shop_features").mkdir(parents=True)
    (folder / "shop_features" / "__init__.py").write_text(code)
    described = folder / "shop-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[databuild_dagster.features]\nshop = shop_features:FEATURE\n")
    return folder


@pytest.mark.parametrize("row", built_in(), ids=lambda row: row.name)
def test_every_column_of_a_row_leads_to_a_tuple(row: Feature) -> None:
    for name in COLUMNS:
        entries = getattr(row, name).entries(row.package)

        assert isinstance(entries, tuple), name
        assert entries or not getattr(row, name).place, f"{name} has no entry; leave the column out"


def test_a_removed_folder_takes_the_features_that_need_it_along(package: Path) -> None:
    folder = package / "databuild_dagster" / "features" / "clean"
    shutil.rmtree(folder)
    # As git leaves it.
    (folder / "__pycache__").mkdir(parents=True)

    found = python(LISTING, package)

    assert found.returncode == 0, found.stderr
    names = found.stdout.split()
    assert {"clean", "erase"}.isdisjoint(names)
    assert {"lots", "tables", "operations"} <= {*names}


def test_an_installed_package_brings_a_feature_with_a_command(tmp_path: Path) -> None:
    code = (
        "from databuild_dagster.feature import Command, Feature\n"
        "import click\n"
        "@click.command()\n"
        "def greet():\n    click.echo('hello from the shop')\n"
        "FEATURE = Feature(package=__name__, summary='It greets.', needs=('lots',), commands=(\n"
        "    Command('greet', 'commands:greet', 'Greet the caller.', 'Start', 'init'),))\n"
    )
    place = installed(tmp_path, code)
    (place / "shop_features" / "commands.py").write_text("from shop_features import greet\n")
    run = "from databuild_dagster.cli.main import run; import sys; sys.exit(run(['{}']))"

    called = python(run.format("greet"), place, ROOT)
    shown = python(run.format("--help"), place, ROOT)

    assert (called.returncode, called.stdout) == (0, "hello from the shop\n"), called.stderr
    assert "Greet the caller." in shown.stdout


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("FEATURE = 3", "gives 3, which is no Feature"),
        ("raise RuntimeError('it is broken')", "cannot be loaded (RuntimeError: it is broken)"),
        (
            "from databuild_dagster.feature import Feature\nFEATURE = Feature(package='x.lots', summary='')",
            "gives a feature 'lots', which exists already",
        ),
        (
            "from databuild_dagster.feature import Feature\n"
            "FEATURE = Feature(package='x.y', summary='', needs=('magic',))",
            "needs 'magic', which is not installed",
        ),
    ],
    ids=["no row", "broken", "a name in use", "a missing need"],
)
def test_a_feature_that_cannot_be_used_is_refused_in_a_sentence(tmp_path: Path, code: str, sentence: str) -> None:
    place = installed(tmp_path, code)

    found = python(LISTING, place, ROOT)

    assert found.returncode == 1
    error = found.stderr.splitlines()[-1]
    assert error.startswith(f"{feature.__name__}.{InvalidFeature.__name__}: ")
    assert "the package shop" in error
    assert sentence in error


def test_the_tests_know_which_feature_brings_each_command() -> None:
    brought = {command.name: feature.name for feature in built_in() for command in feature.commands}

    assert {name: feature_of(name.split()) for name in brought} == brought
    assert [name for name in FEATURE_OF if not any(f"{other} ".startswith(f"{name} ") for other in brought)] == []
