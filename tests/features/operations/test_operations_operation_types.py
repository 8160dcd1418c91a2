"""Operation types come from the setting of a code location and from installed packages, each name once (rule 9.4)."""

import sys
from pathlib import Path
from typing import Any

import pytest

from databuild_dagster import DistributedOperation, build_definitions
from databuild_dagster.features.operations.operations import InvalidOperationType, known_operations


class Rows(DistributedOperation[Any]):
    type_name = "rows"


class Nameless(DistributedOperation[Any]):
    pass


class Torn(DistributedOperation[Any]):
    type_name = "a\nb"


def test_an_installed_package_may_bring_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "shop_operations-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-operations\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[databuild_dagster.operations]\ncount = shop_operations:Count\n")
    (tmp_path / "shop_operations.py").write_text(
        "from databuild_dagster import DistributedOperation\n\n\n"
        "class Count(DistributedOperation):\n    type_name = 'count'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    names = [operation.type_name for operation in known_operations([Rows()])]

    assert names[-2:] == ["count", "rows"]

    (tmp_path / "shop_operations.py").write_text("raise ValueError('half\\nwritten')\n")
    sys.modules.pop("shop_operations")
    with pytest.raises(
        InvalidOperationType, match=r"package shop-operations cannot be loaded \(ValueError: half written\)"
    ):
        build_definitions([])


@pytest.mark.parametrize(
    ("operations", "sentence"),
    [
        ([Nameless()], "has no type_name"),
        ([Torn()], "must be a printable text"),
        ([Rows], r"is no DistributedOperation; make an object of it: Rows\(\)"),
        ([Rows(), Rows()], r"gives an operation 'rows', which build_definitions\(operations=…\) gives already"),
    ],
)
def test_a_type_that_cannot_be_registered_is_refused(operations: list[Any], sentence: str) -> None:
    with pytest.raises(InvalidOperationType, match=sentence):
        known_operations(operations)
