"""For every folder: which tests are run and in which order, and a real object store, started for the first that asks for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.extended import is_extended
from tests.support.object_store import bucket, running_s3, s3

__all__ = ["bucket", "pytest_addoption", "pytest_collection_modifyitems", "pytest_configure", "running_s3", "s3"]

HERE = Path(__file__).parent

#: What takes longest begins first, so that no worker is left alone with it in the end.
FIRST = ("e2e", "test_docs", "cli", "spark", "bindings", "simulation")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also what tests/extended.py leaves out")


def pytest_configure(config: pytest.Config) -> None:
    # Who names a file wants all of it. Workers are told so by the option.
    if not hasattr(config, "workerinput") and config.args_source is pytest.Config.ArgsSource.ARGS:
        config.option.all = True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    files = {item: item.path.relative_to(HERE).with_suffix("").as_posix() for item in items}
    if not config.getoption("--all"):
        left_out = [item for item in items if is_extended(files[item], item.name)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    items.sort(key=lambda item: _place(files[item]))


def _place(file: str) -> int:
    folder = file.partition("/")[0]
    return FIRST.index(folder) if folder in FIRST else len(FIRST)
