"""Why nothing can build an input, in words for the author of the code that reads it (rules 5.7, 6.3)."""

from __future__ import annotations

import pytest

from databuild_dagster.model.decide.context import why_no_input
from databuild_dagster.model.errors import Refused, UnknownAsset, UnknownPartition
from databuild_dagster.model.refs import Ref

LOAD = "the code location that defines it: `databuild build` registers what it loads."
MAPPING = "The key is that of grid: give this input a partition mapping, such as dg.AllPartitionMapping()."


def unknown(ref: str, why: str) -> UnknownPartition:
    return UnknownPartition(ref=ref, why=why, asset=ref.partition("@")[0])


@pytest.mark.parametrize(
    ("needed_by", "ref", "refused", "end"),
    [
        pytest.param("grid", "far", UnknownAsset(asset="far", names=["grid"]), f"Load {LOAD}", id="an input elsewhere"),
        pytest.param(
            "grid",
            "ratse",
            UnknownAsset(asset="ratse", names=["rates"]),
            f"Did you mean rates? Otherwise load {LOAD}",
            id="a misspelled input",
        ),
        pytest.param(
            "grid@1|n",
            "palette@1|n",
            unknown("palette@1|n", "'1|n' is not one of its partitions: red, blue."),
            MAPPING,
            id="a static input of two dimensions",
        ),
        pytest.param(
            "grid@1",
            "shops@1",
            unknown("shops@1", "'1' is not a key of its dimensions; write day|shop with a key of each."),
            MAPPING,
            id="an input of two dimensions",
        ),
        pytest.param(
            "grid@2024-01-01",
            "orders@2024-01-01",
            unknown("orders@2024-01-01", "its partitions begin with 2024-02-01."),
            "begin with 2024-02-01.",
            id="a day before the first",
        ),
        pytest.param(
            "grid@1",
            "palette@green",
            unknown("palette@green", "'green' is not one of its partitions: red, blue."),
            "red, blue.",
            id="a key of its own",
        ),
    ],
)
def test_an_input_that_nothing_can_build_names_the_remedy(needed_by: str, ref: str, refused: Refused, end: str) -> None:
    why = why_no_input(Ref(ref), Ref(needed_by), refused)

    assert why.startswith(refused.message)
    assert why.endswith(end)
