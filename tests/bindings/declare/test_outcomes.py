"""What an asset's function raises instead of an answer (rule 6.3)."""

from typing import Any

import dagster as dg
import pytest

from databuild_dagster import DepMiss, PartitionRef
from databuild_dagster.model.errors import InvalidRef

NO_REF = "is no ref; write a PartitionRef, or a text such as 'sales@2013-01-01'."


def test_a_dep_miss_has_the_refs_of_all_forms_in_order_each_once() -> None:
    miss = DepMiss("sales@2013-01-02", PartitionRef("sales", "2013-01-01"), ["sales@2013-01-02", "other"])

    assert miss.refs == ("sales@2013-01-02", "sales@2013-01-01", "other")
    assert DepMiss({"a": "sales@2013-01-01"}).by_name == {"a": ("sales@2013-01-01",)}


@pytest.mark.parametrize(
    ("missing", "kind", "sentence"),
    [
        ((), ValueError, "DepMiss needs the refs that are missing, for example DepMiss('sales@2013-01-01')."),
        (([],), ValueError, "DepMiss needs the refs that are missing"),
        (({"a": []},), ValueError, "DepMiss needs the refs that are missing"),
        ((["sales@2013-01-03", 7],), TypeError, f"7 {NO_REF}"),
        ((dg.AssetKey("other"),), TypeError, f"AssetKey(['other']) {NO_REF}"),
        (("other", {"a": ["sales"]}), TypeError, "DepMiss takes refs, or one mapping to refs, not both."),
        (("sales@",), InvalidRef, "sales@"),
    ],
)
def test_a_dep_miss_without_refs_is_refused_where_it_is_raised(
    missing: tuple[Any, ...], kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind) as refused:
        DepMiss(*missing)

    assert sentence in str(refused.value)
