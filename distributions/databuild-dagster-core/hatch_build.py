"""The core: the package at the top of the repository, without Spark among its requirements."""

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

#: Requirements of databuild-dagster that the core leaves to its environment.
WITHOUT = ("dagster-pyspark", "dagster-webserver", "pyspark")
#: Extras of databuild-dagster that are for its own repository.
OF_THE_REPOSITORY = ("dev", "example")
#: The core's own extras: each brings a client of Spark, which cannot be beside Spark itself.
CLIENTS = {
    "connect": ["pyspark-client>=4.0,<4.3"],
    "databricks": ["databricks-connect>=15.4,<18.4"],
}
SAME = ("description", "license", "authors", "keywords", "requires-python", "classifiers")


class Metadata(MetadataHookInterface):
    """The metadata of databuild-dagster, but for Spark. A source distribution has all of it in its PKG-INFO, and calls no hook."""

    def update(self, metadata: dict[str, Any]) -> None:
        tree = Path(self.root).parents[1]
        top = runpy.run_path(str(tree / "hatch_build.py"))
        plain = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras = {
            name: needs for name, needs in plain["optional-dependencies"].items() if name not in OF_THE_REPOSITORY
        }
        metadata.update({field: plain[field] for field in SAME})
        metadata["version"] = top["version_of"](tree)
        metadata["readme"] = {"content-type": "text/markdown", "text": top["readme_of"](tree)}
        metadata["dependencies"] = [need for need in plain["dependencies"] if _name(need) not in WITHOUT]
        metadata["optional-dependencies"] = extras | CLIENTS


class Files(BuildHookInterface):
    """The package, its reference and the license, which are at the top of the repository."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root, included = Path(self.root), build_data["force_include"]
        source = root if (root / "databuild_dagster").is_dir() else root.parents[1]
        reference = "docs/reference" if self.target_name == "sdist" else "databuild_dagster/reference"
        included[str(source / "docs/reference")] = reference
        if source != root:
            included[str(source / "databuild_dagster")] = "databuild_dagster"
            if self.target_name == "sdist":
                included[str(source / "LICENSE")] = "LICENSE"


def _name(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None, requirement
    return found[0]
