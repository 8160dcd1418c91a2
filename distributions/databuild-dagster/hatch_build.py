"""The metadata that the plain distribution takes from the core: its version, its extras, its README."""

import re
import runpy
from email import message_from_string
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

CORE = "databuild-dagster-core"
#: The core's extras that are of use beside Spark.
EXTRAS = ("azure", "delta", "example", "filters", "gcs", "iceberg", "java", "metrics", "postgres", "s3", "sail")
#: What most need and the core does not bring.
WITH_SPARK = (
    "dagster-pyspark>=0.28,<0.30",
    "dagster-webserver>=1.12,<1.14",
    "pyspark[connect]>=3.5,<4.4",
)


class FromTheCore(MetadataHookInterface):
    """Metadata of the tree, or of the source distribution, which has no tree around it."""

    def update(self, metadata: dict[str, Any]) -> None:
        version, readme = _facts(Path(self.root))
        metadata["version"] = version
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
        metadata["dependencies"] = [f"{CORE}=={version}", *WITH_SPARK]
        metadata["optional-dependencies"] = {extra: [f"{CORE}[{extra}]=={version}"] for extra in EXTRAS}


def _facts(root: Path) -> tuple[str, str]:
    """The version and the README."""
    if (built := root / "PKG-INFO").exists():
        facts = message_from_string(built.read_text(encoding="utf-8"))
        return str(facts["Version"]), str(facts.get_payload())
    tree = root.parents[1]
    found = re.search(r'__version__ = "([^"]+)"', (tree / "databuild_dagster/version.py").read_text(encoding="utf-8"))
    assert found is not None, "version.py has no version"
    of_core = runpy.run_path(str(tree / "hatch_build.py"))
    return found[1], of_core["published"]((tree / "README.md").read_text(encoding="utf-8"))
