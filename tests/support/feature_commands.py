"""The commands that features bring: in a tree without a feature, tests that call a command of it are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from databuild_dagster.feature import built_in

#: The first words of the commands to the feature.
FEATURE_OF: Final = {
    "adopt": "lots",
    "admin publish": "tables",
    "diff": "compare",
    "env": "environments",
    "erase": "erase",
    "gc": "clean",
    "health": "health",
    "metrics": "notices",
    "lot": "lots",
    "migrate-project": "migrate",
    "operation": "operations",
    "pause --needs": "outages",
    "plan --if-missing": "what_if",
    "plan --if-new-code": "what_if",
    "plan --if-tainted": "what_if",
    "relocate": "relocate",
    "resume --needs": "outages",
    "show --full": "compare",
    "status --outages": "outages",
}


def feature_of(words: Sequence[str]) -> str | None:
    """The feature that brings the command with these arguments; None for the core's."""
    return FEATURE_OF.get(words[0]) or FEATURE_OF.get(" ".join(words[:2]))


def is_there(words: Sequence[str]) -> bool:
    """Whether the tree has the command."""
    return feature_of(words) in {None, *(feature.name for feature in built_in())}


def of_command(words: Sequence[str], *values: Any) -> Any:
    """Values of a parametrized test that calls a command, with the mark of the command's feature."""
    feature = feature_of(words)
    return pytest.param(*values, marks=() if feature is None else pytest.mark.feature(feature))
