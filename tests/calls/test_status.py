"""`status` in a script."""

from databuild_dagster import build, status
from tests.support.project import Project


def test_a_status_counts_the_partitions_of_each_asset(inside: Project) -> None:
    build("orders@2024-01-29..2024-01-31")

    found = status()

    orders = next(asset for asset in found.assets if asset.asset == "orders")
    assert (orders.live, orders.missing) == (3, 29)
    assert repr(found).startswith("3 of 38 partitions of 6 assets live; 0 open wants.\nasset ")
    assert "<th>asset</th>" in found._repr_html_()
