"""Results of benches as files: `bench/results/NAME.json`, one table each, with what it was measured by.

`python -m bench.report` writes docs/performance.md from them. A table whose bench nobody ran again keeps its values and their commit.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"
PACKAGES = ("dagster", "pyspark", "pysail", "sqlmesh")


def record(
    name: str,
    command: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    versions: dict[str, str] | None = None,
    raw: Any = None,
) -> Path:
    """Write a table in Markdown's cells, with the date, the commit, the versions and the load; `raw` are the values behind it."""
    result = {
        "name": name,
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "load": round(os.getloadavg()[1]),
        "cores": os.cpu_count(),
        "versions": {**versions_here(), **(versions or {})},
        "columns": list(columns),
        "rows": [list(row) for row in rows],
    }
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(result | ({"raw": raw} if raw is not None else {}), indent=1, ensure_ascii=False) + "\n")
    return path


def commit(folder: Path = FOLDER) -> str:
    """The commit of a work tree, by default this one, with a `+` if files differ from it."""
    described = ["git", "describe", "--always", "--abbrev=8", "--exclude=*", "--dirty=+"]
    return subprocess.run(described, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def versions_here() -> dict[str, str]:
    """Of the packages that are installed here."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
