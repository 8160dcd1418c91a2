"""A YAML file becomes a value, or one error: for impossible dates and odd tags, PyYAML raises almost anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from databuild_dagster.model.wording import one_line


class BadYaml(ValueError):
    """The file is no YAML; the message says why."""


def read_yaml(path: Path) -> Any:
    """The value of a file. Raises `BadYaml`, and OSError for a file that cannot be read."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError:
        raise
    except Exception as error:
        raise BadYaml("it is nested too deeply" if isinstance(error, RecursionError) else one_line(error)) from error
