"""What `databuild-dagster` is: in a tree the package itself, and for an index a distribution without files over the core.

`pip install .`, `pip install -e .` and an installation from git take the wheel of a tree, which has the code. What is published is a
source distribution without the code, and the wheel that is made from it (`python -m build`): both need `databuild-dagster-core` of
their own version, so one distribution owns each file wherever both are installed.

The README is as an index shows it: its links are absolute, or plain text as long as the project has no address.
`DATABUILD_PROJECT_URL` is the address under which the files of a version are, without a slash at its end; `tools/release.py` sets it.
"""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

CORE = "databuild-dagster-core"

_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")


class Metadata(MetadataHookInterface):
    """Version and README. Commands and entry points belong to the distribution with the code, and are written where the core is."""

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        if not _is_tree(root):
            # Version and README are those of PKG-INFO.
            metadata["dependencies"] = [*metadata["dependencies"], f"{CORE}=={metadata['version']}"]
            return
        core = tomllib.loads((root / "distributions" / CORE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        metadata.update({field: core[field] for field in ("scripts", "entry-points")})
        metadata["version"] = version_of(root)
        metadata["readme"] = {"content-type": "text/markdown", "text": readme_of(root)}


class Files(BuildHookInterface):
    """The reference in a tree's wheel, and the core among the requirements of a source distribution."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if self.target_name == "sdist":
            build_data["dependencies"].append(f"{CORE}=={version_of(root)}")
        elif _is_tree(root) and version == "standard":
            # For those who have no network: the commands, the Python names and the schema of a manifest.
            build_data["force_include"][str(root / "docs/reference")] = "databuild_dagster/reference"


def _is_tree(root: Path) -> bool:
    return (root / "databuild_dagster").is_dir()


def version_of(tree: Path) -> str:
    found = re.search(r'__version__ = "([^"]+)"', (tree / "databuild_dagster/version.py").read_text(encoding="utf-8"))
    assert found is not None, "version.py has no version"
    return found[1]


def readme_of(tree: Path) -> str:
    return published((tree / "README.md").read_text(encoding="utf-8"))


def published(text: str) -> str:
    """The text without relative links."""
    address = os.environ.get("DATABUILD_PROJECT_URL")

    def absolute(link: re.Match[str]) -> str:
        if "://" in link["target"]:
            return link[0]
        if not address:
            # A picture without an address is left out: its words repeat the text around it.
            return "" if link["picture"] else link["text"]
        return f"{link['picture']}[{link['text']}]({address}/{link['target']})"

    return _LINK.sub(absolute, text)
