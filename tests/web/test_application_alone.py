"""The pages work without the features that bring some of them, and link to no page that is not there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Features that bring urls, pages or actions.
LEFT_OUT = ("lots", "operations", "compare", "what_if")
PATHS = (
    "/",
    "/assets",
    "/calendar?dataset=mirror",
    "/partition?ref=mirror@2023-01-21",
    "/partition?ref=shown",
    "/plan",
    "/plan?ref=revenue@2023-01-01",
    "/wants",
    "/builds?ended=true",
    "/delegations",
    "/api/v1/openapi.json",
)
#: Urls that refuse a question without its parameters: a form leads to them.
FORMS = {"/calendar", "/partition", "/lineage"}


@pytest.mark.long("the package is imported without features")
def test_the_core_has_its_pages_without_the_features(tmp_path: Path) -> None:
    package = tmp_path / "databuild_dagster"
    shutil.copytree(ROOT / package.name, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in LEFT_OUT:
        shutil.rmtree(package / "features" / name, ignore_errors=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}

    command = [sys.executable, "-m", "tests.support.pages_alone", str(tmp_path / "warehouse"), *PATHS]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)

    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert Path(found["package"]).is_relative_to(package)
    assert not {*LEFT_OUT} & {*found["features"]}
    assert found["answers"] == dict.fromkeys(PATHS, 200)
    refused = {path for path, status in found["links"].items() if status != 200}
    assert {path: found["links"][path] for path in refused} == dict.fromkeys(refused & FORMS, 400)
